#include "kernelopt/ir/program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernelopt/ir/type_inference.h"

namespace kernelopt {
namespace {

using nlohmann::json;

json buffer(const char* kind, const char* dtype, std::vector<int64_t> size, bool output = false) {
  std::vector<int64_t> stride(size.size(), 1);
  for (size_t i = size.size(); i-- > 1;) stride[i - 1] = stride[i] * size[i];
  return {{"kind", kind}, {"dtype", dtype}, {"size", size}, {"stride", stride}, {"offset", 0}, {"device", "cpu"}, {"layout", "fixed"},
          {"base", nullptr}, {"mutates", nullptr}, {"is_output", output}, {"removable", !output}, {"value", nullptr}};
}

// One generated step with the given body over half, integer and float buffers.
json document(const char* body) {
  json result = json::parse(R"({"format": "kernelopt.program", "version": 1, "torch": "2.13.0", "adapter": "2.13", "device": "cpu",
    "graph": 0, "inputs": ["x"], "outputs": ["y"], "wrapper": "", "kernels": [{"name": "k", "source": "s"}],
    "steps": [{"name": "op0", "kind": "generated", "reads": ["x", "h", "n"], "writes": ["y", "m"], "last_use": ["x"],
               "origins": ["aten.add"], "refused": null}]})");
  result["buffers"] = {{"x", buffer("input", "float32", {8, 16})}, {"h", buffer("input", "bfloat16", {8, 16})},
                       {"n", buffer("input", "int64", {8})}, {"y", buffer("computed", "float32", {8, 16}, true)},
                       {"m", buffer("computed", "bool", {8, 16})}};
  result["steps"][0]["bodies"] = json::array({json::parse(body)});
  return result;
}

constexpr char kMasked[] = R"({"name": "op0", "vars": [{"name": "p0", "extent": 8, "kind": "iter"}, {"name": "p1", "extent": 16, "kind": "iter"}],
  "ops": [{"id": 0, "op": "index_expr", "index": {"add": ["p1", -1]}, "dtype": "int64"},
          {"id": 1, "op": "constant", "value": 0, "dtype": "int64"},
          {"id": 2, "op": "ge", "args": [0, 1]},
          {"id": 5, "op": "masked", "args": [2], "value": "-inf",
           "block": {"ops": [{"id": 3, "op": "load", "buffer": "h", "index": {"add": [{"mul": [16, "p0"]}, "p1", -1]}},
                             {"id": 4, "op": "exp", "args": [3]}], "results": [4]}},
          {"id": -1, "op": "store", "buffer": "y", "index": {"add": [{"mul": [16, "p0"]}, "p1"]}, "args": [5], "mode": null}]})";

constexpr char kIndirect[] = R"({"name": "op0", "vars": [{"name": "p0", "extent": 8, "kind": "iter"}],
  "ops": [{"id": 0, "op": "load", "buffer": "n", "index": "p0"},
          {"id": -1, "op": "indirect", "args": [0], "size": 8, "check": true, "wrap_neg": true, "symbol": "i0"},
          {"id": 1, "op": "load", "buffer": "x", "index": {"mul": [16, "i0"]}},
          {"id": -1, "op": "store", "buffer": "y", "index": {"mul": [16, "p0"]}, "args": [1], "mode": "atomic_add"}]})";

constexpr char kWelford[] = R"({"name": "op0", "vars": [{"name": "p0", "extent": 8, "kind": "iter"}, {"name": "p1", "extent": 16, "kind": "reduce"}],
  "ops": [{"id": 0, "op": "load", "buffer": "h", "index": {"add": [{"mul": [16, "p0"]}, "p1"]}},
          {"id": 1, "op": "reduction", "type": "welford_reduce", "dtype": "float32", "src_dtype": "float32", "args": [0]},
          {"id": 2, "op": "get", "args": [1], "which": 1},
          {"id": -1, "op": "store_reduction", "buffer": "y", "index": {"mul": [16, "p0"]}, "args": [2]}]})";

constexpr char kScan[] = R"({"name": "op0", "vars": [{"name": "p0", "extent": 8, "kind": "iter"}, {"name": "p1", "extent": 16, "kind": "reduce"}],
  "ops": [{"id": 0, "op": "load", "buffer": "x", "index": {"add": [{"mul": [16, "p0"]}, "p1"]}},
          {"id": 4, "op": "scan", "dtypes": ["float32"], "args": [0],
           "block": {"params": [1, 2], "ops": [{"id": 3, "op": "add", "args": [1, 2]}], "results": [3]}},
          {"id": -1, "op": "store", "buffer": "y", "index": {"add": [{"mul": [16, "p0"]}, "p1"]}, "args": [4], "mode": null}]})";

std::string only_body(const json& document) {
  const auto program = read_program(document);
  if (!program.ok()) return program.error().to_string();
  if (program->steps[0].bodies.empty()) return "refused: " + program->steps[0].refused.value_or("");
  return print(program->steps[0].bodies[0]);
}

TEST(ReaderTest, Masked) {
  EXPECT_EQ(only_body(document(kMasked)),
            "op0 p0<8 p1<16\n"
            "  %0 = index_expr p1 - 1 : int64\n"
            "  %1 = constant 0 : int64\n"
            "  %2 = ge %0, %1 : bool\n"
            "  %5 = masked %2 else -inf : float32\n"
            "    %3 = load h[16*p0 + p1 - 1] : float32\n"
            "    %4 = exp %3 : float32\n"
            "    yield %4\n"
            "  store y[16*p0 + p1] = %5\n");
}

TEST(ReaderTest, IndirectAndAtomic) {
  EXPECT_EQ(only_body(document(kIndirect)),
            "op0 p0<8\n"
            "  %0 = load n[p0] : int64\n"
            "  indirect i0 = %0 size 8 wrap_neg check\n"
            "  %1 = load x[16*i0] : float32\n"
            "  store y[16*p0] = %1 atomic_add\n");
}

TEST(ReaderTest, WelfordHasThreeResults) {
  EXPECT_EQ(only_body(document(kWelford)),
            "op0 p0<8 reduce p1<16\n"
            "  %0 = load h[16*p0 + p1] : float32\n"
            "  %1 = reduction welford_reduce %0 from float32 : (float32, float32, float32)\n"
            "  %2 = get %1 result 1 : float32\n"
            "  store_reduction y[16*p0] = %2\n");
}

TEST(ReaderTest, Scan) {
  EXPECT_EQ(only_body(document(kScan)),
            "op0 p0<8 reduce p1<16\n"
            "  %0 = load x[16*p0 + p1] : float32\n"
            "  %4 = scan %0 : float32\n"
            "    params %1, %2\n"
            "    %3 = add %1, %2 : float32\n"
            "    yield %3\n"
            "  store y[16*p0 + p1] = %4\n");
}

TEST(ReaderTest, EveryFieldArrives) {
  json doc = document(kMasked);
  doc["buffers"]["y"]["base"] = "x";
  doc["buffers"]["y"]["layout"] = "non_owning";
  doc["buffers"]["y"]["offset"] = 3;
  doc["buffers"]["n"]["value"] = "inf";
  const auto program = read_program(doc);
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  const Buffer& y = program->buffer("y");
  EXPECT_EQ(y.base, "x");
  EXPECT_EQ(y.layout, LayoutKind::kNonOwning);
  EXPECT_EQ(y.offset, 3);
  EXPECT_EQ(y.elements(), 128);
  EXPECT_EQ(y.storage_elements(), 128);
  EXPECT_EQ(y.bytes(), 512);
  EXPECT_TRUE(y.is_output);
  EXPECT_TRUE(std::isinf(*program->buffer("n").value));
  EXPECT_EQ(program->steps[0].last_use, std::vector<std::string>{"x"});
  EXPECT_EQ(program->kernels[0].source, "s");
  EXPECT_EQ(program->torch, "2.13.0");
}

TEST(ReaderTest, UnknownPartsRefuseTheStepByName) {
  json doc = document(kMasked);
  doc["steps"][0]["bodies"][0]["ops"][2]["op"] = "bessel_j0";
  EXPECT_EQ(only_body(doc), "refused: op bessel_j0");
  doc = document(kWelford);
  doc["steps"][0]["bodies"][0]["ops"][1]["type"] = "median";
  EXPECT_EQ(only_body(doc), "refused: reduction median");
  doc = document(kIndirect);
  doc["steps"][0]["bodies"][0]["ops"][3]["mode"] = "atomic_max";
  EXPECT_EQ(only_body(doc), "refused: store mode atomic_max");
  doc = document(kMasked);
  doc["steps"][0]["bodies"][0]["ops"][0]["dtype"] = "complex64";
  EXPECT_EQ(only_body(doc), "refused: data type complex64");
  doc = document(kMasked);
  doc["steps"][0]["bodies"][0]["ops"][0]["index"] = json::parse(R"({"floordiv": ["p1", "p0"]})");
  EXPECT_EQ(only_body(doc), "refused: index floordiv by a variable");
  doc = document(kMasked);
  doc["steps"][0]["refused"] = "symbolic size";
  doc["steps"][0]["bodies"] = json::array();
  EXPECT_EQ(only_body(doc), "refused: symbolic size");
}

TEST(ReaderTest, OtherVersionsAndDocumentsAreErrors) {
  json doc = document(kMasked);
  doc["version"] = 2;
  const auto newer = read_program(doc);
  EXPECT_EQ(newer.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(newer.error().message().find("version 1"), std::string::npos);
  doc["format"] = "something";
  EXPECT_EQ(read_program(doc).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(read_program(json::array()).error().code(), ErrorCode::kInternal);
  doc = document(kMasked);
  doc["steps"][0].erase("name");
  EXPECT_EQ(read_program(doc).error().code(), ErrorCode::kInternal);
  doc = document(kMasked);
  doc["buffers"]["x"]["dtype"] = "complex64";
  EXPECT_EQ(read_program(doc).error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(read_program_file("/nowhere/program.json").error().code(), ErrorCode::kIo);
}

// Each change breaks one invariant; the reader must say so, never crash.
TEST(VerifierTest, BrokenBodiesAreFound) {
  struct Case {
    const char* body;
    std::function<void(json&)> change;
    const char* message;
  };
  const auto ops = [](json& doc) -> json& { return doc["steps"][0]["bodies"][0]["ops"]; };
  const Case cases[] = {
      {kMasked, [&](json& d) { ops(d)[2]["args"] = {0, 9}; }, "argument 9 is not defined before"},
      {kMasked, [&](json& d) { ops(d)[2]["args"] = {0}; }, "1 arguments instead of 2"},
      {kMasked, [&](json& d) { ops(d)[1]["id"] = 0; }, "defined twice"},
      {kMasked, [&](json& d) { ops(d)[0]["index"] = "q"; }, "index uses q"},
      {kMasked, [&](json& d) { ops(d)[4]["args"] = {4}; }, "argument 4 is not defined before"},
      {kMasked, [&](json& d) { ops(d)[4]["buffer"] = "z"; }, "unknown buffer z"},
      {kMasked, [&](json& d) { ops(d)[4]["buffer"] = "n"; }, "not among its writes"},
      {kMasked, [&](json& d) { d["steps"][0]["reads"] = {"x"}; }, "not among its reads"},
      {kMasked, [&](json& d) { d["steps"][0]["bodies"][0]["vars"][1]["name"] = "p0"; }, "declared twice"},
      {kMasked, [&](json& d) { d["steps"][0]["bodies"][0]["vars"][0]["kind"] = "reduce"; }, "after a reduction variable"},
      {kMasked, [&](json& d) { d["steps"][0]["kind"] = "nop"; }, "neither generated nor a library call"},
      {kMasked, [&](json& d) { d["outputs"] = {"z"}; }, "unknown buffer"},
      {kMasked, [&](json& d) { d["buffers"]["y"]["base"] = "z"; }, "unknown buffer"},
      {kMasked, [&](json& d) { d["buffers"]["y"]["layout"] = "mutation"; }, "mutation of nothing"},
      {kMasked, [&](json& d) { d["buffers"]["y"]["base"] = "m"; d["buffers"]["m"]["base"] = "y"; }, "form a cycle"},
      {kWelford, [&](json& d) { ops(d)[3]["args"] = {1}; }, "several results"},
      {kWelford, [&](json& d) { ops(d)[2]["which"] = 3; }, "does not exist"},
      {kWelford, [&](json& d) { ops(d)[1]["type"] = "welford_combine"; }, "welford_combine of 1 arguments"},
      {kWelford, [&](json& d) { d["steps"][0]["bodies"][0]["vars"][1]["kind"] = "iter"; }, "without reduction variables"},
      {kScan, [&](json& d) { ops(d)[1]["block"]["params"] = {1}; }, "combine function"},
      {kScan, [&](json& d) { ops(d)[1]["block"]["ops"][0]["args"] = {1, 0}; }, "argument 0 is not defined"},
      {kIndirect, [&](json& d) { ops(d)[1]["symbol"] = "p0"; }, "defined twice"},
  };
  for (const Case& broken : cases) {
    json doc = document(broken.body);
    ASSERT_TRUE(read_program(doc).ok());
    broken.change(doc);
    const auto program = read_program(doc);
    ASSERT_FALSE(program.ok()) << broken.message;
    EXPECT_NE(program.error().to_string().find(broken.message), std::string::npos) << program.error().to_string();
  }
}

TEST(VerifierTest, TypesMustBeThoseOfTheTable) {
  auto program = read_program(document(kMasked)).value();
  program.steps[0].bodies[0].block.ops[2].dtype = DType::kFloat64;
  EXPECT_NE(verify(program).error().to_string().find("type float64 instead of bool"), std::string::npos);
}

TEST(TypeInferenceTest, HalfTypesComputeInFloatAndRoundOnRequest) {
  json doc = document(kMasked);
  doc["steps"][0]["bodies"][0]["ops"] = json::parse(R"([
    {"id": 0, "op": "load", "buffer": "h", "index": "p0"},
    {"id": 1, "op": "to_dtype", "args": [0], "dtype": "float16", "src_dtype": null, "use_compute_types": true},
    {"id": 2, "op": "to_dtype", "args": [0], "dtype": "float16", "src_dtype": "bfloat16", "use_compute_types": false},
    {"id": 3, "op": "add", "args": [2, 1]},
    {"id": 4, "op": "load", "buffer": "n", "index": "p0"},
    {"id": 5, "op": "sqrt", "args": [4]},
    {"id": 6, "op": "lt", "args": [4, 5]},
    {"id": 7, "op": "where", "args": [6, 4, 3]},
    {"id": 8, "op": "bitwise_and", "args": [6, 6]},
    {"id": 9, "op": "add", "args": [4, 6]},
    {"id": -1, "op": "store", "buffer": "m", "index": "p0", "args": [8]}])");
  const auto program = read_program(doc);
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  const auto& ops = program->steps[0].bodies[0].block.ops;
  const DType expected[] = {DType::kFloat32, DType::kFloat32, DType::kFloat16, DType::kFloat32, DType::kInt64, DType::kFloat32,
                            DType::kBool, DType::kFloat32, DType::kBool, DType::kInt64, DType::kBool};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(ops[i].dtype, expected[i]) << print(program->steps[0].bodies[0]);
  EXPECT_EQ(ops[1].src_dtype, DType::kFloat32);
  EXPECT_EQ(ops[2].src_dtype, DType::kBFloat16);
}

TEST(TypeInferenceTest, ArgMaxIsAnInteger) {
  json doc = document(kWelford);
  auto& ops = doc["steps"][0]["bodies"][0]["ops"];
  ops[1]["type"] = "argmax";
  ops.erase(2);
  ops[2]["args"] = {1};
  const auto program = read_program(doc);
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  EXPECT_EQ(program->steps[0].bodies[0].block.ops[1].dtypes, std::vector<DType>{DType::kInt64});
}

TEST(DTypeTest, PromotionFollowsTorch) {
  EXPECT_EQ(promote(DType::kBool, DType::kInt8), DType::kInt8);
  EXPECT_EQ(promote(DType::kUInt8, DType::kInt8), DType::kInt16);
  EXPECT_EQ(promote(DType::kUInt8, DType::kInt32), DType::kInt32);
  EXPECT_EQ(promote(DType::kInt64, DType::kFloat16), DType::kFloat32);
  EXPECT_EQ(promote(DType::kFloat64, DType::kBFloat16), DType::kFloat64);
  EXPECT_EQ(promote(DType::kBool, DType::kBool), DType::kBool);
  for (const char* name : {"float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"})
    EXPECT_STREQ(dtype_name(parse_dtype(name).value()), name);
  EXPECT_EQ(parse_dtype("complex64").error().code(), ErrorCode::kUnsupported);
}

TEST(OpTableTest, NamesRoundTrip) {
#define KO_X(name, text, arity, rule, op_class)              \
  EXPECT_EQ(parse_op(op_name(OpCode::name)), OpCode::name); \
  EXPECT_STREQ(op_name(OpCode::name), text);                 \
  EXPECT_EQ(op_arity(OpCode::name), arity);
  KERNELOPT_OPS(KO_X)
#undef KO_X
#define KO_X(name, text, results)                                               \
  EXPECT_EQ(parse_reduction(reduction_name(ReductionKind::name)), ReductionKind::name); \
  EXPECT_EQ(reduction_results(ReductionKind::name), results);
  KERNELOPT_REDUCTIONS(KO_X)
#undef KO_X
  EXPECT_FALSE(parse_op("no_such_op"));
  EXPECT_FALSE(parse_reduction("no_such_reduction"));
}

// Captured programs print as expected. KERNELOPT_UPDATE_GOLDENS=1 rewrites the expected text.
TEST(GoldenTest, CapturedProgramsPrintAsBefore) {
  for (const char* name : {"norms_and_pooling", "gather_pad_scatter"}) {
    const std::string folder = std::string(KERNELOPT_SOURCE_DIR) + "/tests/golden/ir/" + name;
    const auto program = read_program_file(folder + "/program.json");
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    std::string text;
    for (const auto& step : program->steps)
      for (const auto& body : step.bodies) text += print(body);
    if (std::getenv("KERNELOPT_UPDATE_GOLDENS")) std::ofstream(folder + "/expected.txt") << text;
    std::ifstream file(folder + "/expected.txt");
    std::stringstream expected;
    expected << file.rdbuf();
    EXPECT_EQ(text, expected.str()) << name;
    EXPECT_FALSE(text.empty());
  }
}

}  // namespace
}  // namespace kernelopt
