#include "kernelopt/gates/accuracy.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernelopt/gates/fake_observations.h"

namespace kernelopt {
namespace {

using testing::good_leaf;

constexpr auto kRewrite = Change::kRewrite;
constexpr auto kChallenge = Change::kChallenge;
constexpr auto kAccurate = Precision::kAccurate;
constexpr auto kPaper = Precision::kPaper;

LeafComparison with_rho(double rho, std::vector<int64_t> violations = {0, 0, 0}) {
  LeafComparison leaf = good_leaf();
  leaf.d_ref = leaf.d_ref_rows = 1e-6;
  leaf.d_opt = leaf.d_opt_rows = rho * 1e-6;
  leaf.violations = std::move(violations);
  return leaf;
}

std::optional<RejectReason> model(const LeafComparison& leaf, Precision precision = kAccurate, Change change = kRewrite) {
  return judge_leaf(leaf, model_rule(precision, change)).failure;
}
std::optional<RejectReason> group(const LeafComparison& leaf, Precision precision = kAccurate, Change change = kRewrite) {
  return judge_leaf(leaf, group_rule(precision, change)).failure;
}

TEST(Accuracy, EachToleranceHasItsGate) {
  // Out of 1e-4 only: fine for the group; the model needs float64's word.
  EXPECT_EQ(group(with_rho(100, {0, 7, 0})), std::nullopt);
  EXPECT_EQ(model(with_rho(100, {0, 7, 0})), RejectReason::kTolerance);
  EXPECT_EQ(model(with_rho(3.9, {0, 7, 0})), std::nullopt);
  EXPECT_EQ(model(with_rho(4.1, {0, 7, 0})), RejectReason::kTolerance);
  // The group has no float64 test for float32.
  EXPECT_EQ(group(with_rho(0.5, {1, 7, 0})), RejectReason::kTolerance);
  EXPECT_EQ(model(with_rho(100, {0, 0, 0})), std::nullopt);
}

TEST(Accuracy, PaperAcceptsTen) {
  EXPECT_EQ(model(with_rho(9.9, {1, 1, 0}), kPaper), std::nullopt);
  EXPECT_EQ(model(with_rho(10.1, {1, 1, 0}), kPaper), RejectReason::kTolerance);
  EXPECT_EQ(model(with_rho(9.9, {1, 1, 0}), kPaper, kChallenge), std::nullopt);
  EXPECT_EQ(model(with_rho(50, {0, 0, 0}), kPaper, kChallenge), std::nullopt);
}

TEST(Accuracy, ChallengesMeetTheirRhoEvenWhereAllcloseHolds) {
  for (Precision precision : {Precision::kStrict, kAccurate}) {
    EXPECT_EQ(model(with_rho(1.4), precision, kChallenge), std::nullopt);
    EXPECT_EQ(model(with_rho(1.6), precision, kChallenge), RejectReason::kRho);
    EXPECT_EQ(group(with_rho(1.6), precision, kChallenge), RejectReason::kRho);
    EXPECT_EQ(group(with_rho(1.4, {3, 3, 3}), precision, kChallenge), RejectReason::kTolerance);
    EXPECT_EQ(model(with_rho(1.4, {3, 3, 3}), precision, kChallenge), std::nullopt);
  }
  // The worst rows count, and a challenge without them has no rho.
  LeafComparison rows = with_rho(1.0);
  rows.d_opt_rows = 2e-6;
  EXPECT_EQ(model(rows, kAccurate, kChallenge), RejectReason::kRho);
  EXPECT_EQ(model(rows, kAccurate, kRewrite), std::nullopt);
  rows.d_opt_rows.reset();
  EXPECT_EQ(model(rows, kAccurate, kChallenge), RejectReason::kRho);
}

TEST(Accuracy, HalfOutputsHaveTheirOwnToleranceAndTheFloat64TestInBothGates) {
  for (DType half : {DType::kFloat16, DType::kBFloat16}) {
    LeafComparison leaf = with_rho(100, {50, 90, 0});
    leaf.dtype = half;
    leaf.d_ref = 0.01;
    leaf.d_opt = 1.0;
    EXPECT_EQ(group(leaf), std::nullopt);
    EXPECT_EQ(model(leaf), std::nullopt);
    leaf.violations = {50, 90, 1};
    EXPECT_EQ(group(leaf), RejectReason::kTolerance);
    EXPECT_EQ(model(leaf), RejectReason::kTolerance);
    leaf.d_opt = 0.03;
    EXPECT_EQ(group(leaf), std::nullopt);
    EXPECT_EQ(model(leaf), std::nullopt);
  }
}

TEST(Accuracy, DistancesBelowTheRoundingUnitAreEqual) {
  LeafComparison leaf = good_leaf();
  leaf.violations = {0, 1, 0};
  leaf.d_ref = 0;
  leaf.d_opt = 5e-8;  // 2^-24 is 6e-8
  EXPECT_EQ(leaf_rho(leaf, kRewrite), 5.0);  // d_ref counts as 1e-8
  EXPECT_EQ(model(leaf), std::nullopt);
  leaf.d_opt = 7e-8;
  EXPECT_EQ(model(leaf), RejectReason::kTolerance);
  EXPECT_EQ(rounding_unit(DType::kFloat64), std::ldexp(1.0, -53));
}

TEST(Accuracy, IntegersBooleansAndUnknownTypesMustBeEqual) {
  for (std::optional<DType> type : {std::optional(DType::kInt64), std::optional(DType::kBool), std::optional<DType>()}) {
    LeafComparison leaf = good_leaf();
    leaf.dtype = type;
    leaf.equal = false;
    EXPECT_EQ(model(leaf), RejectReason::kUnequal);
    EXPECT_EQ(group(leaf), RejectReason::kUnequal);
    leaf.equal = true;
    EXPECT_EQ(model(leaf), std::nullopt);
  }
  LeafComparison value = good_leaf();
  value.is_tensor = false;
  value.equal = false;
  EXPECT_EQ(model(value), RejectReason::kUnequal);
}

TEST(Accuracy, ShapeTypeAndNonFinitePlacesComeFirst) {
  LeafComparison leaf = good_leaf();
  leaf.nonfinite_equal = false;
  EXPECT_EQ(model(leaf), RejectReason::kNonFinite);
  EXPECT_EQ(group(leaf, kPaper), RejectReason::kNonFinite);
  leaf.dtype_equal = false;
  EXPECT_EQ(model(leaf), RejectReason::kDType);
  leaf.shape_equal = false;
  EXPECT_EQ(model(leaf), RejectReason::kShape);
}

TEST(Accuracy, NaNNeverPasses) {
  LeafComparison leaf = with_rho(1, {1, 1, 1});
  leaf.d_opt = std::nan("");
  EXPECT_EQ(model(leaf), RejectReason::kTolerance);
  leaf.d_opt = 1e-6;
  leaf.d_ref = std::nan("");
  EXPECT_NE(model(leaf, kAccurate, kChallenge), std::nullopt);
  leaf.d_ref = 1e-6;
  leaf.d_opt_rows = std::nan("");
  EXPECT_EQ(model(leaf, kAccurate, kChallenge), RejectReason::kRho);
  leaf.violations.clear();  // not answered is not passed
  EXPECT_NE(model(leaf), RejectReason::kRho);
  leaf.d_opt = 1;
  EXPECT_EQ(model(leaf), RejectReason::kTolerance);
}

TEST(Accuracy, AComparisonIsItsWorstLeaf) {
  Comparison comparison{true, {with_rho(0.5), with_rho(2.5), with_rho(1)}};
  comparison.leaves[1].path = "outputs/1";
  auto verdict = judge_comparison(comparison, model_rule(kAccurate, kRewrite));
  EXPECT_EQ(verdict.failure, std::nullopt);
  EXPECT_DOUBLE_EQ(*verdict.rho, 2.5);
  EXPECT_EQ(verdict.evidence["worst"]["path"], "outputs/1");

  comparison.leaves[2].shape_equal = false;
  verdict = judge_comparison(comparison, model_rule(kAccurate, kRewrite));
  EXPECT_EQ(verdict.failure, RejectReason::kShape);
  EXPECT_EQ(verdict.evidence["failed"], 1);
  EXPECT_DOUBLE_EQ(*verdict.rho, 2.5);

  EXPECT_EQ(judge_comparison({false, comparison.leaves}, model_rule(kAccurate, kRewrite)).failure, RejectReason::kStructure);
  EXPECT_EQ(judge_comparison({true, {}}, model_rule(kAccurate, kRewrite)).failure, RejectReason::kStructure);
}

}  // namespace
}  // namespace kernelopt
