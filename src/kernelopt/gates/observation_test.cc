#include "kernelopt/gates/observation.h"

#include <cmath>

#include <gtest/gtest.h>

namespace kernelopt {
namespace {

using nlohmann::json;

// As in docs/protocol.md.
json sample_leaf() {
  return json::parse(R"({"path": "outputs/0", "dtype": "float32", "kind": "tensor", "equal": false, "shape_equal": true,
    "dtype_equal": true, "stride_equal": false, "nonfinite_equal": true, "elements": 4096, "max_abs": 1e-7, "max_rel": 1e-6,
    "violations": [0, 2, 0], "d_opt": 2e-8, "d_ref": 3e-8, "d_opt_rows": 1e-7, "d_ref_rows": 1e-7, "rms": 0.5,
    "ref_error": 1e-7, "later": "ignored"})");
}

TEST(LeafComparison, ReadsTheProtocolsShapeAndWritesItBack) {
  const auto leaf = read_leaf_comparison(sample_leaf());
  ASSERT_TRUE(leaf.ok());
  EXPECT_EQ(leaf->dtype, DType::kFloat32);
  EXPECT_FALSE(leaf->stride_equal);
  EXPECT_EQ(leaf->violations, (std::vector<int64_t>{0, 2, 0}));
  EXPECT_EQ(leaf->d_opt, 2e-8);
  json expected = sample_leaf();
  expected.erase("later");
  EXPECT_EQ(leaf_to_json(*leaf), expected);
}

TEST(LeafComparison, NonFiniteNumbersTravelAsText) {
  json leaf = sample_leaf();
  leaf["d_opt"] = "inf";
  leaf["max_abs"] = "nan";
  const auto read = read_leaf_comparison(leaf);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(std::isinf(*read->d_opt));
  EXPECT_TRUE(std::isnan(read->max_abs));
  EXPECT_EQ(leaf_to_json(*read)["d_opt"], "inf");
}

TEST(LeafComparison, RefusesWhatDoesNotAnswer) {
  for (const char* field : {"path", "kind", "equal", "dtype", "shape_equal", "dtype_equal", "nonfinite_equal", "elements",
                            "violations"}) {
    json leaf = sample_leaf();
    leaf.erase(field);
    EXPECT_FALSE(read_leaf_comparison(leaf).ok()) << field;
    leaf[field] = json::object();
    EXPECT_FALSE(read_leaf_comparison(leaf).ok()) << field;
  }
  json leaf = sample_leaf();
  leaf["violations"] = {0, 0};
  EXPECT_FALSE(read_leaf_comparison(leaf).ok());
  leaf["violations"] = {0, 0, 0.5};
  EXPECT_FALSE(read_leaf_comparison(leaf).ok());
  EXPECT_FALSE(read_leaf_comparison(json::array()).ok());
}

TEST(LeafComparison, ValuesIntegersAndUnknownTypes) {
  const auto value = read_leaf_comparison(json::parse(R"({"path": "1", "kind": "value", "dtype": "int", "equal": true})"));
  ASSERT_TRUE(value.ok());
  EXPECT_FALSE(value->is_tensor);
  json leaf = sample_leaf();
  leaf["dtype"] = "complex64";
  leaf["d_opt"] = nullptr;
  leaf["d_ref"] = nullptr;
  const auto read = read_leaf_comparison(leaf);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->dtype, std::nullopt);
  EXPECT_EQ(read->d_opt, std::nullopt);
  leaf["shape_equal"] = false;
  leaf.erase("violations");
  EXPECT_TRUE(read_leaf_comparison(leaf).ok());
}

TEST(Replies, CompileRunStitchAndReference) {
  const auto report = read_compile_report(json::parse(R"({"library": "k.so", "seconds": 1.9, "symbols": ["kernel"]})"));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->symbols, std::vector<std::string>{"kernel"});
  const auto error = read_compile_report(json::parse(R"({"error": {"kind": "candidate", "message": "no", "detail": "line 3"}})"));
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().code(), ErrorCode::kCandidate);
  EXPECT_NE(error.error().message().find("line 3"), std::string::npos);
  EXPECT_EQ(read_compile_report(json::parse(R"({"error": {"kind": "environment", "message": "no g++"}})")).error().code(),
            ErrorCode::kEnvironment);
  EXPECT_FALSE(read_compile_report(json::parse(R"({"library": "k.so", "seconds": 1.9})")).ok());

  EXPECT_TRUE(report->launches.empty());
  json triton = json::parse(R"({"library": "k.py", "seconds": 1.9, "symbols": ["kernel0"], "kernels": [
    {"name": "kernel0", "programs": 528, "warps": 2, "stages": 1, "cooperative": true, "registers": 167, "stack_bytes": 32,
     "shared_bytes": 8}]})");
  const auto resources = read_compile_report(triton);
  ASSERT_TRUE(resources.ok());
  ASSERT_EQ(resources->launches.size(), 1u);
  const LaunchResources& launch = resources->launches[0];
  EXPECT_EQ(launch.kernel, "kernel0");
  EXPECT_EQ(launch.programs, 528);
  EXPECT_EQ(launch.warps, 2);
  EXPECT_TRUE(launch.cooperative);
  EXPECT_EQ(launch.registers, 167);
  EXPECT_EQ(launch.stack_bytes, 32);
  EXPECT_EQ(launch.shared_bytes, 8);
  triton["kernels"][0]["registers"] = nullptr;
  EXPECT_EQ(read_compile_report(triton).error().code(), ErrorCode::kInternal);

  const json run = json::parse(R"({"outputs": {}, "inputs_unchanged": true, "guards_intact": true, "deterministic": false,
    "unwritten": 4})");
  const json comparison = {{"structure_equal", true}, {"leaves", {sample_leaf()}}};
  const auto group = read_group_run(7, "ordinary", 2, run, comparison);
  ASSERT_TRUE(group.ok());
  EXPECT_FALSE(group->deterministic);
  EXPECT_EQ(group->unwritten, 4);
  EXPECT_EQ(group->comparison.leaves.size(), 1u);
  EXPECT_FALSE(read_group_run(7, "ordinary", 2, json::object(), comparison).ok());
  EXPECT_FALSE(read_group_run(7, "ordinary", 2, run, json::object()).ok());

  const auto replaced = read_replaced(json::parse(R"({"handle": "m1", "replaced": [{"graph": 0, "steps": ["op0"], "digest": "d"}]})"));
  ASSERT_TRUE(replaced.ok());
  EXPECT_EQ((*replaced)[0].digest, "d");
  EXPECT_FALSE(read_replaced(json::parse(R"({"replaced": [{}]})")).ok());

  const auto facts = read_reference_facts(json::parse(
      R"({"deterministic": false, "reasons": ["noise"], "constant_output": false, "independent_of_inputs": true, "leaves": []})"));
  ASSERT_TRUE(facts.ok());
  EXPECT_TRUE(facts->independent_of_inputs);
  EXPECT_FALSE(read_reference_facts(json::object()).ok());
}

}  // namespace
}  // namespace kernelopt
