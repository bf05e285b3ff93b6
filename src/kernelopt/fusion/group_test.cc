#include "kernelopt/fusion/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "kernelopt/fusion/dependences.h"
#include "kernelopt/fusion/testing.h"

namespace kernelopt {
namespace {

using namespace kernelopt::testing;  // NOLINT: builders

constexpr int64_t kRows = 256, kColumns = 128;  // too many elements for a small result

Expr flat() { return v("p0") * kColumns + v("p1"); }

Body rows_to(const std::string& name, const Loads& loads, const std::string& target) {
  return make_body(name, {iter("p0", kRows), iter("p1", kColumns)}, loads, target, flat());
}
Body row_sum(const std::string& name, const std::string& source, const std::string& target) {
  return make_body(name, {iter("p0", kRows), reduce("p1", kColumns)}, {{source, flat()}}, target, v("p0"));
}
Body elementwise(const std::string& name, std::vector<std::string> sources, const std::string& target) {
  Loads loads;
  for (auto& source : sources) loads.emplace_back(std::move(source), v("p0"));
  return make_body(name, {iter("p0", kRows * kColumns)}, loads, target, v("p0"));
}
Buffer matrix(const std::string& name, BufferKind kind = BufferKind::kComputed) { return make_buffer(name, {kRows, kColumns}, kind); }
Buffer column(const std::string& name) { return make_buffer(name, {kRows}); }

std::vector<std::vector<int>> members(const Decomposition& decomposition) {
  std::vector<std::vector<int>> result;
  for (const auto& group : decomposition.groups) result.push_back(group.steps);
  return result;
}
using Steps = std::vector<std::vector<int>>;

std::string reason_between(const Decomposition& decomposition, const std::string& left, const std::string& right) {
  for (const auto& refusal : decomposition.refusals)
    if (refusal.left == left && refusal.right == right) return refusal.reason;
  return "none";
}

TEST(DecomposeTest, RowChainBecomesOneGroup) {
  const Program program = make_program({matrix("x", BufferKind::kInput), matrix("t"), column("s"), output(matrix("y"))},
                                       {generated("op0", {elementwise("op0", {"x"}, "t")}), generated("op1", {row_sum("op1", "t", "s")}),
                                        generated("op2", {rows_to("op2", {{"t", flat()}, {"s", v("p0")}}, "y")})});
  const auto result = decompose(program);
  EXPECT_EQ(members(result), (Steps{{0, 1, 2}}));
  EXPECT_EQ(result.groups[0].inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(result.groups[0].outputs, std::vector<std::string>{"y"});
  EXPECT_EQ(result.groups[0].internals, (std::vector<std::string>{"t", "s"}));
  EXPECT_TRUE(result.refusals.empty());
  ASSERT_EQ(group_bodies(program, result.groups[0]).size(), 3u);
  EXPECT_EQ(group_bodies(program, result.groups[0])[1]->name, "op1");
  const Work work = group_work(program, result.groups[0]);
  EXPECT_EQ(work.bytes_read, kRows * kColumns * 4);
  EXPECT_EQ(work.bytes_written, kRows * kColumns * 4);
  // One reduction addition and one addition an element.
  EXPECT_DOUBLE_EQ(work.operations, 2.0 * kRows * kColumns);
}

TEST(DecomposeTest, ExternStepOnThePathSeparates) {
  const Program program = make_program(
      {matrix("x", BufferKind::kInput), matrix("t"), matrix("m"), output(matrix("y"))},
      {generated("op0", {elementwise("op0", {"x"}, "t")}), external("op1", {"t"}, {"m"}), generated("op2", {elementwise("op2", {"t", "m"}, "y")})});
  const auto result = decompose(program);
  EXPECT_EQ(members(result), (Steps{{0}, {2}}));
  EXPECT_EQ(reason_between(result, "op0", "op2"), "path through extern step op1");
  EXPECT_EQ(result.groups[0].outputs, std::vector<std::string>{"t"});
}

TEST(DecomposeTest, StepsAroundAnUnrelatedCallMerge) {
  const Program program = make_program(
      {matrix("x", BufferKind::kInput), matrix("t"), matrix("m"), output(matrix("y"))},
      {generated("op0", {elementwise("op0", {"x"}, "t")}), external("op1", {"x"}, {"m"}), generated("op2", {elementwise("op2", {"t", "m"}, "y")})});
  EXPECT_EQ(members(decompose(program)), (Steps{{0, 2}}));
}

TEST(DecomposeTest, CallsKeepTheirOrder) {
  // op0, op2's call needs op0; op3's call does not, and must run before op4, which would join op0.
  const Program program = make_program({matrix("x", BufferKind::kInput), matrix("t"), matrix("a"), matrix("b"), output(matrix("y"))},
                                       {generated("op0", {elementwise("op0", {"x"}, "t")}), external("op2", {"t"}, {"a"}),
                                        external("op3", {"x"}, {"b"}), generated("op4", {elementwise("op4", {"t", "b"}, "y")})});
  const auto result = decompose(program);
  EXPECT_EQ(members(result), (Steps{{0}, {3}}));
  EXPECT_EQ(reason_between(result, "op0", "op4"), "library calls of steps op2 and op3 would change places");
}

TEST(DecomposeTest, InputOverwrittenBetweenSeparates) {
  // op1 overwrites x after op0 read it; op2 reads the new x and t, so op0 and op2 cannot meet.
  Program program = make_program({matrix("x", BufferKind::kInput), matrix("w", BufferKind::kInput), matrix("t"), output(matrix("y"))},
                                 {generated("op0", {elementwise("op0", {"x"}, "t")}), external("op1", {"w"}, {"x"}),
                                  generated("op2", {elementwise("op2", {"t", "x"}, "y")})});
  const auto result = decompose(program);
  EXPECT_EQ(members(result), (Steps{{0}, {2}}));
  EXPECT_EQ(reason_between(result, "op0", "op2"), "path through extern step op1");
}

TEST(DecomposeTest, AliasedMemoryOrdersSteps) {
  // `alias` is another name of x's memory.
  Buffer alias = matrix("alias");
  alias.layout = LayoutKind::kMutation;
  alias.mutates = "x";
  const Program program = make_program({matrix("x", BufferKind::kInput), alias, matrix("w", BufferKind::kInput), matrix("t"), output(matrix("y"))},
                                       {generated("op0", {elementwise("op0", {"x"}, "t")}), external("op1", {"w"}, {"alias"}),
                                        generated("op2", {elementwise("op2", {"t", "x"}, "y")})});
  EXPECT_EQ(members(decompose(program)), (Steps{{0}, {2}}));
}

TEST(DecomposeTest, RefusedStepsAreKeptAndSeparate) {
  Program program = make_program({matrix("x", BufferKind::kInput), matrix("t"), matrix("u"), output(matrix("y"))},
                                 {generated("op0", {elementwise("op0", {"x"}, "t")}), external("op1", {"t"}, {"u"}, StepKind::kGenerated),
                                  generated("op2", {elementwise("op2", {"u", "t"}, "y")})});
  program.steps[1].refused = "op sort";
  const auto result = decompose(program);
  EXPECT_EQ(members(result), (Steps{{0}, {2}}));
  ASSERT_EQ(result.kept.size(), 1u);
  EXPECT_EQ(result.kept[0].step, "op1");
  EXPECT_EQ(result.kept[0].reason, "op sort");
  EXPECT_EQ(reason_between(result, "op0", "op2"), "path through refused step op1");
}

TEST(DecomposeTest, LargeMisalignedReductionIsRefused) {
  // Sums over blocks, read by a later body in another order, too large to pass through a near cache.
  const Program program = make_program(
      {make_buffer("x", {1 << 18}, BufferKind::kInput), make_buffer("s", {1 << 16}), output(make_buffer("y", {1 << 15}))},
      {generated("op0", {make_body("op0", {iter("p0", 1 << 16), reduce("p1", 4)}, {{"x", v("p0") * 4 + v("p1")}}, "s", v("p0"))}),
       generated("op1", {make_body("op1", {iter("p0", 1 << 15)}, {{"s", v("p0")}, {"s", v("p0") + (1 << 15)}}, "y", v("p0"))})});
  const auto result = decompose(program);
  EXPECT_EQ(members(result), (Steps{{0}, {1}}));
  EXPECT_EQ(reason_between(result, "op0", "op1"), "regions of s do not align (s, op0 to op1)");
}

TEST(DecomposeTest, SmallReductionMayBeReadAnyhow) {
  const Program program = make_program(
      {matrix("x", BufferKind::kInput), make_buffer("s", {1}), output(matrix("y"))},
      {generated("op0", {make_body("op0", {reduce("p0", kRows * kColumns)}, {{"x", v("p0")}}, "s", Expr(0))}),
       generated("op1", {make_body("op1", {iter("p0", kRows * kColumns)}, {{"x", v("p0")}, {"s", Expr(0)}}, "y", v("p0"))})});
  EXPECT_EQ(members(decompose(program)), (Steps{{0, 1}}));
}

TEST(DecomposeTest, PointwiseProducerMayBeRecomputed) {
  // A window over rows: regions do not align, but t is pointwise.
  const Program program = make_program(
      {make_buffer("x", {1 << 15}, BufferKind::kInput), make_buffer("t", {1 << 15}), output(make_buffer("y", {1 << 14}))},
      {generated("op0", {make_body("op0", {iter("p0", 1 << 15)}, {{"x", v("p0")}}, "t", v("p0"))}),
       generated("op1", {make_body("op1", {iter("p0", 1 << 14)}, {{"t", v("p0")}, {"t", v("p0") + 7}}, "y", v("p0"))})});
  EXPECT_EQ(members(decompose(program)), (Steps{{0, 1}}));
}

TEST(DecomposeTest, HorizontalOnlyWhereTheSameDataIsRead) {
  const std::vector<Buffer> buffers = {matrix("x", BufferKind::kInput), matrix("z", BufferKind::kInput), make_buffer("b", {kColumns}, BufferKind::kInput),
                                       output(matrix("y")), output(matrix("q"))};
  const auto with_bias = [&](const std::string& name, const std::string& source, const std::string& target) {
    return generated(name, {rows_to(name, {{source, flat()}, {"b", v("p1")}}, target)});
  };
  EXPECT_EQ(members(decompose(make_program(buffers, {with_bias("op0", "x", "y"), with_bias("op1", "x", "q")}))), (Steps{{0, 1}}));
  const auto apart = decompose(make_program(buffers, {with_bias("op0", "x", "y"), with_bias("op1", "z", "q")}));
  EXPECT_EQ(members(apart), (Steps{{0}, {1}}));
  EXPECT_EQ(reason_between(apart, "op0", "op1"), "only inputs in common, read in different loops");
}

TEST(DecomposeTest, NeighbouringColumnsOfOneMatrixMerge) {
  const auto columns_of = [&](const std::string& name, int64_t first, const std::string& target) {
    return generated(name, {make_body(name, {iter("p0", kRows), iter("p1", kColumns)}, {{"x", v("p0") * 3 * kColumns + v("p1") + first}}, target, flat())});
  };
  const Program program = make_program({make_buffer("x", {kRows, 3 * kColumns}, BufferKind::kInput), output(matrix("q")), output(matrix("k"))},
                                       {columns_of("op0", 0, "q"), columns_of("op1", kColumns, "k")});
  EXPECT_EQ(members(decompose(program)), (Steps{{0, 1}}));
}

TEST(DecomposeTest, TwoBranchesMeet) {
  const Program program = make_program({matrix("x", BufferKind::kInput), matrix("z", BufferKind::kInput), matrix("t"), matrix("u"), output(matrix("y"))},
                                       {generated("op0", {elementwise("op0", {"x"}, "t")}), generated("op1", {elementwise("op1", {"z"}, "u")}),
                                        generated("op2", {elementwise("op2", {"t", "u"}, "y")})});
  EXPECT_EQ(members(decompose(program)), (Steps{{0, 1, 2}}));
}

TEST(DecomposeTest, GroupsHaveALimit) {
  std::vector<Buffer> buffers = {matrix("t0", BufferKind::kInput)};
  std::vector<Step> steps;
  for (int i = 0; i < 30; ++i) {
    const std::string name = "op" + std::to_string(i);
    buffers.push_back(matrix("t" + std::to_string(i + 1)));
    steps.push_back(generated(name, {elementwise(name, {"t" + std::to_string(i)}, "t" + std::to_string(i + 1))}));
  }
  buffers.back() = output(buffers.back());
  const auto result = decompose(make_program(buffers, steps));
  ASSERT_EQ(result.groups.size(), 2u);
  EXPECT_EQ(result.groups[0].steps.size(), 24u);
  EXPECT_EQ(reason_between(result, "op23", "op24"), "more than 24 loop bodies");
  EXPECT_EQ(result.groups[1].inputs, std::vector<std::string>{"t24"});
}

TEST(DecomposeTest, MutatedAndSharedBuffersAreOutputs) {
  Buffer piece = matrix("piece");
  piece.layout = LayoutKind::kNonOwning;
  piece.base = "whole";
  const Program program = make_program(
      {matrix("x", BufferKind::kInput), piece, make_buffer("whole", {2 * kRows, kColumns}), matrix("t")},
      {generated("op0", {elementwise("op0", {"x"}, "t"), elementwise("op0b", {"t"}, "piece"), elementwise("op0c", {"t"}, "x")})});
  const auto result = decompose(program);
  EXPECT_EQ(result.groups[0].inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(result.groups[0].outputs, (std::vector<std::string>{"piece", "x"}));
  EXPECT_EQ(result.groups[0].internals, std::vector<std::string>{"t"});
}

TEST(WorkTest, WindowsCountTouchedElementsOnce) {
  const Program program = make_program(
      {make_buffer("x", {1000}, BufferKind::kInput), make_buffer("w", {1}, BufferKind::kInput), output(make_buffer("y", {100}))},
      {generated("op0", {make_body("op0", {iter("p0", 100)}, {{"x", v("p0") * 2}, {"x", v("p0") * 2 + 1}, {"x", v("p0") * 2 + 2}, {"w", Expr(0)}}, "y", v("p0"))})});
  const Work work = group_work(program, decompose(program).groups[0]);
  EXPECT_EQ(work.bytes_read, (201 + 1) * 4);
  EXPECT_EQ(work.bytes_written, 100 * 4);
}

TEST(RepresentativesTest, FirstOfEqualDigests) {
  std::vector<Group> groups(4);
  groups[0].digest = groups[2].digest = "a";
  groups[1].digest = groups[3].digest = "b";
  EXPECT_EQ(representatives(groups), (std::vector<int>{0, 1, 0, 1}));
}

// Random programs of steps over few buffers: running each group as one unit must keep every dependence, so the graph of
// units has no cycle, members are ascending, every groupable step is in one group, and reasons are never empty.
TEST(DecomposeTest, RandomProgramsStayAcyclic) {
  int merged = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
    std::vector<Buffer> buffers = {matrix("b0", BufferKind::kInput), matrix("b1", BufferKind::kInput)};
    std::vector<Step> steps;
    const auto name = [](int i) { return "b" + std::to_string(i); };
    for (int i = 0; i < 14; ++i) {
      const int known = static_cast<int>(buffers.size());
      const std::string op = "op" + std::to_string(i), first = name(pick(known)), second = name(std::max(0, known - 1 - pick(3)));
      const bool fresh = pick(6) != 0;  // otherwise an older buffer is overwritten
      const std::string target = fresh ? name(known) : name(pick(known));
      if (fresh) buffers.push_back(matrix(target));
      if (pick(4) == 0) steps.push_back(external(op, {first, second}, {target}, pick(3) == 0 ? StepKind::kNop : StepKind::kExtern));
      else if (pick(3) == 0) steps.push_back(generated(op, {rows_to(op, {{first, flat()}, {second, flat()}}, target)}));
      else steps.push_back(generated(op, {elementwise(op, {first, second}, target)}));
    }
    const Program program = make_program(buffers, steps);
    const auto result = decompose(program);
    std::vector<int> unit(program.steps.size());
    for (size_t i = 0; i < unit.size(); ++i) unit[i] = static_cast<int>(i);
    std::set<int> grouped;
    for (const auto& group : result.groups) {
      ASSERT_TRUE(std::is_sorted(group.steps.begin(), group.steps.end()));
      merged += group.steps.size() > 1;
      for (const int step : group.steps) {
        ASSERT_TRUE(grouped.insert(step).second);
        unit[static_cast<size_t>(step)] = group.steps.front();
      }
    }
    for (size_t i = 0; i < unit.size(); ++i) EXPECT_EQ(grouped.count(static_cast<int>(i)) > 0, program.steps[i].kind == StepKind::kGenerated);
    // Repeatedly take away units that wait for nobody; a cycle would leave some.
    const StepOrder order(program);
    std::set<int> waiting(unit.begin(), unit.end());
    for (bool progress = true; progress;) {
      progress = false;
      for (auto at = waiting.begin(); at != waiting.end();) {
        bool free = true;
        for (size_t i = 0; i < unit.size(); ++i)
          if (unit[i] == *at)
            for (const int earlier : order.before(static_cast<int>(i))) {
              const int other = unit[static_cast<size_t>(earlier)];
              free &= other == *at || !waiting.count(other);
            }
        if (free) progress = true;
        at = free ? waiting.erase(at) : std::next(at);
      }
    }
    EXPECT_TRUE(waiting.empty()) << "seed " << seed;
    for (const auto& refusal : result.refusals) EXPECT_FALSE(refusal.reason.empty());
  }
  EXPECT_GT(merged, 50);
}

std::string describe(const Program& program) {
  std::ostringstream out;
  const auto result = decompose(program);
  const auto list = [&](const char* title, const std::vector<std::string>& names) {
    out << "  " << title;
    for (const auto& name : names) out << " " << name;
    out << "\n";
  };
  for (const auto& group : result.groups) {
    out << "group";
    for (const int step : group.steps) out << " " << program.steps[static_cast<size_t>(step)].name;
    out << "\n";
    list("inputs", group.inputs);
    list("outputs", group.outputs);
    list("internals", group.internals);
    const Work work = group_work(program, group);
    out << "  reads " << work.bytes_read << " B, writes " << work.bytes_written << " B, " << static_cast<int64_t>(work.operations) << " operations\n";
  }
  for (const auto& refusal : result.refusals) out << refusal.left << " | " << refusal.right << ": " << refusal.reason << "\n";
  for (const auto& kept : result.kept) out << "kept " << kept.step << ": " << kept.reason << "\n";
  return out.str();
}

// KERNELOPT_UPDATE_GOLDENS=1 rewrites the expected text.
TEST(GoldenTest, CapturedProgramsDecomposeAsBefore) {
  for (const char* name : {"norms_and_pooling", "gather_pad_scatter"}) {
    const std::string folder = std::string(KERNELOPT_SOURCE_DIR) + "/tests/golden/ir/" + name;
    const auto program = read_program_file(folder + "/program.json");
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    const std::string text = describe(*program);
    if (std::getenv("KERNELOPT_UPDATE_GOLDENS")) std::ofstream(folder + "/groups.txt") << text;
    std::ifstream file(folder + "/groups.txt");
    std::stringstream expected;
    expected << file.rdbuf();
    EXPECT_EQ(text, expected.str()) << name;
  }
}

// Before and after a library call whose loops are known.
Program around_a_call() {
  Step call = generated("op1", {rows_to("op1", {{"buf0", flat()}}, "buf1")});
  call.kind = StepKind::kExtern;
  return make_program({make_buffer("x", {kRows, kColumns}, BufferKind::kInput), make_buffer("buf0", {kRows, kColumns}),
                       make_buffer("buf1", {kRows, kColumns}), output(make_buffer("buf2", {kRows, kColumns}))},
                      {generated("op0", {elementwise("op0", {"x"}, "buf0")}), call,
                       generated("op2", {elementwise("op2", {"buf1"}, "buf2")})});
}

TEST(Challenges, AreOffByDefault) {
  for (const auto& group : decompose(around_a_call()).groups) {
    EXPECT_FALSE(group.challenge);
    EXPECT_EQ(std::count(group.steps.begin(), group.steps.end(), 1), 0);
  }
}

TEST(Challenges, AreGroupsOfTheirOwn) {
  const auto groups = decompose(around_a_call(), {{1}}).groups;
  ASSERT_EQ(groups.size(), 3u);
  for (size_t i = 0; i < groups.size(); ++i) {
    EXPECT_EQ(groups[i].steps, std::vector<int>{static_cast<int>(i)});
    EXPECT_EQ(groups[i].challenge, i == 1);
  }
}

TEST(Challenges, KeepTheirNeighboursFromOtherGroups) {
  const auto groups = decompose(around_a_call(), {{1, 2}}).groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].steps, std::vector<int>{0});
  EXPECT_EQ(groups[1].steps, (std::vector<int>{1, 2}));
  EXPECT_TRUE(groups[1].challenge);
}

// A scan that the compiler leaves to the library: its step joins as a generated one does, and is no call that must keep its place.
TEST(Scans, JoinTheirNeighbours) {
  Program program = around_a_call();
  program.steps[1].extern_call.scan = true;
  const auto result = decompose(program);
  ASSERT_EQ(result.groups.size(), 1u);
  EXPECT_EQ(result.groups[0].steps, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(result.groups[0].challenge);
  EXPECT_EQ(result.groups[0].internals, (std::vector<std::string>{"buf0", "buf1"}));
  EXPECT_TRUE(result.kept.empty());
}

// A pool that the compiler leaves to the library: its step joins as a generated one does, and makes the group a challenge.
TEST(Pools, JoinTheirNeighbours) {
  Program program = around_a_call();
  program.steps[1].extern_call.pool = true;
  const auto result = decompose(program);
  ASSERT_EQ(result.groups.size(), 1u);
  EXPECT_EQ(result.groups[0].steps, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(result.groups[0].challenge);
  EXPECT_EQ(result.groups[0].internals, (std::vector<std::string>{"buf0", "buf1"}));
  EXPECT_TRUE(result.kept.empty());
}

}  // namespace
}  // namespace kernelopt
