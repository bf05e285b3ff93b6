#include "kernelopt/plan/convolution.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernelopt/fusion/testing.h"
#include "kernelopt/plan/challenges.h"

namespace kernelopt {
namespace {

using namespace kernelopt::testing;  // NOLINT: builders

// One call that convolves a, images x channels x 4 x 4, with b; the result has its channels innermost. The loops stand in for the call's:
// what is planned comes from the numbers.
Program program_of(int64_t channels, int64_t outputs, int64_t window, bool transposed, int64_t stride, int64_t groups = 1) {
  constexpr int64_t kImages = 2, kSize = 4;
  const int64_t size = transposed ? (kSize - 1) * stride + window : (kSize - window) / stride + 1;
  const int64_t in = channels / groups;
  ConvolutionNumbers numbers;
  numbers.transposed = transposed;
  numbers.groups = groups;
  numbers.stride = {stride, stride};
  numbers.padding = {0, 0};
  numbers.dilation = {1, 1};
  numbers.x = {"a", {kImages, channels, kSize, kSize}, {channels * 16, 16, 4, 1}, 0};
  const std::vector<int64_t> w = transposed ? std::vector<int64_t>{in, outputs, window, window} : std::vector<int64_t>{outputs, in, window, window};
  numbers.w = {"b", w, {w[1] * window * window, window * window, window, 1}, 0};
  numbers.out = {"out", {kImages, outputs, size, size}, {outputs * size * size, 1, outputs * size, outputs}, 0};
  Program program;
  for (const auto& [name, elements] : {std::pair<const char*, int64_t>{"a", kImages * channels * 16}, {"b", w[0] * w[1] * window * window},
                                       {"out", kImages * outputs * size * size}})
    program.buffers.emplace(name, make_buffer(name, {elements}));
  Op load, store;
  load.code = OpCode::kLoad;
  load.id = 0;
  load.buffer = "a";
  store.code = OpCode::kStore;
  store.args = {0};
  store.buffer = "out";
  store.index = v("p");
  Body body;
  body.name = "op0";
  body.vars = {iter("p", kImages * outputs * size * size)};
  body.block.ops = {load, store};
  Step step = external("op0", {"a", "b"}, {"out"});
  step.bodies = {body};
  step.extern_call.convolution = numbers;
  program.steps = {step};
  return program;
}

std::optional<Convolution> of(const Program& program) {
  const auto groups = decompose(program, challenge_sets(program)).groups;
  if (groups.size() != 1) return std::nullopt;
  EXPECT_TRUE(groups[0].challenge);
  return group_convolution(program, groups[0]);
}

std::pair<size_t, size_t> library_and_own(const Convolution& convolution) {
  const auto starts = convolution_starts(convolution);
  const auto library = std::count_if(starts.begin(), starts.end(), [](const auto& plan) { return plan.library; });
  return {library, starts.size() - static_cast<size_t>(library)};
}

TEST(Convolution, BothWaysAreTriedInTurn) {
  const auto convolution = of(program_of(16, 24, 3, false, 1));
  ASSERT_TRUE(convolution);
  const auto starts = convolution_starts(*convolution);
  ASSERT_GE(starts.size(), 4u);
  EXPECT_TRUE(starts[0].library);
  EXPECT_FALSE(starts[1].library);
  EXPECT_TRUE(starts[2].library);
  EXPECT_FALSE(starts[3].library);
  EXPECT_EQ(convolution_operations(*convolution), 2.0 * (2 * 2 * 2) * 24 * 16 * 9);
}

TEST(Convolution, ATransposedOneHasItsWeightsTurned) {
  const auto convolution = of(program_of(16, 24, 3, true, 2));
  ASSERT_TRUE(convolution);
  EXPECT_TRUE(convolution->transposed);
  EXPECT_EQ(convolution->outputs, 24);
  EXPECT_EQ(convolution->w.size, (std::vector<int64_t>{24, 16, 3, 3}));
  EXPECT_EQ(convolution->w.stride, (std::vector<int64_t>{9, 216, 3, 1}));
  EXPECT_EQ(convolution->out_size, (std::vector<int64_t>{9, 9}));
  EXPECT_EQ(convolution_operations(*convolution), 2.0 * (2 * 4 * 4) * 24 * 16 * 9);  // over the places of x
  EXPECT_EQ(library_and_own(*convolution).second, 0u);                               // most places of the window would be skipped
  const auto dense = of(program_of(16, 24, 3, true, 1));
  ASSERT_TRUE(dense);
  EXPECT_GT(library_and_own(*dense).second, 0u);
}

TEST(Convolution, FewChannelsAreTheLibrarysToMultiply) {
  const auto convolution = of(program_of(3, 24, 3, false, 1));
  ASSERT_TRUE(convolution);
  EXPECT_GT(library_and_own(*convolution).first, 0u);
  EXPECT_EQ(library_and_own(*convolution).second, 0u);
}

TEST(Convolution, ADepthwiseOneIsAGroupWithoutPlansOfItsOwn) {
  const Program program = program_of(16, 16, 3, false, 1, 16);
  EXPECT_EQ(challenge_sets(program), (std::vector<std::vector<int>>{{0}}));
  EXPECT_FALSE(of(program));
}

TEST(Challenges, APoolIsLeftToOrdinaryGroups) {
  Program program = program_of(16, 16, 3, false, 1, 16);
  program.steps[0].extern_call.convolution.reset();
  program.steps[0].extern_call.pool = true;
  EXPECT_TRUE(challenge_sets(program).empty());
  const auto groups = decompose(program, challenge_sets(program)).groups;
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_TRUE(groups[0].challenge);
  EXPECT_FALSE(group_convolution(program, groups[0]));
}

TEST(Convolution, MovesOfTheLibrarysWayChangeWhatStandsBehindItAlone) {
  const auto convolution = of(program_of(16, 24, 3, false, 1));
  ASSERT_TRUE(convolution);
  const ConvolutionPlan start = convolution_starts(*convolution)[0];
  const auto moves = convolution_moves(*convolution, start);
  ASSERT_FALSE(moves.empty());
  for (const auto& plan : moves) {
    EXPECT_TRUE(plan.library);
    EXPECT_EQ(plan.block_k, start.block_k);
    EXPECT_EQ(plan.stages, start.stages);
    EXPECT_LE(plan.block_m, 128);
  }
}

}  // namespace
}  // namespace kernelopt
