// Everything here runs on synthetic samples with known truth.
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernelopt/measure/statistics.h"
#include "kernelopt/measure/stopping.h"

namespace kernelopt {
namespace {

// Log-normal noise around `scale`, plus a drift that both sides of a pair share.
PairedSamples synthetic(size_t pairs, double ratio, double noise, uint64_t seed, double drift = 0) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(0, noise);
  Samples baseline, candidate;
  for (size_t i = 0; i < pairs; ++i) {
    const double level = 1e-3 * (1 + drift * std::sin(0.05 * static_cast<double>(i)));
    baseline.emplace_back(level * std::exp(normal(generator)));
    candidate.emplace_back(ratio * level * std::exp(normal(generator)));
  }
  return PairedSamples::create(std::move(baseline), std::move(candidate)).value();
}

Samples of(std::initializer_list<double> values) {
  Samples samples;
  for (double value : values) samples.emplace_back(value);
  return samples;
}

TEST(Samples, RefusesWhatIsNoTime) {
  EXPECT_FALSE(PairedSamples::create({}, {}).ok());
  EXPECT_FALSE(PairedSamples::create(of({1, 2}), of({1})).ok());
  EXPECT_FALSE(PairedSamples::create(of({1}), of({0})).ok());
  EXPECT_FALSE(PairedSamples::create(of({-1}), of({1})).ok());
  EXPECT_FALSE(PairedSamples::create(of({1}), of({std::numeric_limits<double>::infinity()})).ok());
  EXPECT_FALSE(PairedSamples::create(of({std::nan("")}), of({1})).ok());
  EXPECT_TRUE(PairedSamples::create(of({1}), of({2})).ok());
}

TEST(Samples, ReadsTheProtocolsShape) {
  auto paired = read_paired_samples(nlohmann::json::parse("[[1e-3, 2e-3], [3e-3, 4e-3]]"));
  ASSERT_TRUE(paired.ok());
  EXPECT_EQ(paired->pairs(), 2u);
  EXPECT_DOUBLE_EQ(paired->candidate()[1].count(), 4e-3);
  EXPECT_DOUBLE_EQ(paired->total().count(), 10e-3);
  EXPECT_EQ(samples_to_json(paired->baseline()).dump(), "[0.001,0.002]");
  for (const char* bad : {"[[1e-3]]", "[[1e-3], [\"inf\"]]", "[[1e-3], [null]]", "[[1], [1], [1]]", "{}", "[[], []]"})
    EXPECT_FALSE(read_paired_samples(nlohmann::json::parse(bad)).ok()) << bad;
}

TEST(Samples, ExtendsWithItself) {
  auto paired = PairedSamples::create(of({1, 2}), of({3, 4})).value();
  paired.extend(paired);
  EXPECT_EQ(paired.pairs(), 4u);
  EXPECT_DOUBLE_EQ(paired.candidate()[3].count(), 4);
}

TEST(Median, OddEvenAndOutliers) {
  EXPECT_DOUBLE_EQ(median(of({3, 1, 2})).count(), 2);
  EXPECT_DOUBLE_EQ(median(of({4, 1, 3, 2})).count(), 2.5);
  EXPECT_DOUBLE_EQ(median(of({1, 1, 1, 1e9})).count(), 1);
  EXPECT_DOUBLE_EQ(median(of({7})).count(), 7);
}

TEST(Bootstrap, IsAFunctionOfItsSeed) {
  const auto samples = synthetic(101, 0.9, 0.05, 1);
  const auto a = estimate_ratio(samples, {.seed = 5}), b = estimate_ratio(samples, {.seed = 5});
  EXPECT_EQ(a.interval.low, b.interval.low);
  EXPECT_EQ(a.interval.high, b.interval.high);
  const auto other = estimate_ratio(samples, {.seed = 6});
  EXPECT_NE(a.interval.low, other.interval.low);
  EXPECT_EQ(a.ratio, other.ratio);
}

TEST(Bootstrap, CoversTheTruthAboutAsOftenAsItSays) {
  for (double ratio : {0.8, 1.0, 1.1}) {
    int covered = 0;
    constexpr int kRaces = 200;
    for (int race = 0; race < kRaces; ++race) {
      const auto samples = synthetic(60, ratio, 0.05, 1000 + race, 0.2);
      covered += estimate_ratio(samples, {.seed = static_cast<uint64_t>(race), .resamples = 300}).interval.contains(ratio);
    }
    EXPECT_GE(covered, kRaces * 88 / 100) << ratio;
  }
}

TEST(Bootstrap, NarrowsWithMorePairsAndSharedDriftCancels) {
  const auto few = estimate_ratio(synthetic(30, 0.9, 0.05, 3), {});
  const auto many = estimate_ratio(synthetic(3000, 0.9, 0.05, 3), {});
  EXPECT_LT(many.interval.high - many.interval.low, few.interval.high - few.interval.low);
  EXPECT_LT(many.interval.high, 1);
  EXPECT_NEAR(many.ratio, 0.9, 0.01);
  const auto drifting = estimate_ratio(synthetic(300, 0.9, 0.001, 4, 0.5), {});
  EXPECT_LT(drifting.interval.high, 0.95);
  EXPECT_GT(drifting.interval.low, 0.85);
}

TEST(Bootstrap, OnePairGivesItsOwnRatio) {
  const auto estimate = estimate_ratio(PairedSamples::create(of({2}), of({1})).value(), {});
  EXPECT_DOUBLE_EQ(estimate.ratio, 0.5);
  EXPECT_DOUBLE_EQ(estimate.speedup(), 2);
  EXPECT_DOUBLE_EQ(estimate.interval.low, 0.5);
  EXPECT_DOUBLE_EQ(estimate.interval.high, 0.5);
}

TEST(AaControl, TellsABiasedMethodFromANoisyOne) {
  EXPECT_TRUE(evaluate_aa(synthetic(100, 1.0, 0.1, 8), {}, 0.01).clean);
  const auto biased = evaluate_aa(synthetic(400, 1.08, 0.01, 9), {}, 0.01);
  EXPECT_FALSE(biased.clean);
  EXPECT_NEAR(biased.bias, 0.08, 0.01);
  // Significant, and too small to matter.
  EXPECT_TRUE(evaluate_aa(synthetic(2000, 1.004, 0.001, 10), {}, 0.01).clean);
}

TEST(GeometricMean, OfRatios) {
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector<double>{2, 0.5}).value(), 1);
  EXPECT_NEAR(geometric_mean(std::vector<double>{1, 2, 4}).value(), 2, 1e-12);
  EXPECT_FALSE(geometric_mean(std::vector<double>{}).ok());
  EXPECT_FALSE(geometric_mean(std::vector<double>{1, 0}).ok());
  EXPECT_FALSE(geometric_mean(std::vector<double>{1, -2}).ok());
  EXPECT_FALSE(geometric_mean(std::vector<double>{1, std::numeric_limits<double>::infinity()}).ok());
}

TEST(Stopping, WantsTheMinimumFirst) {
  StoppingRule rule;
  EXPECT_EQ(rule.decide(synthetic(5, 0.5, 1e-6, 1)), StopReason::kContinue);
  EXPECT_EQ(rule.decide(synthetic(50, 1.0, 1e-6, 1)), StopReason::kContinue);  // 0.1 s of samples
  EXPECT_EQ(rule.decide(synthetic(200, 1.0, 1e-6, 1)), StopReason::kPrecise);
}

TEST(Stopping, StopsAsSoonAsTheAnswerIsClear) {
  StoppingRule rule;
  rule.relative_half_width = 1e-6;
  EXPECT_EQ(rule.decide(synthetic(300, 0.5, 0.05, 2)), StopReason::kContinue);
  rule.thresholds = {1.0, 1.03};
  EXPECT_EQ(rule.decide(synthetic(300, 0.5, 0.05, 2)), StopReason::kDecided);
  EXPECT_EQ(rule.decide(synthetic(300, 1.5, 0.05, 2)), StopReason::kDecided);
  EXPECT_EQ(rule.decide(synthetic(300, 1.0, 0.05, 2)), StopReason::kContinue);
}

TEST(Stopping, TinyKernelsStopByCount) {
  StoppingRule rule;
  rule.relative_half_width = 1e-9;
  EXPECT_EQ(rule.decide(synthetic(299, 1.0, 0.05, 3)), StopReason::kContinue);
  EXPECT_EQ(rule.decide(synthetic(1500, 1.0, 0.05, 3)), StopReason::kTimeLimit);
  rule.relative_half_width = 0.5;
  rule.min_total = Seconds(1e6);
  EXPECT_EQ(rule.decide(synthetic(299, 1.0, 1e-6, 3)), StopReason::kContinue);
  EXPECT_EQ(rule.decide(synthetic(300, 1.0, 1e-6, 3)), StopReason::kPrecise);
}

TEST(Stopping, LosesEarly) {
  StoppingRule rule;
  rule.relative_half_width = 1e-6;
  rule.lost_above = 1.05;
  EXPECT_EQ(rule.decide(synthetic(300, 1.5, 0.05, 2)), StopReason::kDecided);
  EXPECT_EQ(rule.decide(synthetic(300, 0.5, 0.05, 2)), StopReason::kContinue);
  EXPECT_EQ(rule.decide(synthetic(5, 1.5, 1e-6, 1)), StopReason::kContinue);  // the minimum comes first
}

TEST(Stopping, GivesUpAtTheTimeLimit) {
  StoppingRule rule;
  rule.relative_half_width = 1e-9;
  rule.max_total = Seconds(0.3);
  EXPECT_EQ(rule.decide(synthetic(200, 1.0, 0.2, 3)), StopReason::kTimeLimit);
  // One call longer than the limit: there will never be ten of them.
  const auto slow = PairedSamples::create(of({60}), of({60})).value();
  EXPECT_EQ(rule.decide(slow), StopReason::kTimeLimit);
}

}  // namespace
}  // namespace kernelopt
