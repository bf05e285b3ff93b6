#include "kernelopt/gates/static_scan.h"

#include <gtest/gtest.h>

#include "kernelopt/codegen/cpp/prelude.h"
#include "kernelopt/gates/cpp_tokens.h"

namespace kernelopt {
namespace {

KernelSource kernel(std::string source) {
  return {"kernel0", std::move(source),
          {{"b0", DType::kFloat32, ParamRole::kIn}, {"b1", DType::kFloat32, ParamRole::kOut}}};
}

// A right kernel, with `inside` in its loop and `before` above it.
KernelSource with(const std::string& inside, const std::string& before = "") {
  return kernel("#include <cmath>\n" + before + R"(
static inline float twice(float x) { return x + x; }
extern "C" void kernel(const float* __restrict__ b0, float* __restrict__ b1) {
  #pragma omp parallel for num_threads(2)
  for (int64_t i = 0; i < 128; i += 1) {
    float x = b0[i];
    )" + inside + R"(
    b1[i] = twice(std::exp(x));
  }
})");
}

std::string finding(const KernelSource& source) {
  const auto found = scan_cpp_kernel(source);
  return found ? found->token + ": " + found->why : "";
}

TEST(StaticScan, AdmitsAKernel) { EXPECT_EQ(finding(with("")), ""); }

TEST(StaticScan, AdmitsThePrintersPrelude) {
  for (int lanes : {16, 8, 4})
    for (bool all : {false, true}) {
      const auto found = scan_cpp_kernel(kernel(cpp_prelude(lanes, {.math = all, .vec = all, .transpose = all, .wide = all}) +
                                                "extern \"C\" void kernel(const float* b0, float* b1) { b1[0] = b0[0]; }"));
      EXPECT_FALSE(found.has_value()) << lanes << " line " << found->line << ": " << found->token << ": " << found->why;
    }
}

TEST(StaticScan, AdmitsWhatKernelsAreMadeOf) {
  for (const char* inside : {
           "auto v = at::vec::Vectorized<float>::loadu(b0 + i); v.exp().store(b1 + i);",
           "__m512 v = _mm512_loadu_ps(b0 + i); _mm512_storeu_ps(b1 + i, v);",
           "double hex = 0x1.8p+3 + 1e-5 + 1'000'000;",
           "float small = std::numeric_limits<float>::infinity();",
           "alignas(64) float tile[16]; tile[0] = x; x = tile[0];",
           "int tid = omp_get_thread_num(); (void)tid;",
           "auto f = [&](float y) { return y * x; }; x = f(x);",
           "x = x > 0 ? x : -x; /* a comment: system(1) */ // fopen",
           "std::memcpy(&x, b0 + i, sizeof(float));",
           "\n#pragma omp atomic write\nx = 1;\n",
       })
    EXPECT_EQ(finding(with(inside)), "") << inside;
  for (const char* before : {
           "#include <omp.h>\n#if defined(__AVX512F__)\nconstexpr int kLanes = 16;\n#else\nconstexpr int kLanes = 8;\n#endif\n",
           "template <typename T> struct Pair { T first, second; };\nnamespace ko { constexpr double kPi = 3.14; }\n",
           "#define KO_INLINE static inline __attribute__((always_inline))\nKO_INLINE float half_of(float y) { return y / 2; }\n",
           "static const float kTable[2] = {1, 2};\n",
       })
    EXPECT_EQ(finding(with("", before)), "") << before;
}

TEST(StaticScan, AdmitsOnlyTheOutOfBoundsException) {
  EXPECT_EQ(finding(with("if (x > 1) throw std::runtime_error(\"index out of bounds\");")), "");
  EXPECT_NE(finding(with("throw std::runtime_error(\"something else\");")), "");
  EXPECT_NE(finding(with("throw std::runtime_error(\"index out of bounds\"), system(0);")), "");
}

TEST(StaticScan, RefusesWaysOutOfAKernel) {
  for (const char* inside : {
           "system(\"ls\");", "std::system(0);", "::system(0);", "asm(\"nop\");", "__asm__ volatile (\"nop\");",
           "execve(0, 0, 0);", "fopen(0, 0);", "FILE* f = fopen(0, 0);", "void* h = dlopen(0, 1);", "auto f = &dlsym;",
           "goto out;", "throw 1;", "try { x = 1; } catch (...) {}", "float* p = new float[3];", "free(b1);", "abort();",
           "std::thread t;", "std::async(0);", "std::vector<float> v;", "std::ofstream out;", "static float seen = 0;",
           "static int calls; calls++;", "thread_local int calls = 0;", "printf(0);", "unknown_function(x);", "getenv(0);",
           "const char* s = \"text\";", "char c = 'a';", "syscall(1);", "at::empty(x);", "torch::empty(x);", "c10::cuda(x);",
           "_exit(0);", "kill(0, 9);", "__builtin_trap();", "mmap(0, 0, 0, 0, 0, 0);", "pthread_create(0, 0, 0, 0);",
           "auto s = R\"(x)\";", "sys\\\ntem(0);", "int sy\\u0073tem = 1;", "x %: 1;", "std::cout << x;", "extern int y;",
           "int system(const char*); x = system(0);", "using namespace std; system(0);", "x = x $ 1;", "errno = 1;",
       })
    EXPECT_NE(finding(with(inside)), "") << inside;
}

TEST(StaticScan, RefusesDirectives) {
  for (const char* before : {
           "#include <cstdlib>\n", "#include <unistd.h>\n", "#include \"/etc/passwd\"\n", "#include <thread>\n",
           "#define system x\n", "#define KERNEL system\n", "#define KO_CALL system\n", "#define KO_CALL(a, b) a ## b\n",
           "#define KO_TEXT(a) #a\n", "#define KO_A sys\\\ntem(0)\n#define KO_B fopen\n", "#undef NAN\n", "#line 3\n", "#error x\n",
           "#pragma GCC push_options\n", "#pragma weak kernel\n", "#pragma omp parallel num_threads(system(0))\n",
           "#include_next <cmath>\n", "#import <cmath>\n", "#ident \"x\"\n", "_Pragma(\"weak x\")\n", "#inc\\\nlude <unistd.h>\n",
           "int x; #include <cmath>\n", "/* unfinished\n", "import std;\n", "export module m;\n",
           "__attribute__((constructor)) static void start() {}\n", "[[gnu::constructor]] static void start() {}\n",
       })
    EXPECT_NE(finding(with("", before)), "") << before;
}

TEST(StaticScan, WantsExactlyTheDeclaredEntryPoint) {
  const auto entry = [](const char* source) {
    const auto found = scan_cpp_kernel(kernel(source));
    return found && found->entry_point;
  };
  EXPECT_TRUE(entry(""));
  EXPECT_TRUE(entry("void kernel(const float* b0, float* b1) {}"));
  EXPECT_TRUE(entry("extern \"C\" void other(const float* b0, float* b1) {}"));
  EXPECT_TRUE(entry("extern \"C\" void kernel(const float* b0) {}"));
  EXPECT_TRUE(entry("extern \"C\" void kernel(const float* b0, float* b1, float* b2) {}"));
  EXPECT_TRUE(entry("extern \"C\" void kernel() {}"));
  EXPECT_TRUE(entry("extern \"C\" void kernel(const float* b0, float* b1);"));
  EXPECT_TRUE(entry("extern \"C\" { void kernel(const float* b0, float* b1) {} }"));
  EXPECT_TRUE(entry("extern \"C\" int kernel;"));
  EXPECT_TRUE(entry("extern \"C\" void kernel(const float* b0, float* b1) {}\n"
                    "extern \"C\" void second(const float* b0, float* b1) {}"));
  EXPECT_FALSE(scan_cpp_kernel(kernel("extern \"C\" void kernel(const float* b0, float* b1) {}")).has_value());
}

TEST(StaticScan, NamesTheLine) {
  const auto found = scan_cpp_kernel(kernel("\n\nextern \"C\" void kernel(const float* b0, float* b1) {\n  fopen(b0);\n}"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->line, 4);
  EXPECT_EQ(found->token, "fopen");
}

TEST(CppTokens, SplitsNumbersCommentsAndDirectives) {
  const auto tokens = split_cpp("a::b->c 1.5e-3f 0x1p+2 /* x\n */ #\n# if X \\\n Y\nz");
  std::vector<std::string> texts;
  for (const auto& token : tokens) texts.push_back(token.text);
  EXPECT_EQ(tokens[7].kind, CppTokenKind::kBad);  // '#' after other text
  EXPECT_EQ(std::vector<std::string>(texts.begin(), texts.begin() + 7),
            (std::vector<std::string>{"a", "::", "b", "->", "c", "1.5e-3f", "0x1p+2"}));
  const auto directive = split_cpp("# if X \\\n Y\nz");
  ASSERT_EQ(directive.size(), 2u);
  EXPECT_EQ(directive[0].kind, CppTokenKind::kDirective);
  EXPECT_EQ(directive[1].line, 3);
}

}  // namespace
}  // namespace kernelopt
