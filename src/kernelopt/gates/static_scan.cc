#include "kernelopt/gates/static_scan.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "kernelopt/gates/cpp_tokens.h"

namespace kernelopt {
namespace {

using Names = std::set<std::string_view>;

// Macros that a source may define for itself.
constexpr std::string_view kMacroPrefix = "KO_";

const Names kIncludes = {
    "<ATen/cpu/vec/functional.h>", "<ATen/cpu/vec/vec.h>", "<ATen/NumericUtils.h>", "<algorithm>", "<array>", "<atomic>",
    "<bit>", "<c10/util/BFloat16.h>", "<c10/util/Half.h>", "<cfloat>", "<climits>", "<cmath>", "<cstddef>", "<cstdint>",
    "<cstring>", "<immintrin.h>", "<limits>", "<numeric>", "<omp.h>", "<stdexcept>", "<stdint.h>", "<torch/csrc/inductor/cpp_prefix.h>",
    "<tuple>", "<type_traits>", "<utility>",
};

const Names kKeywords = {
    "alignas", "alignof", "and", "auto", "bool", "break", "case", "char", "class", "concept", "const", "const_cast",
    "consteval", "constexpr", "continue", "decltype", "default", "delete", "do", "double", "else", "enum", "explicit",
    "extern", "false", "final", "float", "for", "friend", "if", "inline", "int", "long", "mutable", "namespace", "noexcept",
    "not", "nullptr", "operator", "or", "override", "private", "protected", "public", "register", "reinterpret_cast",
    "requires", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch",
    "template", "this", "true", "typedef", "typename", "union", "unsigned", "using", "void", "volatile", "while", "xor",
};
// Of these, the ones after which a name is declared: `float x`. The others (return, else, …) are followed by a use.
const Names kTypeKeywords = {"auto", "bool", "char", "class", "const", "constexpr", "double", "enum", "float", "int", "long",
                             "namespace", "short", "signed", "struct", "typename", "union", "unsigned", "using", "void"};

// Never a name in a kernel, declared or not: the C library's and the compiler's ways out of it.
const Names kForbidden = {
    "_Exit", "_exit", "__asm", "__asm__", "abort", "accept", "asm", "async", "at_quick_exit", "atexit", "bind", "calloc",
    "catch", "cerr", "chdir", "chmod", "cin", "clone", "close", "co_await", "co_return", "co_yield", "connect",
    "constructor", "cout", "creat", "destructor", "dlmopen", "dlopen", "dlsym", "dynamic_cast", "exit", "export",
    "fclose", "filesystem", "fopen", "fork", "fprintf", "fputs", "fread", "free", "freopen", "fscanf", "fstream", "fwrite",
    "getenv", "goto", "ifstream", "ifunc", "import", "ioctl", "jthread", "kill", "longjmp", "malloc", "mkdir", "mmap",
    "module", "mprotect", "munmap", "new", "ofstream", "open", "openat", "pipe", "popen", "posix_spawn", "printf",
    "ptrace", "putenv", "puts", "quick_exit", "raise", "read", "realloc", "recv", "remove", "rename", "rmdir", "section",
    "send", "setenv", "setjmp", "sigaction", "signal", "socket", "syscall", "system", "terminate", "thread",
    "thread_local", "throw", "truncate", "try", "typeid", "unlink", "vfork", "wait", "write",
};
// Families of the same.
constexpr std::string_view kForbiddenPrefixes[] = {"exec", "pthread_", "__sys", "__libc", "sched_", "dl_"};

// Names of the standard library and of the compiler's own prefix header that a kernel may use.
const Names kStandard = {
    "abs", "accumulate", "acos", "acosh", "array", "asin", "asinh", "atan", "atan2", "atanh", "atomic", "atomic_ref",
    "bit_cast", "cbrt", "ceil", "clamp", "conditional_t", "copy", "copy_n", "copysign", "cos", "cosh", "decay_t", "declval",
    "enable_if_t", "equal_to", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "false_type", "fill", "fill_n", "floor",
    "fma", "fmax", "fmin", "fmod", "forward", "frexp", "get", "greater", "hypot", "ignore", "index_sequence", "int16_t",
    "int32_t", "int64_t", "int8_t", "integral_constant", "intptr_t", "invoke_result_t", "is_arithmetic_v",
    "is_floating_point_v", "is_integral_v", "is_same", "is_same_v", "is_signed_v", "isfinite", "isinf", "isnan", "ldexp", "less", "lgamma", "log",
    "log10", "log1p", "log2", "lrint", "lround", "make_index_sequence", "make_pair", "make_tuple", "max", "memcpy",
    "memmove", "memory_order_relaxed", "memory_order_acquire", "memory_order_release", "memory_order_acq_rel", "memset",
    "min", "minmax", "move", "nan", "nearbyint", "nextafter", "nth_element", "numeric_limits", "pair", "pow", "ptrdiff_t",
    "remove_const_t", "remove_cv_t", "remove_cvref_t", "remove_reference_t", "rint", "round", "signbit", "sin", "sinh",
    "size_t", "sort", "sqrt", "stable_sort", "std", "swap", "tan", "tanh", "tgamma", "tie", "true_type", "trunc", "tuple",
    "uint16_t", "uint32_t", "uint64_t", "uint8_t", "uintptr_t",
};
const Names kPlain = {
    // OpenMP and the language's macros.
    "omp_get_max_threads", "omp_get_num_threads", "omp_get_thread_num", "omp_in_parallel", "CHAR_BIT", "DBL_EPSILON",
    "DBL_MAX", "DBL_MIN", "FLT_EPSILON", "FLT_MAX", "FLT_MIN", "INFINITY", "INT32_MAX", "INT32_MIN", "INT64_MAX",
    "INT64_MIN", "M_1_PI", "M_2_PI", "M_E", "M_LN2", "M_LOG2E", "M_PI", "M_PI_2", "M_SQRT1_2", "M_SQRT2", "NAN",
    "UINT64_MAX", "__AVX2__", "__AVX512BW__", "__AVX512DQ__", "__AVX512F__", "__AVX512VL__", "__F16C__", "__FMA__",
    "_OPENMP", "defined",
    // GCC.
    "__attribute__", "__builtin_assume_aligned", "__builtin_bit_cast", "__builtin_convertvector", "__builtin_expect", "__builtin_huge_val", "__builtin_huge_valf",
    "__builtin_inf", "__builtin_inff", "__builtin_nan", "__builtin_nanf", "__builtin_prefetch", "__builtin_unreachable",
    "__builtin_bswap32", "__builtin_bswap64", "__builtin_clz", "__builtin_clzll", "__builtin_ctz", "__builtin_ctzll",
    "__builtin_mul_overflow", "__builtin_popcount", "__builtin_popcountll", "__builtin_shuffle", "__int128", "__restrict", "__restrict__",
    "aligned", "always_inline", "cold", "flatten", "gnu", "hot", "likely", "maybe_unused", "may_alias", "noinline",
    "nodiscard", "unlikely", "unused", "vector_size", "visibility",
    // torch's headers.
    "CPU_CAPABILITY", "CPU_CAPABILITY_AVX2", "CPU_CAPABILITY_AVX512", "CPU_CAPABILITY_DEFAULT", "AMXState", "at", "bfloat16",
    "c10", "calc_erfinv", "float16", "half", "max_propagate_nan", "min_propagate_nan", "norm", "normalized_rand_cpu",
    "randint64_cpu", "randn_cpu", "vec", "vectorized_reduce_all", "welford_combine", "Welford", "WelfordHelper",
    "IndexValue", "argmax_combine", "argmin_combine", "atomic_add", "atomic_add_vec", "cascade_sum_combine",
    "CascadeSumHelper", "VecMask", "Vectorized", "VectorizedN", "blendv", "convert", "digamma", "fmadd", "loadu", "maximum",
    "minimum", "div_floor_floating", "div_floor_integer",
};

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_intrinsic(std::string_view name) {
  return starts_with_any(name, {"_mm_", "_mm256_", "_mm512_", "__m128", "__m256", "__m512", "__mmask", "_MM_", "_CMP_",
                                "_mm256", "_cvt", "_kand_", "_kor_", "_bzhi_", "_pdep_", "_pext_", "_tzcnt_", "_lzcnt_"});
}

bool is_forbidden(std::string_view name) {
  return kForbidden.count(name) > 0 ||
         std::any_of(std::begin(kForbiddenPrefixes), std::end(kForbiddenPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (const CppToken& token : split_cpp(line)) words.push_back(token.text);
  return words;
}

class Scan {
 public:
  explicit Scan(const KernelSource& kernel) : kernel_(kernel) {
    for (CppToken& token : split_cpp(kernel.source)) {
      std::string macro_body = own_macro(token);
      const int line = token.line;
      tokens_.push_back(std::move(token));
      // What a macro says is scanned where it is defined, like any other text.
      for (CppToken& part : split_cpp(macro_body)) tokens_.push_back({part.kind, std::move(part.text), line});
    }
  }

  std::optional<ScanFinding> run() {
    collect_declared();
    for (at_ = 0; at_ < tokens_.size() && !finding_; ++at_) token();
    if (!finding_ && entry_points_ != 1)
      find(tokens_.empty() ? 1 : tokens_.back().line, kEntryPoint, "the source does not define the kernel exactly once", true);
    return finding_;
  }

 private:
  const CppToken* neighbour(int offset) const {
    const size_t index = at_ + static_cast<size_t>(offset);
    return index < tokens_.size() ? &tokens_[index] : nullptr;  // at_ - 1 of 0 wraps to a large index
  }
  std::string_view text(int offset) const {
    const CppToken* token = neighbour(offset);
    return token ? std::string_view(token->text) : std::string_view();
  }
  void find(int line, std::string_view token, std::string why, bool entry_point = false) {
    if (!finding_) finding_ = ScanFinding{line, std::string(token), std::move(why), entry_point};
  }

  // The text after `#define`, for macros of the printer's own prefix; pasting and stringizing are no tokens to split_cpp.
  static std::string own_macro(const CppToken& token) {
    if (token.kind != CppTokenKind::kDirective) return {};
    const std::vector<std::string> words = words_of(token.text.substr(1));
    if (words.size() < 2 || words[0] != "define" || !words[1].starts_with(kMacroPrefix)) return {};
    return " " + token.text.substr(token.text.find("define") + 6);
  }

  // Names that stand where a declaration puts one: after a type, before what can follow a declarator.
  void collect_declared() {
    static const Names kBeforeName = {"*", "&", ">", ",", "[", "(", ":", "..."};
    static const Names kAfterName = {"=", "(", "{", ";", ",", ")", "[", "]", ":", ">", "...", "__attribute__"};
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      const CppToken& token = tokens_[at_];
      const CppToken* before = neighbour(-1);
      if (token.kind != CppTokenKind::kIdentifier || !before || kKeywords.count(token.text)) continue;
      const bool after_type = before->kind == CppTokenKind::kIdentifier
                                  ? kTypeKeywords.count(before->text) || !kKeywords.count(before->text)
                                  : kBeforeName.count(before->text) > 0;
      const bool ends_declarator = kAfterName.count(text(1)) > 0;
      // After punctuation that also stands before uses, only what cannot be a call introduces a name.
      const bool ambiguous = before->kind == CppTokenKind::kPunctuation;
      if (defines_function() || (after_type && ends_declarator && !(ambiguous && text(1) == "(")))
        declared_.insert(token.text);
    }
  }

  // A name, its parameters and a body: no call is followed by a brace.
  bool defines_function() const {
    if (text(1) != "(") return false;
    int depth = 0;
    for (size_t i = at_ + 1; i < tokens_.size(); ++i) {
      if (tokens_[i].text == "(") ++depth;
      if (tokens_[i].text == ")" && --depth == 0) return i + 1 < tokens_.size() && tokens_[i + 1].text == "{";
    }
    return false;
  }

  // The one exception that a kernel may throw, after its loops: an index was out of bounds, as the compiler's kernels do.
  bool bounds_failure() {
    if (tokens_[at_].text != "throw") return false;
    std::string statement;
    size_t last = at_;
    for (; last < tokens_.size() && tokens_[last].text != ";" && last < at_ + 12; ++last) statement += tokens_[last].text;
    if (statement != "throwstd::runtime_error(\"index out of bounds\")") return false;
    at_ = last;
    return true;
  }

  void token() {
    if (bounds_failure()) return;
    const CppToken& token = tokens_[at_];
    switch (token.kind) {
      case CppTokenKind::kBad: return find(token.line, token.text, "not a token of a kernel");
      case CppTokenKind::kDirective: return directive(token);
      case CppTokenKind::kString:
        if (text(-1) != "extern" || token.text != "\"C\"") find(token.line, token.text, "a string in a kernel");
        return;
      case CppTokenKind::kIdentifier: return identifier(token);
      case CppTokenKind::kNumber:
      case CppTokenKind::kPunctuation: return;
    }
  }

  void directive(const CppToken& token) {
    const std::string body = token.text.substr(1);
    const std::vector<std::string> words = words_of(body);
    if (words.empty()) return find(token.line, token.text, "a directive that a kernel may not use");
    const std::string& name = words[0];
    if (name == "include") {
      std::string target = body.substr(body.find("include") + 7);
      target.erase(std::remove_if(target.begin(), target.end(), [](char c) { return c == ' ' || c == '\t' || c == '\r'; }),
                   target.end());
      if (target.size() > 2 && target.front() == '"' && target.back() == '"')
        target = "<" + target.substr(1, target.size() - 2) + ">";
      if (!kIncludes.count(target)) find(token.line, token.text, "an include that a kernel may not use");
      return;
    }
    if (name == "pragma") {
      const bool known =
          words.size() > 2 && (words[1] == "omp" || (words[1] == "GCC" && Names{"unroll", "ivdep"}.count(words[2])));
      if (!known) return find(token.line, token.text, "a pragma that a kernel may not use");
      return forbid_words(token, words);
    }
    if ((name == "define" || name == "undef") && words.size() > 1 && words[1].starts_with(kMacroPrefix)) return;
    if (Names{"if", "ifdef", "ifndef", "elif", "else", "endif"}.count(name)) return forbid_words(token, words);
    find(token.line, token.text, "a directive that a kernel may not use");
  }
  void forbid_words(const CppToken& token, const std::vector<std::string>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      // `omp atomic read` and `write` are clauses; a call has its parenthesis.
      const bool clause = (words[i] == "read" || words[i] == "write") && (i + 1 == words.size() || words[i + 1] != "(");
      if (is_forbidden(words[i]) && !clause) find(token.line, words[i], "a name that a kernel may not use");
    }
  }

  void identifier(const CppToken& token) {
    const std::string& name = token.text;
    if (is_forbidden(name)) return find(token.line, name, "a name that a kernel may not use");
    if (name == "extern") return entry_point(token);
    if (name == "static") return static_storage(token);
    if (name == "delete" && text(-1) != "=") return find(token.line, name, "deallocation in a kernel");
    if (kKeywords.count(name)) return;
    const std::string_view before = text(-1);
    // Members belong to objects, whose types were admitted where they were named.
    if (before == "." || before == "->") return;
    if (before == "::") return qualified(token);
    if (name.starts_with(kMacroPrefix) || declared_.count(name) || kStandard.count(name) || kPlain.count(name) || is_intrinsic(name)) return;
    find(token.line, name, "a name that is neither the source's own nor on the list of what a kernel may use");
  }

  // a::b::name: everything below at::vec, c10 and the source's own names; of std only what is listed.
  void qualified(const CppToken& token) {
    const CppToken* root = neighbour(-2);
    if (!root || root->kind != CppTokenKind::kIdentifier) {
      // `::name` or `Type<…>::name`: the former reaches the C library.
      if (root && root->text == ">") return;
      return find(token.line, token.text, "a name of the global namespace");
    }
    if (root->text == "std" && !kStandard.count(token.text))
      return find(token.line, "std::" + token.text, "a name of the standard library that a kernel may not use");
    if (root->text == "at" && token.text != "vec")
      return find(token.line, "at::" + token.text, "a name of torch that a kernel may not use");
    if (root->text == "c10" && !Names{"Half", "BFloat16", "convert"}.count(token.text))
      return find(token.line, "c10::" + token.text, "a name of torch that a kernel may not use");
  }

  void entry_point(const CppToken& token) {
    const CppToken* linkage = neighbour(1);
    if (!linkage || linkage->kind != CppTokenKind::kString || linkage->text != "\"C\"")
      return find(token.line, "extern", "a declaration of something outside the source");
    size_t open = at_ + 2;
    while (open < tokens_.size() && tokens_[open].text != "(" && tokens_[open].text != "{" && tokens_[open].text != ";" &&
           tokens_[open].text != "=")
      ++open;
    // Attributes carry parentheses of their own: the name is the last identifier before the parameter list.
    if (open >= tokens_.size() || tokens_[open].text != "(" || tokens_[open - 1].text != kEntryPoint)
      return find(token.line, open < tokens_.size() ? tokens_[open - 1].text : "extern",
                  "C linkage for something other than the kernel", true);
    ++entry_points_;
    int depth = 0;
    size_t params = tokens_[open + 1 < tokens_.size() ? open + 1 : open].text == ")" ? 0 : 1;
    size_t close = open;
    for (; close < tokens_.size(); ++close) {
      const std::string& part = tokens_[close].text;
      if (part == "(" || part == "<" || part == "[") ++depth;
      if (part == ")" || part == ">" || part == "]") --depth;
      if (part == "," && depth == 1) ++params;
      if (depth == 0) break;
    }
    if (params != kernel_.params.size())
      return find(token.line, kEntryPoint, "the kernel takes another number of parameters than declared", true);
    if (close + 1 >= tokens_.size() || tokens_[close + 1].text != "{")
      return find(token.line, kEntryPoint, "the kernel is declared and not defined", true);
  }

  // A static function or constant is one; a static variable would remember earlier calls.
  void static_storage(const CppToken& token) {
    for (size_t i = at_ + 1; i < tokens_.size(); ++i) {
      const std::string& part = tokens_[i].text;
      if (part == "constexpr" || part == "const" || part == "(") return;
      if (part == ";" || part == "=" || part == "{" || part == "[") break;
    }
    find(token.line, "static", "state that outlives a call");
  }

  const KernelSource& kernel_;
  std::vector<CppToken> tokens_;
  std::set<std::string, std::less<>> declared_;
  size_t at_ = 0;
  int entry_points_ = 0;
  std::optional<ScanFinding> finding_;
};

}  // namespace

std::optional<ScanFinding> scan_cpp_kernel(const KernelSource& kernel) { return Scan(kernel).run(); }

}  // namespace kernelopt
