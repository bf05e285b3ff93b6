#include "kernelopt/analyst/roofline.h"

#include <gtest/gtest.h>

namespace kernelopt {
namespace {

Target target() {
  Target result;
  result.copy_bytes_per_second = 1e10;
  result.flops_per_second = 1e11;
  result.launch_seconds = 1e-6;
  return result;
}

// 1 ms of traffic, 0.2 ms of arithmetic.
Work traffic() { return {6'000'000, 4'000'000, 2e7}; }

TEST(RooflineTest, DiagnosesBySpeedOfLight) {
  EXPECT_EQ(analyze(traffic(), Seconds(1.2e-3), target()).diagnosis, Diagnosis::kNearOptimal);
  EXPECT_EQ(analyze(traffic(), Seconds(2e-3), target()).diagnosis, Diagnosis::kMemoryBound);
  EXPECT_EQ(analyze(traffic(), Seconds(5e-3), target()).diagnosis, Diagnosis::kUnderutilized);
  EXPECT_EQ(analyze({1000, 1000, 1e8}, Seconds(2e-3), target()).diagnosis, Diagnosis::kComputeBound);
  // Small enough that the launch is the floor.
  EXPECT_EQ(analyze({100, 100, 100}, Seconds(1.1e-6), target()).diagnosis, Diagnosis::kNearOptimal);
  EXPECT_EQ(analyze(traffic(), Seconds(1e-3), Target{}).diagnosis, Diagnosis::kUnknown);
}

TEST(RooflineTest, HeadroomIsMeasuredOverFloor) {
  const Roofline roofline = analyze(traffic(), Seconds(4e-3), target());
  EXPECT_DOUBLE_EQ(roofline.headroom, 4.0);
  EXPECT_DOUBLE_EQ(roofline.memory_use, 0.25);
  EXPECT_DOUBLE_EQ(roofline.compute_use, 0.05);
  EXPECT_DOUBLE_EQ(analyze(traffic(), Seconds(0.5e-3), target()).headroom, 1.0);
}

TEST(RooflineTest, AChallengeMayUseTheMatrixUnits) {
  // 1 ms of traffic; 1.6e9 operations take 16 ms without the matrix units and 1 ms with them.
  const ProductWork work{10'000'000, 1.6e9, 2};
  const Floor floor = challenge_floor(work, target());
  EXPECT_DOUBLE_EQ(floor.memory.count(), 1e-3);
  EXPECT_DOUBLE_EQ(floor.compute.count(), 1e-3);
  EXPECT_DOUBLE_EQ(floor.launch.count(), 5e-6);
  EXPECT_DOUBLE_EQ(floor.total().count(), 1e-3);
  // What the target does not know bounds nothing.
  EXPECT_DOUBLE_EQ(challenge_floor(work, Target{}).total().count(), 5e-6);
}

TEST(RooflineTest, NamesAreDistinct) {
  EXPECT_STREQ(diagnosis_name(Diagnosis::kNearOptimal), "near-optimal");
  EXPECT_STREQ(diagnosis_name(Diagnosis::kUnderutilized), "underutilized");
}

}  // namespace
}  // namespace kernelopt
