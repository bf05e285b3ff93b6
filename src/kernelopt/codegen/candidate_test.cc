// Documents of candidates: what is written reads back as the same candidate.
#include "kernelopt/codegen/candidate.h"

#include <gtest/gtest.h>

namespace kernelopt {
namespace {

CandidateParts parts() {
  CandidateParts result;
  result.language = "triton";
  result.group = "g";
  result.kernels = {{"narrow", "import triton\n", {{"b0", DType::kFloat32, ParamRole::kIn}, {"x16", DType::kFloat16, ParamRole::kScratch}}, {}},
                    {"convolve", "", {{"x16", DType::kFloat16, ParamRole::kScratch}}, LibraryCall{"convolution", {{"stride", {1, 1}}}}}};
  Launch launch;
  launch.kernel = "narrow";
  launch.args = {"b0", "x16"};
  launch.programs = 12;
  launch.warps = 8;
  launch.stages = 2;
  launch.cooperative = true;
  Launch call;
  call.kernel = "convolve";
  call.args = {"x16"};
  result.launches = {launch, call};
  result.scratch = {{"x16", DType::kFloat16, 64, true}, {"y16", DType::kFloat16, 32, false, true}};
  result.formats = {"fp16 for tf32"};
  return result;
}

TEST(CandidateDocument, ReadsBackAsTheSame) {
  const Candidate written(parts());
  const auto document = written.to_json();
  EXPECT_FALSE(document["kernels"][1].contains("source"));
  EXPECT_FALSE(document["launches"][1].contains("programs"));
  const auto read = read_candidate(document);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(read->digest(), written.digest());
  EXPECT_EQ(read->to_json(), document);
  EXPECT_TRUE(read->parts().launches[0].cooperative);
  EXPECT_TRUE(read->parts().scratch[1].returned);
}

TEST(CandidateDocument, TheDigestFollowsEveryPartThatRuns) {
  const auto digest_with = [](auto change) {
    CandidateParts changed = parts();
    change(changed);
    return Candidate(std::move(changed)).digest();
  };
  const std::string digest = Candidate(parts()).digest();
  EXPECT_NE(digest, digest_with([](auto& p) { p.launches[0].programs = 13; }));
  EXPECT_NE(digest, digest_with([](auto& p) { p.launches[0].cooperative = false; }));
  EXPECT_NE(digest, digest_with([](auto& p) { p.scratch[1].returned = false; }));
  EXPECT_NE(digest, digest_with([](auto& p) { p.kernels[1].library->numbers["stride"] = {2, 2}; }));
  EXPECT_EQ(digest, digest_with([](auto& p) { p.plan = {{"note", "for people"}}; }));
}

TEST(CandidateDocument, WhatIsNoneIsRefused) {
  for (const char* text : {"{}", R"({"language": "cpp", "group": "g", "kernels": [{"name": "kernel"}], "launches": [], "scratch": []})",
                           R"({"language": 3, "group": "g", "kernels": [], "launches": [], "scratch": []})"}) {
    const auto read = read_candidate(nlohmann::json::parse(text));
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code(), ErrorCode::kBadInput);
  }
}

}  // namespace
}  // namespace kernelopt
