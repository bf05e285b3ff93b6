// Laws of the plan space, and what single rewrites must achieve.
#include <gtest/gtest.h>

#include <set>

#include "kernelopt/codegen/printer.h"
#include "kernelopt/codegen/testing/sample_programs.h"
#include "kernelopt/plan/lower.h"
#include "kernelopt/plan/nest_builder.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt {
namespace {

using namespace testing;

Target cpu() {
  Target target;
  target.vector_bits = 512;
  target.threads = 2;
  return target;
}

struct Fixture {
  Program program;
  Group group;
  PlanSpace space;
};

Fixture fixture(const ProgramBuilder& builder) {
  auto program = builder.program();
  KO_CHECK(program.ok(), program.ok() ? "" : program.error().to_string());
  auto space = PlanSpace::create(*program, builder.group(), cpu());
  KO_CHECK(space.ok(), space.ok() ? "" : space.error().to_string());
  return {std::move(*program), builder.group(), std::move(*space)};
}

TEST(PlanSpace, EveryStartAndMoveIsLegalDistinctAndPrintable) {
  for (const auto& builder : {normalized_exponentials(3, 67, 1), standardized_rows(5, 50, "float32"), pool(2, 9, 21, 3, 1, 1, false), gather_scatter(7, 19, 5), transposed_copy(2, 19, 35)}) {
    const Fixture f = fixture(builder);
    ASSERT_TRUE(f.space.check(f.space.seed()).ok()) << builder.name();
    std::set<std::string> keys;
    const auto starts = f.space.starts();
    ASSERT_FALSE(starts.empty()) << builder.name();
    for (const auto& move : starts) {
      EXPECT_TRUE(keys.insert(plan_key(move.plan)).second) << builder.name() << ": " << move.description;
      const auto printed = print_cpp(f.program, f.group, move.plan, cpu());
      EXPECT_TRUE(printed.ok()) << builder.name() << ": " << move.description << ": " << printed.error().to_string();
    }
    keys = {plan_key(starts[0].plan)};
    for (const auto& move : f.space.moves(starts[0].plan)) {
      EXPECT_TRUE(keys.insert(plan_key(move.plan)).second) << builder.name() << ": " << move.description;
      const auto status = f.space.check(move.plan);
      EXPECT_TRUE(status.ok()) << builder.name() << ": " << move.description;
      EXPECT_TRUE(print_cpp(f.program, f.group, move.plan, cpu()).ok()) << builder.name() << ": " << move.description;
    }
  }
}

// What is pointwise before and after a scan runs in its loop: one pass over memory, nothing stored between.
TEST(PlanSpace, AScanTakesItsNeighboursIntoItsLoop) {
  for (const bool along_rows : {true, false}) {
    const Fixture f = fixture(scan_between(300, 257, "add", "float64", along_rows));
    const auto kernel = lower(f.program, f.group, f.space.starts()[0].plan);
    ASSERT_TRUE(kernel.ok());
    ASSERT_EQ(kernel->nests.size(), 1u);
    EXPECT_EQ(kernel->nests[0].phases.size(), 1u) << along_rows;
    EXPECT_EQ(kernel->buffers.size(), 2u) << along_rows;
  }
}

// Lanes or points that a scan has not reached yet cannot be read: a body that reads the result elsewhere stays apart.
TEST(PlanSpace, AReaderOfAnotherPlaceStaysOutOfTheScansLoop) {
  ProgramBuilder p("turned");
  p.input("x", {300, 256}).internal("s", {300, 256}).output("y", {300, 256});
  BodyBuilder b("op0"), after("op1");
  b.iter("i", 300).reduce("j", 256);
  b.store("s", add({times(256, "i"), "j"}), b.scan(b.load("x", add({times(256, "i"), "j"})), "add"));
  after.iter("i", 300).iter("j", 256);
  after.store("y", add({times(256, "i"), "j"}), after.load("s", add({times(256, "i"), times(-1, "j"), 255})));
  const Fixture f = fixture(p.step(b).step(after));
  const auto kernel = lower(f.program, f.group, f.space.starts()[0].plan);
  ASSERT_TRUE(kernel.ok());
  size_t phases = 0;
  for (const auto& nest : kernel->nests) phases += nest.phases.size();
  EXPECT_EQ(phases, 2u);
}

TEST(PlanSpace, MovesAreTheSameEachTime) {
  const Fixture f = fixture(normalized_exponentials(3, 67, 1));
  const auto once = f.space.moves(f.space.seed()), again = f.space.moves(f.space.seed());
  ASSERT_EQ(once.size(), again.size());
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(plan_key(once[i].plan), plan_key(again[i].plan));
}

TEST(PlanSpace, OffersPlansThatDifferInMoreThanSizes) {
  for (const auto& builder : {normalized_exponentials(64, 512, 1), normalized_exponentials(8, 128, 400), standardized_rows(64, 512, "float32"), pool(8, 40, 40, 4, 1, 1, false)}) {
    const Fixture f = fixture(builder);
    std::set<std::string> shapes;
    for (const auto& start : f.space.starts()) {
      shapes.insert(plan_shape_key(start.plan));
      for (const auto& move : f.space.moves(start.plan)) shapes.insert(plan_shape_key(move.plan));
    }
    EXPECT_GE(shapes.size(), 12u) << builder.name();
  }
}

TEST(PlanSpace, LongTilesWhereLanesLieAcrossAReduction) {
  const auto longest = [](const ProgramBuilder& builder) {
    const auto program = builder.program();
    const auto space = PlanSpace::create(*program, builder.group(), cpu());
    int starts = 0, moves = 0;
    for (const auto& move : space->starts())
      for (const auto& nest : move.plan.nests) starts = std::max(starts, nest.unroll);
    for (const auto& move : space->moves(space->starts()[0].plan))
      for (const auto& nest : move.plan.nests) moves = std::max(moves, nest.unroll);
    return std::pair{starts, moves};
  };
  EXPECT_EQ(longest(row_reductions(900, 70, "col")), (std::pair{kLongTile, kLongTile}));
  EXPECT_EQ(longest(row_reductions(70, 900, "row")), (std::pair{4, 8}));
  EXPECT_EQ(longest(pointwise_chain(5000)), (std::pair{4, 8}));
}

TEST(PlanSpace, ShapeKeyIgnoresSizesOnly) {
  const Fixture f = fixture(normalized_exponentials(3, 67, 1));
  KernelPlan plan = f.space.seed(), other = plan;
  other.nests[0].unroll = plan.nests[0].unroll * 2;
  EXPECT_NE(plan_key(plan), plan_key(other));
  EXPECT_EQ(plan_shape_key(plan), plan_shape_key(other));
  other.nests[0].stream = !plan.nests[0].stream;
  EXPECT_NE(plan_shape_key(plan), plan_shape_key(other));
}

TEST(PlanSpace, RefusesWithTheReason) {
  ProgramBuilder p("sorting");
  p.input("x", {4, 8}).output("y", {4, 8});
  BodyBuilder b("op0");
  b.iter("i", 4).reduce("j", 8);
  b.store("y", add({times(8, "i"), "j"}), b.load("x", add({times(8, "i"), "j"})));
  p.step(b);
  auto program = p.program();
  ASSERT_TRUE(program.ok());
  // A sort in place of the load.
  Op sort;
  sort.code = OpCode::kSort;
  sort.id = 50;
  sort.args = {0};
  sort.dtypes = {DType::kFloat32};
  auto& ops = program->steps[0].bodies[0].block.ops;
  ops.insert(ops.end() - 1, sort);
  ops.back().args = {50};
  const auto space = PlanSpace::create(*program, p.group(), cpu());
  ASSERT_FALSE(space.ok());
  EXPECT_EQ(space.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(space.error().to_string().find("op sort"), std::string::npos);
}

KernelPlan start_named(const PlanSpace& space, const std::string& description) {
  for (const auto& move : space.starts())
    if (move.description == description) return move.plan;
  ADD_FAILURE() << "no start '" << description << "'";
  return space.seed();
}

TEST(Lowering, RowsOfASoftmaxShareOneNestAndKeepRowValuesInRegisters) {
  const Fixture f = fixture(normalized_exponentials(64, 512, 1));
  const auto kernel = lower(f.program, f.group, f.space.seed());
  ASSERT_TRUE(kernel.ok());
  ASSERT_EQ(kernel->nests.size(), 1u);
  EXPECT_EQ(kernel->buffers.at("m").place, Place::kRegister);
  EXPECT_EQ(kernel->buffers.at("s").place, Place::kRegister);
  EXPECT_EQ(kernel->buffers.at("e").place, Place::kLocal);
  EXPECT_EQ(kernel->buffers.at("e").elements, 512);
  // Exponentials and their sum run in one loop.
  EXPECT_EQ(kernel->nests[0].phases.size(), 3u);
}

TEST(Lowering, RecomputingLeavesNoIntermediateInMemory) {
  const Fixture f = fixture(normalized_exponentials(64, 512, 1));
  const auto kernel = lower(f.program, f.group, start_named(f.space, "recompute every intermediate"));
  ASSERT_TRUE(kernel.ok());
  EXPECT_EQ(kernel->buffers.count("e"), 0u);
}

TEST(Lowering, OnlineSoftmaxReadsItsInputTwice) {
  const Fixture f = fixture(normalized_exponentials(64, 512, 1));
  const auto kernel = lower(f.program, f.group, start_named(f.space, "online softmax"));
  ASSERT_TRUE(kernel.ok());
  int loads = 0;
  for (const auto& phase : kernel->nests[0].phases)
    for (const auto& op : phase.body.ops) loads += op.op.code == OpCode::kLoad && op.op.buffer == "x";
  EXPECT_EQ(loads, 2);
}

TEST(Lowering, StridedRowsPutLanesAlongNeighbours) {
  const Fixture f = fixture(normalized_exponentials(8, 128, 400));
  ASSERT_EQ(f.space.seed().nests.size(), 1u);
  EXPECT_EQ(f.space.seed().nests[0].axis, VectorAxis::kShared);
}

TEST(Lowering, FlattenedLoopsAreSplitToMatch) {
  const Fixture f = fixture(standardized_rows(64, 512, "float32"));
  const auto kernel = lower(f.program, f.group, f.space.seed());
  ASSERT_TRUE(kernel.ok());
  ASSERT_EQ(kernel->nests.size(), 1u);
  EXPECT_EQ(kernel->nests[0].shared[0].extent, 64);
}

TEST(Lowering, WalkedRowsShareTheirWindows) {
  const Fixture f = fixture(pool(8, 40, 40, 4, 1, 1, false));
  const auto count = [](const LoweredKernel& kernel) {
    std::map<std::string, int> result;
    for (const auto& nest : kernel.nests)
      for (const auto& phase : nest.phases)
        for (const auto& op : phase.body.ops) {
          if (phase.body.name.find(".rest") != std::string::npos) continue;
          result[op_name(op.op.code)] += 1;
        }
    return result;
  };
  const auto plain = lower(f.program, f.group, f.space.seed());
  const auto walked = lower(f.program, f.group, start_named(f.space, "four rows of windows together"));
  ASSERT_TRUE(plain.ok());
  ASSERT_TRUE(walked.ok());
  auto before = count(*plain), after = count(*walked);
  EXPECT_EQ(before["load"], 16);
  EXPECT_EQ(before["maximum"], 15);
  // Seven rows of four columns for four results, instead of sixteen loads each.
  EXPECT_EQ(after["load"], 28);
  EXPECT_EQ(after["store"], 4);
  EXPECT_EQ(after["maximum"], 7 * 3 + 4 * 3);
}

TEST(Lowering, FewResultsAreSplitOverThreads) {
  const Fixture f = fixture(mutation(1 << 16));
  const KernelPlan plan = f.space.starts()[0].plan;
  bool split = false;
  for (const auto& rewrite : plan.rewrites) split = split || rewrite.kind == RewriteKind::kSplit;
  EXPECT_TRUE(split);
}

TEST(Lowering, RefusesToShareLoopsAcrossADependence) {
  // The second step reads its neighbour's result.
  ProgramBuilder p("neighbour");
  p.input("x", {64}).internal("t", {65}).output("y", {64});
  BodyBuilder a("op0");
  a.iter("i", 64);
  a.store("t", "i", a.call("neg", {a.load("x", "i")}));
  BodyBuilder b("op1");
  b.iter("i", 64);
  b.store("y", "i", b.call("add", {b.load("t", "i"), b.load("t", add({"i", 1}))}));
  p.step(a).step(b);
  const Fixture f = fixture(p);
  NestPlan both;
  both.bodies = {"op0", "op1"};
  both.anchor = "op0";
  both.shared = {"i"};
  EXPECT_FALSE(check_nest(make_work_group(f.program, f.group), both).ok());
  EXPECT_EQ(f.space.seed().nests.size(), 2u);
}

}  // namespace
}  // namespace kernelopt
