// The evaluator over fakes: what becomes of a candidate for each way in which it, or the machine, can fail.
#include "kernelopt/search/group_evaluator.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernelopt/gates/tolerances.h"
#include "kernelopt/search/fake_agents.h"
#include "kernelopt/worker/fake_worker.h"

namespace kernelopt {
namespace {

using nlohmann::json;

Candidate kernel(const std::string& body) {
  return fake_candidate("extern \"C\" void kernel(const float* b0, float* b1) {\n" + body + "\n}\n");
}

// A leaf comparison as the judge replies; `violations` elements out of tolerance.
json leaf(int64_t violations) {
  return {{"path", "b1"},          {"dtype", "float32"},   {"kind", "tensor"},        {"equal", violations == 0},
          {"shape_equal", true},   {"dtype_equal", true},  {"stride_equal", true},    {"nonfinite_equal", true},
          {"elements", 64},        {"max_abs", 0.5},       {"max_rel", 0.5},          {"violations", {violations, violations, violations}},
          {"d_opt", violations ? 0.5 : 1e-8},              {"d_ref", 1e-8},           {"d_opt_rows", 1e-8},
          {"d_ref_rows", 1e-8},    {"rms", 1.0},           {"ref_error", 1e-7}};
}

struct Verdicts final : GateObserver {
  std::vector<std::string> seen;
  void on_pass(const Gate1Pass&) override { seen.push_back("pass 1"); }
  void on_pass(const Gate2Pass&) override { seen.push_back("pass 2"); }
  void on_verdict(const Candidate&, const Rejected& rejected) override {
    seen.push_back(std::string("rejected ") + std::to_string(rejected.gate) + ": " + reject_reason_name(rejected.reason));
  }
  void on_verdict(const Candidate&, const Faulted& faulted) override {
    seen.push_back("error " + std::to_string(faulted.gate));
  }
  void on_timed(const Candidate&, const PairedSamples& samples) override {
    seen.push_back("timed " + std::to_string(samples.pairs() > 0));
  }
};

struct Bench {
  FakeWorker worker;
  FakeJudge judge;
  Verdicts verdicts;
  int64_t violations = 0;

  Bench() {
    worker.on_compile = [](const std::vector<json>& candidates) -> Result<std::vector<CompileOutcome>> {
      std::vector<CompileOutcome> outcomes(candidates.size());
      for (auto& outcome : outcomes)
        outcome.entry = {{"library", "k.so"}, {"seconds", 1.0}, {"cached", false}, {"symbols", {"kernel"}}};
      return outcomes;
    };
    worker.on_run_group = [](const GroupRequest&) -> Result<GroupOutput> {
      json reply = {{"outputs", {{"b1", "leaf"}}}, {"inputs_unchanged", true}, {"guards_intact", true},
                    {"deterministic", true},       {"unwritten", 0}};
      return GroupOutput{reply["outputs"], reply};
    };
    worker.on_time_group = [](const json&, const json&) -> Result<RawPairs> {
      return RawPairs{std::vector<double>(50, 2e-3), std::vector<double>(50, 1e-3), {}};
    };
    judge.on_group_inputs = [](const GroupRef&, uint64_t seed) -> Result<json> { return json{{"arg0", seed}}; };
    judge.on_compare_group = [this](const GroupRef&, uint64_t, const json&) -> Result<json> {
      return json{{"structure_equal", true}, {"leaves", {leaf(violations)}}};
    };
  }
  GroupEvaluator evaluator() {
    GroupContext context;
    context.group = {0, "graph0.json", {"op0"}, {"arg0", "buf0"}};
    context.baseline = json::object();
    context.fingerprint = "device";
    return GroupEvaluator(worker, judge, std::move(context), &verdicts);
  }
};

TEST(GroupEvaluator, ARightCandidateIsTimedAndQualified) {
  Bench bench;
  auto evaluator = bench.evaluator();
  const auto candidate = kernel("for (int i = 0; i < 64; ++i) b1[i] = b0[i];");
  auto result = evaluator.evaluate({candidate});
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  ASSERT_EQ(result->front().state, AttemptState::kPassed) << result->front().reason;
  EXPECT_NEAR(result->front().measured->ratio, 0.5, 1e-9);
  EXPECT_EQ(bench.verdicts.seen, (std::vector<std::string>{"pass 1", "pass 2", "timed 1"}));
  // Passes are minted from what was seen, as often as they are needed.
  const auto& qualified = evaluator.qualified().at(candidate.digest());
  for (int i = 0; i < 2; ++i) {
    auto pass = qualified.pass();
    ASSERT_TRUE(pass.ok());
    EXPECT_EQ(pass->digest(), candidate.digest());
  }
}

// What the release cannot want is spared the other inputs, and has no pass; asked for all the same, it goes through all of them.
TEST(GroupEvaluator, ASlowCandidateIsCheckedInFullOnlyWhenItIsWanted) {
  Bench bench;
  double seconds = 1e-3;
  bench.worker.on_time_group = [&](const json&, const json&) -> Result<RawPairs> {
    return RawPairs{std::vector<double>(50, 2e-3), std::vector<double>(50, seconds), {}};
  };
  const auto checks = [&] { return std::count(bench.worker.calls.begin(), bench.worker.calls.end(), "run_group"); };
  auto evaluator = bench.evaluator();
  int made = 0;
  const auto evaluate = [&](double candidate_seconds) {
    seconds = candidate_seconds;
    return evaluator.evaluate({kernel("b1[" + std::to_string(made++) + "] = b0[0];")}).value().front();
  };
  const auto before = checks();
  const auto slow = evaluate(3e-3);
  EXPECT_EQ(slow.state, AttemptState::kSlower);
  EXPECT_NEAR(slow.measured->ratio, 1.5, 1e-9);
  EXPECT_EQ(checks() - before, 1);
  EXPECT_TRUE(evaluator.qualified().empty());
  EXPECT_EQ(bench.verdicts.seen, (std::vector<std::string>{"pass 1", "timed 1"}));

  // Faster than the compiler's, but another is faster still.
  for (const double s : {1.5e-3, 1.1e-3, 0.9e-3}) EXPECT_EQ(evaluate(s).state, AttemptState::kPassed);
  EXPECT_EQ(evaluate(1.0e-3).state, AttemptState::kSlower);
  EXPECT_EQ(evaluator.qualified().size(), 3u);

  const auto again = checks();
  const auto wanted = kernel("b1[0] = b0[0];");
  EXPECT_TRUE(evaluator.requalify(wanted).value().passed());
  EXPECT_EQ(checks() - again, tolerance::kMinSeeds);
  EXPECT_EQ(evaluator.qualified().count(wanted.digest()), 1u);
}

// It lost its race after one input; the second shows that it is wrong. Asked again, it is not run again.
TEST(GroupEvaluator, WhatLostItsRaceCanStillBeRefused) {
  Bench bench;
  bench.worker.on_time_group = [](const json&, const json&) -> Result<RawPairs> {
    return RawPairs{std::vector<double>(50, 2e-3), std::vector<double>(50, 3e-3), {}};
  };
  bench.judge.on_compare_group = [](const GroupRef&, uint64_t seed, const json&) -> Result<json> {
    return json{{"structure_equal", true}, {"leaves", {leaf(seed == 1 ? 0 : 1)}}};
  };
  auto evaluator = bench.evaluator();
  const auto candidate = kernel("b1[0] = b0[0];");
  ASSERT_EQ(evaluator.evaluate({candidate}).value().front().state, AttemptState::kSlower);
  for (int i = 0; i < 2; ++i) {
    const auto calls = bench.worker.calls.size();
    const auto decision = evaluator.requalify(candidate);
    ASSERT_TRUE(decision.ok());
    ASSERT_NE(decision->rejected(), nullptr);
    EXPECT_EQ(decision->rejected()->reason, RejectReason::kTolerance);
    EXPECT_EQ(bench.worker.calls.size() > calls, i == 0);
  }
  EXPECT_TRUE(evaluator.qualified().empty());
  EXPECT_EQ(bench.verdicts.seen.back(), "rejected 2: out of tolerance");
}

TEST(GroupEvaluator, AWrongCandidateIsNeverTimed) {
  Bench bench;
  bench.violations = 1;
  bench.worker.on_time_group = [](const json&, const json&) -> Result<RawPairs> {
    ADD_FAILURE() << "timed";
    return not_faked("time_group");
  };
  auto evaluator = bench.evaluator();
  auto result = evaluator.evaluate({kernel("b1[0] = 0;")});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->front().state, AttemptState::kRejected);
  EXPECT_FALSE(result->front().measured.has_value());
  EXPECT_TRUE(evaluator.qualified().empty());
  EXPECT_EQ(bench.verdicts.seen.back(), "rejected 2: out of tolerance");
}

TEST(GroupEvaluator, ForbiddenSourceIsNotEvenCompiled) {
  Bench bench;
  auto evaluator = bench.evaluator();
  auto result = evaluator.evaluate({kernel("system(\"true\");")});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->front().state, AttemptState::kRejected);
  EXPECT_TRUE(std::find(bench.worker.calls.begin(), bench.worker.calls.end(), "compile") == bench.worker.calls.end());
}

TEST(GroupEvaluator, ADyingCandidateCostsItselfOnly) {
  Bench bench;
  const auto good = kernel("b1[0] = b0[0];"), bad = kernel("b1[0] = b0[1];");
  int deaths = 0;
  const auto run = bench.worker.on_run_group;
  bench.worker.on_run_group = [&](const GroupRequest& request) -> Result<GroupOutput> {
    if (request.candidate.at("digest") != bad.digest()) return run(request);
    ++deaths;
    return Error(ErrorCode::kWorkerDied, "the worker was killed by signal 11");
  };
  auto evaluator = bench.evaluator();
  auto result = evaluator.evaluate({bad, good});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ((*result)[0].state, AttemptState::kRejected);
  EXPECT_EQ((*result)[1].state, AttemptState::kPassed);
  EXPECT_EQ(deaths, tolerance::kMaxAttempts);  // once could have been the machine
}

TEST(GroupEvaluator, TheJudgesFailureIsNotTheCandidatesFault) {
  Bench bench;
  bench.judge.on_compare_group = [](const GroupRef&, uint64_t, const json&) -> Result<json> {
    return Error(ErrorCode::kWorkerDied, "the judge was killed by signal 9");
  };
  auto evaluator = bench.evaluator();
  auto result = evaluator.evaluate({kernel("b1[0] = b0[0];")});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->front().state, AttemptState::kError);
  EXPECT_TRUE(evaluator.qualified().empty());
}

TEST(GroupEvaluator, FallingOverWhileTimedUnqualifies) {
  Bench bench;
  bench.worker.on_time_group = [](const json&, const json&) -> Result<RawPairs> {
    return Error(ErrorCode::kTimeout, "the worker did not answer in time");
  };
  auto evaluator = bench.evaluator();
  auto result = evaluator.evaluate({kernel("b1[0] = b0[0];")});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->front().state, AttemptState::kRejected);
  EXPECT_TRUE(evaluator.qualified().empty());
}

TEST(GroupEvaluator, AnInterruptEndsTheBatch) {
  Bench bench;
  bench.worker.on_compile = [](const std::vector<json>&) -> Result<std::vector<CompileOutcome>> {
    return Error(ErrorCode::kInterrupted, "interrupted");
  };
  auto evaluator = bench.evaluator();
  EXPECT_EQ(evaluator.evaluate({kernel("b1[0] = b0[0];")}).error().code(), ErrorCode::kInterrupted);
}

}  // namespace
}  // namespace kernelopt
