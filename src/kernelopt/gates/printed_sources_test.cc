// Gate 1's allow-list admits everything that the printers of C++ and of challenges print: a name that the printer starts to use and the list
// lacks would reject every candidate, and show here.
#include <filesystem>

#include <gtest/gtest.h>

#include "kernelopt/codegen/printer.h"
#include "kernelopt/codegen/testing/sample_programs.h"
#include "kernelopt/fusion/testing.h"
#include "kernelopt/gates/gates.h"
#include "kernelopt/plan/challenges.h"
#include "kernelopt/plan/convolution.h"
#include "kernelopt/plan/plan_space.h"
#include "kernelopt/plan/product.h"

namespace kernelopt {
namespace {

namespace fs = std::filesystem;

struct Counts {
  int printed = 0, refused = 0;
};

Counts scan_group(const Program& program, const Group& group, int bits, const std::string& label) {
  Counts counts;
  Target target;
  target.vector_bits = bits;
  target.threads = 2;
  const auto space = PlanSpace::create(program, group, target);
  if (!space.ok()) return counts;
  std::vector<Move> plans = space->starts();
  plans.push_back({TransformKind::kSeed, "seed", space->seed()});
  if (bits == 512)  // the moves' names do not depend on the width
    for (const Move& move : space->moves(space->seed())) plans.push_back(move);
  for (const Move& move : plans) {
    auto candidate = print_cpp(program, group, move.plan, target);
    if (!candidate.ok()) continue;  // a plan that cannot be printed is the planner's matter
    ++counts.printed;
    const Subject subject{std::make_shared<const Candidate>(std::move(*candidate)), "device"};
    if (const auto rejected = Gate1::scan(subject)) {
      ++counts.refused;
      ADD_FAILURE() << label << ", " << move.description << ": " << reject_reason_name(rejected->reason) << " "
                    << rejected->data.dump();
      return counts;  // one a group says enough
    }
  }
  return counts;
}

TEST(PrintedSources, SamplePrograms) {
  int printed = 0;
  for (const auto& builder : testing::sample_programs()) {
    const auto program = builder.program();
    ASSERT_TRUE(program.ok()) << builder.name();
    for (int bits : {128, 256, 512}) {
      const Counts counts = scan_group(*program, builder.group(), bits, builder.name());
      EXPECT_GT(counts.printed, 0) << builder.name();
      printed += counts.printed;
    }
  }
  EXPECT_GT(printed, 100);
}

TEST(PrintedSources, CapturedPrograms) {
  int printed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(std::string(KERNELOPT_SOURCE_DIR) + "/tests/golden")) {
    if (entry.path().filename() != "program.json") continue;
    const auto program = read_program_file(entry.path().string());
    ASSERT_TRUE(program.ok()) << entry.path();
    for (const Group& group : decompose(*program).groups)
      printed += scan_group(*program, group, 512, entry.path().parent_path().filename().string()).printed;
  }
  EXPECT_GT(printed, 20);
}

// A library call over a and b, whose loops are those of a product of m x k and k x n.
Program product_program(int64_t m, int64_t n, int64_t k) {
  using namespace kernelopt::testing;  // NOLINT: builders
  const auto op = [](OpCode code, ValueId id, std::vector<ValueId> args, const std::string& buffer = "", Expr index = Expr()) {
    Op made;
    made.code = code;
    made.id = id;
    made.args = std::move(args);
    made.buffer = buffer;
    made.index = std::move(index);
    return made;
  };
  Program program;
  for (const auto& [name, elements] : {std::pair<const char*, int64_t>{"a", m * k}, {"b", k * n}, {"out", m * n}})
    program.buffers.emplace(name, make_buffer(name, {elements}));
  Body body;
  body.name = "op0";
  body.vars = {iter("m", m), iter("n", n), reduce("k", k)};
  body.block.ops = {op(OpCode::kLoad, 0, {}, "a", v("m") * k + v("k")), op(OpCode::kLoad, 1, {}, "b", v("k") * n + v("n")),
                    op(OpCode::kMul, 2, {0, 1}), op(OpCode::kReduction, 3, {2}),
                    op(OpCode::kStoreReduction, kNoValue, {3}, "out", v("m") * n + v("n"))};
  Step step = external("op0", {"a", "b"}, {"out"});
  step.bodies = {body};
  program.steps = {step};
  return program;
}

// A library call that convolves x, 2 x 16 x 9 x 9, with w, 24 x 16 x 3 x 3; the result has its channels innermost.
Program convolution_program() {
  using namespace kernelopt::testing;  // NOLINT: builders
  Program program = product_program(2 * 9 * 9, 24, 16);
  program.buffers.clear();
  for (const auto& [name, elements] : {std::pair<const char*, int64_t>{"a", 2 * 16 * 81}, {"b", 24 * 16 * 9}, {"out", 2 * 24 * 81}})
    program.buffers.emplace(name, make_buffer(name, {elements}));
  ConvolutionNumbers numbers;
  numbers.stride = numbers.padding = numbers.dilation = {1, 1};
  numbers.x = {"a", {2, 16, 9, 9}, {1296, 81, 9, 1}, 0};
  numbers.w = {"b", {24, 16, 3, 3}, {144, 9, 3, 1}, 0};
  numbers.out = {"out", {2, 24, 9, 9}, {1944, 1, 216, 24}, 0};
  program.steps[0].extern_call.convolution = numbers;
  return program;
}

void expect_admitted(const Program& program, const Group& group, const KernelPlan& plan, bool strict) {
  Target target;
  target.kind = DeviceKind::kCuda;
  target.threads = 132;
  auto candidate = print_triton(program, group, plan, target);
  ASSERT_TRUE(candidate.ok()) << candidate.error().to_string();
  const auto shared = std::make_shared<const Candidate>(std::move(*candidate));
  const auto rejected = Gate1::scan({shared, "device", Precision::kAccurate, Change::kChallenge});
  EXPECT_FALSE(rejected) << reject_reason_name(rejected->reason) << " " << rejected->data.dump();
  const auto narrow = Gate1::scan({shared, "device", Precision::kStrict, Change::kChallenge});
  EXPECT_EQ(narrow.has_value(), !strict);
  if (narrow) {
    EXPECT_EQ(narrow->reason, RejectReason::kFormat);
  }
}

TEST(PrintedSources, ChallengesToProducts) {
  int split_k = 0, inside = 0, before = 0;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{5, 7, 4096}, {1024, 1024, 96}}) {
    const Program program = product_program(m, n, k);
    const auto groups = decompose(program, challenge_sets(program)).groups;
    ASSERT_EQ(groups.size(), 1u);
    const auto product = group_product(program, groups[0]);
    ASSERT_TRUE(product);
    for (const ProductPlan& choice : product_starts(*product)) {
      KernelPlan plan;
      plan.product = choice;
      expect_admitted(program, groups[0], plan, choice.format == PartFormat::kBf16x6);
      split_k += choice.split_k > 1;
      ++(choice.inside ? inside : before);
    }
  }
  EXPECT_GT(split_k, 0);
  EXPECT_GT(inside, 0);
  EXPECT_GT(before, 0);
}

TEST(PrintedSources, ChallengesToConvolutions) {
  const Program program = convolution_program();
  const auto groups = decompose(program, challenge_sets(program)).groups;
  ASSERT_EQ(groups.size(), 1u);
  const auto convolution = group_convolution(program, groups[0]);
  ASSERT_TRUE(convolution);
  EXPECT_EQ(convolution->pixels(), 2 * 81);
  for (const ConvolutionPlan& choice : convolution_starts(*convolution)) {
    KernelPlan plan;
    plan.convolution = choice;
    expect_admitted(program, groups[0], plan, false);
  }
}

}  // namespace
}  // namespace kernelopt
