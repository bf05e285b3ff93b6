#include "kernelopt/gates/audit.h"

#include <gtest/gtest.h>

#include "kernelopt/gates/fake_observations.h"

namespace kernelopt {
namespace {

using namespace testing;

const EagerFallback* fallback(const std::variant<BaselineSound, EagerFallback, Faulted>& outcome) {
  return std::get_if<EagerFallback>(&outcome);
}

ModelRun wrong_run(uint64_t seed) {
  ModelRun run{seed, 1, good_comparison()};
  run.comparison.leaves[0].violations = {5, 5, 5};
  run.comparison.leaves[0].d_opt = 1;
  return run;
}

Comparison wrong_group() {
  Comparison comparison = good_comparison();
  comparison.leaves[0].violations = {9, 9, 9};
  return comparison;
}

TEST(BaselineAudit, SoundWhenTheCompilerAgrees) {
  const auto outcome = BaselineAudit::decide(good_audit());
  ASSERT_TRUE(std::holds_alternative<BaselineSound>(outcome));
  EXPECT_EQ(std::get<BaselineSound>(outcome).fingerprint(), kDevice);
  EXPECT_TRUE(std::get<BaselineSound>(outcome).excluded_groups().empty());
}

TEST(BaselineAudit, AWrongCompilerShipsEager) {
  AuditObservation audit = good_audit();
  audit.runs[1] = {wrong_run(22), 1};
  const auto outcome = BaselineAudit::decide(audit);
  ASSERT_NE(fallback(outcome), nullptr);
  EXPECT_EQ(fallback(outcome)->reason, EagerReason::kDisagrees);
  EXPECT_EQ(fallback(outcome)->data["seed"], 22);
  EXPECT_EQ(fallback(outcome)->data["failures"].size(), 1u);
}

// Within allclose, but a hundred times as far from float64 as eager.
TEST(BaselineAudit, LostDigitsAreNamed) {
  for (const auto& [d_opt, lost] : {std::pair{2.6e-6, true}, {1.2e-6, false}, {8e-7, false}}) {
    AuditObservation audit = good_audit();
    LeafComparison& leaf = audit.runs[1].result->comparison.leaves[0];
    leaf.d_opt = d_opt;
    leaf.d_ref = d_opt < 1e-6 ? 1e-9 : 2.6e-8;  // 1e-9 counts as 1e-8
    const auto outcome = BaselineAudit::decide(audit);
    ASSERT_TRUE(std::holds_alternative<BaselineSound>(outcome));
    const auto& sound = std::get<BaselineSound>(outcome);
    EXPECT_EQ(sound.inaccurate(), lost ? std::vector<std::string>{leaf.path} : std::vector<std::string>{}) << d_opt;
    EXPECT_EQ(sound.evidence().contains("inaccurate"), lost);
  }
}

TEST(BaselineAudit, AFailingCompilerShipsEager) {
  for (const Error& error : {Error(ErrorCode::kCandidate, "raised"), Error(ErrorCode::kWorkerDied, "died"),
                             Error(ErrorCode::kTimeout, "late")}) {
    AuditObservation audit = good_audit();
    audit.runs[0] = {error, 2};
    const auto outcome = BaselineAudit::decide(audit);
    ASSERT_NE(fallback(outcome), nullptr);
    EXPECT_EQ(fallback(outcome)->reason, EagerReason::kCompilerFailed);
  }
  AuditObservation audit = good_audit();
  audit.runs[0] = {Error(ErrorCode::kWorkerDied, "died"), 1};
  EXPECT_TRUE(std::holds_alternative<Faulted>(BaselineAudit::decide(audit)));
}

TEST(BaselineAudit, EagerThatDisagreesWithItselfCannotBeChecked) {
  AuditObservation audit = good_audit();
  audit.references[2] = {ReferenceFacts{false, {"dropout without a seed"}, false, false}, 1};
  const auto outcome = BaselineAudit::decide(audit);
  ASSERT_NE(fallback(outcome), nullptr);
  EXPECT_EQ(fallback(outcome)->reason, EagerReason::kUnverifiable);
  EXPECT_EQ(fallback(outcome)->message, "dropout without a seed");
}

TEST(BaselineAudit, AGroupIsExcludedOrMakesTheModelEager) {
  AuditObservation audit = good_audit();
  audit.groups = {{"right", true, {{good_comparison(), 1}}},
                  {"unconfirmed", false, {{good_comparison(), 1}, {wrong_group(), 1}}},
                  {"failed", true, {{Error(ErrorCode::kIo, "disk full"), 1}}},
                  {"unseen", true, {}}};
  const auto outcome = BaselineAudit::decide(audit);
  ASSERT_TRUE(std::holds_alternative<BaselineSound>(outcome));
  const auto& sound = std::get<BaselineSound>(outcome);
  EXPECT_FALSE(sound.excludes("right"));
  EXPECT_TRUE(sound.excludes("unconfirmed"));
  EXPECT_TRUE(sound.excludes("failed"));
  EXPECT_TRUE(sound.excludes("unseen"));
  EXPECT_EQ(sound.evidence()["excluded"].size(), 3u);

  audit.groups.push_back({"wrong", true, {{wrong_group(), 1}}});
  const auto wrong = BaselineAudit::decide(audit);
  ASSERT_NE(fallback(wrong), nullptr);
  EXPECT_EQ(fallback(wrong)->data["group"], "wrong");
}

TEST(BaselineAudit, FewSeedsAndMissingReferencesAreNoSoundness) {
  AuditObservation audit = good_audit();
  audit.runs.pop_back();
  EXPECT_TRUE(std::holds_alternative<Faulted>(BaselineAudit::decide(audit)));
  audit = good_audit();
  audit.references.clear();
  EXPECT_TRUE(std::holds_alternative<Faulted>(BaselineAudit::decide(audit)));
  audit = good_audit();
  audit.references[0] = {Error(ErrorCode::kIo, "disk full"), 1};
  EXPECT_TRUE(std::holds_alternative<Faulted>(BaselineAudit::decide(audit)));
  audit = good_audit();
  audit.runs[2] = audit.runs[0];
  EXPECT_TRUE(std::holds_alternative<Faulted>(BaselineAudit::decide(audit)));
}

}  // namespace
}  // namespace kernelopt
