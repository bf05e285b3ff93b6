#include "kernelopt/gates/outcome.h"

#include <gtest/gtest.h>

#include "kernelopt/gates/fake_observations.h"

namespace kernelopt {
namespace {

using namespace testing;

std::vector<VerifiedKernel> seal(Gate4Set set) {
  std::vector<VerifiedKernel> kernels;
  for (Gate4Pass& member : std::move(set).into_members()) kernels.emplace_back(std::move(member));
  return kernels;
}

const std::vector<Subject> kTwo = {fake_subject("g0", "a"), fake_subject("g1", "b")};

TEST(Release, TakesOneWholeSet) {
  auto released = release(seal(pass4(kTwo)));
  ASSERT_TRUE(released.ok());
  EXPECT_EQ(released->kernels().size(), 2u);
  EXPECT_EQ(released->fingerprint(), kDevice);

  EXPECT_FALSE(release({}).ok());
  auto part = seal(pass4(kTwo));
  part.pop_back();
  EXPECT_FALSE(release(std::move(part)).ok());

  // Members of two sets that each passed did not pass together.
  auto mixed = seal(pass4({kTwo[0]}));
  mixed.push_back(std::move(seal(pass4({kTwo[1]}))[0]));
  EXPECT_FALSE(release(std::move(mixed)).ok());

  auto twice = seal(pass4(kTwo));
  twice[1] = std::move(seal(pass4(kTwo))[0]);
  EXPECT_FALSE(release(std::move(twice)).ok());

  auto devices = seal(pass4({kTwo[0]}));
  devices.push_back(std::move(seal(pass4({fake_subject("g1", "b", "elsewhere")}))[0]));
  EXPECT_FALSE(release(std::move(devices)).ok());
}

TEST(Win, NeedsTheMarginAndTheInterval) {
  const auto win = [](double ratio) { return Win::from(pass4(kTwo, ratio).members()[0]); };
  ASSERT_TRUE(win(0.8).has_value());
  EXPECT_NEAR(win(0.8)->speedup(), 1.25, 1e-9);
  EXPECT_TRUE(win(0.97).has_value());
  EXPECT_FALSE(win(0.98).has_value());  // interval below 1, gain below the margin
  EXPECT_FALSE(win(1.0).has_value());
  EXPECT_FALSE(win(1.02).has_value());

  // A median far below 1 whose interval reaches 1 is noise.
  Samples baseline, candidate;
  for (int i = 0; i < 9; ++i) {
    baseline.emplace_back(1e-3);
    candidate.emplace_back(i < 5 ? 0.8e-3 : 1.5e-3);
  }
  Gate3Set set = pass3(kTwo);
  RaceObservation race = good_race(set.digest());
  race.samples = {PairedSamples::create(baseline, candidate).value(), 1};
  const Gate4Set noisy = Gate4::decide(std::move(set), race).take();
  EXPECT_LT(noisy.members()[0].race().ratio, 0.9);
  EXPECT_FALSE(Win::from(noisy.members()[0]).has_value());
}

TEST(Conclude, OptimizedOrMatched) {
  auto optimized = conclude(pass4(kTwo, 0.8));
  ASSERT_TRUE(std::holds_alternative<Optimized>(optimized));
  const auto& won = std::get<Optimized>(optimized);
  EXPECT_EQ(won.win().set(), won.release_set().digest());
  EXPECT_EQ(won.release_set().kernels().size(), 2u);

  auto matched = conclude(pass4(kTwo, 1.01));
  ASSERT_TRUE(std::holds_alternative<Matched>(matched));
  EXPECT_EQ(std::get<Matched>(matched).ships, "default");
  EXPECT_TRUE(std::get<Matched>(matched).race.has_value());
}

TEST(Outcome, HasFourNames) {
  EXPECT_STREQ(outcome_name(ModelOutcome(std::get<Optimized>(conclude(pass4(kTwo))))), "optimized");
  EXPECT_STREQ(outcome_name(ModelOutcome(Matched{"eager", "eager is the fastest", std::nullopt})), "matched");
  EXPECT_STREQ(outcome_name(ModelOutcome(Fallback{"default", "nothing passed", {}})), "fallback");
  EXPECT_STREQ(outcome_name(ModelOutcome(EagerFallback{EagerReason::kDisagrees, "wrong", {}})), "eager");
}

}  // namespace
}  // namespace kernelopt
