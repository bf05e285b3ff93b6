#include "kernelopt/fusion/regions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernelopt/fusion/accesses.h"
#include "kernelopt/fusion/testing.h"

namespace kernelopt {
namespace {

using namespace kernelopt::testing;  // NOLINT: builders

// Calls visit for every assignment of the loops.
void enumerate(const std::vector<LoopVar>& loops, const std::function<void(const std::map<std::string, int64_t>&)>& visit) {
  int64_t count = 1;
  for (const auto& loop : loops) count *= loop.extent;
  std::map<std::string, int64_t> at;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (const auto& loop : loops) {
      at[loop.name] = rest % loop.extent;
      rest /= loop.extent;
    }
    visit(at);
  }
}

// By enumeration: every view is a bijection onto its body's iterations, and whatever one body stores and another touches
// is touched in one outer iteration only. Returns a description of the first violation.
std::string violation(const std::vector<const Body*>& bodies, const AlignedLoops& aligned) {
  using Outer = std::vector<int64_t>;
  struct Touch {
    size_t body;
    Outer outer;
    bool store;
  };
  std::map<std::pair<std::string, int64_t>, std::vector<Touch>> touches;
  for (size_t b = 0; b < bodies.size(); ++b) {
    std::vector<LoopVar> loops = aligned.outer;
    loops.insert(loops.end(), aligned.views[b].inner.begin(), aligned.views[b].inner.end());
    std::set<Outer> seen;
    int64_t expected = 1;
    for (const auto& var : bodies[b]->vars) expected *= var.extent;
    std::string wrong;
    enumerate(loops, [&](const std::map<std::string, int64_t>& at) {
      std::map<std::string, int64_t> vars;
      Outer point, outer;
      for (const auto& var : bodies[b]->vars) {
        const int64_t value = aligned.views[b].vars.at(var.name).evaluate(at);
        if (value < 0 || value >= var.extent) wrong = "value out of range";
        vars[var.name] = value;
        point.push_back(value);
      }
      for (const auto& loop : aligned.outer) outer.push_back(at.at(loop.name));
      if (!seen.insert(point).second) wrong = "iteration visited twice";
      for (const auto& access : accesses(*bodies[b]))
        touches[{access.buffer, access.index.evaluate(vars)}].push_back({b, outer, access.store});
    });
    if (!wrong.empty()) return wrong;
    if (static_cast<int64_t>(seen.size()) != expected) return "iterations missing";
  }
  for (const auto& [element, list] : touches)
    for (const auto& a : list)
      for (const auto& b : list)
        if (a.store && a.body != b.body && a.outer != b.outer) return "conflict at " + element.first + "[" + std::to_string(element.second) + "]";
  return "";
}

std::vector<int64_t> outer_extents(const std::optional<AlignedLoops>& aligned) {
  std::vector<int64_t> result;
  if (aligned)
    for (const auto& loop : aligned->outer) result.push_back(loop.extent);
  return result;
}

TEST(AlignTest, FlatPointwiseSplitsAgainstRowReduction) {
  const Program program = make_program(
      {make_buffer("x", {128, 16}, BufferKind::kInput), make_buffer("t", {128, 16}), output(make_buffer("y", {128}))},
      {generated("op0", {make_body("op0", {iter("p0", 2048)}, {{"x", v("p0")}}, "t", v("p0"))}),
       generated("op1", {make_body("op1", {iter("p0", 128), reduce("p1", 16)}, {{"t", v("p0") * 16 + v("p1")}}, "y", v("p0"))})});
  const std::vector<const Body*> bodies = {&program.steps[0].bodies[0], &program.steps[1].bodies[0]};
  const auto aligned = align_loops(program, bodies);
  ASSERT_TRUE(aligned);
  EXPECT_EQ(outer_extents(aligned), std::vector<int64_t>{128});
  EXPECT_EQ(aligned->views[0].vars.at("p0"), v("o0") * 16 + v("p0_in"));
  EXPECT_EQ(aligned->views[1].vars.at("p0"), v("o0"));
  EXPECT_EQ(violation(bodies, *aligned), "");
  const auto region = local_region(*bodies[0], *aligned, 0, "t");
  ASSERT_TRUE(region);
  EXPECT_EQ(region->base, v("o0") * 16);
  EXPECT_EQ(region->span, 16);
  EXPECT_FALSE(local_region(*bodies[0], *aligned, 0, "y"));
}

TEST(AlignTest, TransposedConsumerTakesTheProducersLoopsInItsOrder) {
  const Program program = make_program(
      {make_buffer("x", {6, 10}, BufferKind::kInput), make_buffer("t", {6, 10}), output(make_buffer("y", {10, 6}))},
      {generated("op0", {make_body("op0", {iter("p0", 6), iter("p1", 10)}, {{"x", v("p0") * 10 + v("p1")}}, "t", v("p0") * 10 + v("p1"))}),
       generated("op1", {make_body("op1", {iter("p0", 10), iter("p1", 6)}, {{"t", v("p1") * 10 + v("p0")}}, "y", v("p0") * 6 + v("p1"))})});
  const std::vector<const Body*> bodies = {&program.steps[0].bodies[0], &program.steps[1].bodies[0]};
  const auto aligned = align_loops(program, bodies);
  ASSERT_TRUE(aligned);
  EXPECT_EQ(outer_extents(aligned), (std::vector<int64_t>{6, 10}));
  EXPECT_EQ(violation(bodies, *aligned), "");
}

TEST(AlignTest, HaloSharesTheBatchLoopOnly) {
  // y[n, i] = t[n, i] + t[n, i + 2]: rows of t are needed whole.
  const Program program = make_program(
      {make_buffer("x", {4, 10}, BufferKind::kInput), make_buffer("t", {4, 10}), output(make_buffer("y", {4, 8}))},
      {generated("op0", {make_body("op0", {iter("p0", 40)}, {{"x", v("p0")}}, "t", v("p0"))}),
       generated("op1", {make_body("op1", {iter("p0", 4), iter("p1", 8)}, {{"t", v("p0") * 10 + v("p1")}, {"t", v("p0") * 10 + v("p1") + 2}},
                                   "y", v("p0") * 8 + v("p1"))})});
  const std::vector<const Body*> bodies = {&program.steps[0].bodies[0], &program.steps[1].bodies[0]};
  const auto aligned = align_loops(program, bodies);
  EXPECT_EQ(outer_extents(aligned), std::vector<int64_t>{4});
  EXPECT_EQ(violation(bodies, *aligned), "");
}

TEST(AlignTest, ReasonsNameTheBuffer) {
  const Program program = make_program(
      {make_buffer("x", {8, 8}, BufferKind::kInput), make_buffer("t", {8, 8}), output(make_buffer("y", {8}))},
      {generated("op0", {make_body("op0", {iter("p0", 8), iter("p1", 8)}, {{"x", v("p0") * 8 + v("p1")}}, "t", v("p0") * 8 + v("p1"))}),
       generated("op1", {make_body("op1", {iter("p0", 8)}, {{"t", v("p0") * 8}, {"t", v("p0")}}, "y", v("p0"))}),
       generated("op2", {make_body("op2", {reduce("p0", 64)}, {{"t", v("p0")}}, "y", Expr(0))})});
  std::string reason;
  EXPECT_FALSE(align_loops(program, {&program.steps[0].bodies[0], &program.steps[1].bodies[0]}, &reason));
  EXPECT_EQ(reason, "regions of t do not align");
  EXPECT_FALSE(align_loops(program, {&program.steps[0].bodies[0], &program.steps[2].bodies[0]}, &reason));
  EXPECT_EQ(reason, "no common outer loop");
}

TEST(AlignTest, BroadcastWeightsAndInPlaceUpdatesShare) {
  // x is read, then overwritten elementwise by the second body (an anti dependence).
  const Program program = make_program(
      {make_buffer("x", {6, 4}, BufferKind::kInput), make_buffer("w", {4}, BufferKind::kInput), output(make_buffer("y", {6}))},
      {generated("op0", {make_body("op0", {iter("p0", 6), reduce("p1", 4)}, {{"x", v("p0") * 4 + v("p1")}, {"w", v("p1")}}, "y", v("p0"))}),
       generated("op1", {make_body("op1", {iter("p0", 24)}, {}, "x", v("p0"))})});
  const std::vector<const Body*> bodies = {&program.steps[0].bodies[0], &program.steps[1].bodies[0]};
  const auto aligned = align_loops(program, bodies);
  EXPECT_EQ(outer_extents(aligned), std::vector<int64_t>{6});
  EXPECT_EQ(violation(bodies, *aligned), "");
}

TEST(AlignTest, FewerOuterLoopsRejoin) {
  const Program program = make_program(
      {make_buffer("x", {4, 6, 5}, BufferKind::kInput), make_buffer("t", {4, 6, 5}), output(make_buffer("y", {4, 6, 5}))},
      {generated("op0", {make_body("op0", {iter("p0", 120)}, {{"x", v("p0")}}, "t", v("p0"))}),
       generated("op1", {make_body("op1", {iter("p0", 4), iter("p1", 6), iter("p2", 5)}, {{"t", v("p0") * 30 + v("p1") * 5 + v("p2")}}, "y",
                                   v("p0") * 30 + v("p1") * 5 + v("p2"))})});
  const std::vector<const Body*> bodies = {&program.steps[0].bodies[0], &program.steps[1].bodies[0]};
  const auto aligned = align_loops(program, bodies);
  ASSERT_TRUE(aligned);
  EXPECT_EQ(outer_extents(aligned), (std::vector<int64_t>{4, 6, 5}));
  for (size_t count = 1; count <= 3; ++count) EXPECT_EQ(violation(bodies, with_outer(*aligned, count)), "") << count;
  const AlignedLoops one = with_outer(*aligned, 1);
  ASSERT_EQ(one.views[0].inner.size(), 1u);
  EXPECT_EQ(one.views[0].inner[0].extent, 30);
  EXPECT_EQ(one.views[0].vars.at("p0"), v("o0") * 30 + v("p0_in"));
  EXPECT_EQ(one.views[1].inner.size(), 2u);
  EXPECT_EQ(one.views[1].vars.at("p2"), v("p2"));
}

TEST(DisjointTest, PiecesOfAConcatenation) {
  Buffer left = make_buffer("l", {8, 24});
  left.stride = {56, 1};
  left.layout = LayoutKind::kNonOwning;
  Buffer right = left;
  right.size = {8, 32};
  right.offset = 24;
  EXPECT_TRUE(disjoint_views(left, right));
  EXPECT_TRUE(disjoint_views(right, left));
  right.offset = 23;  // one column in common
  EXPECT_FALSE(disjoint_views(left, right));
  right.offset = 32;  // the last columns reach into the next row
  EXPECT_FALSE(disjoint_views(left, right));
  Buffer below = left;
  below.offset = 8 * 56;
  EXPECT_TRUE(disjoint_views(left, below));
}

// Random producers and consumers of one buffer; whatever align_loops claims must hold by enumeration, and simple cases
// must be found.
class RandomPair {
 public:
  explicit RandomPair(uint32_t seed) : random_(seed) {
    const int64_t sizes[] = {2, 3, 4, 6};
    const int rank = 2 + pick(3);
    for (int d = 0; d < rank; ++d) shape_.push_back(sizes[pick(4)]);
    strides_.assign(shape_.size(), 1);
    std::vector<size_t> order(shape_.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = d;
    if (pick(3) == 0) std::shuffle(order.begin(), order.end(), random_);
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides_[order[i]] = stride;
      stride *= shape_[order[i]];
    }
  }

  Program make() {
    int64_t total = 1;
    for (const int64_t extent : shape_) total *= extent;
    Body first = random_body("op0", "x", "t", false), second = random_body("op1", "t", "y", true);
    if (pick(4) == 0) second.block.ops[0].index = second.block.ops[0].index + pick(3);
    return make_program({make_buffer("x", {total}, BufferKind::kInput), make_buffer("t", {total + 3}), output(make_buffer("y", {total}))},
                        {generated("op0", {first}), generated("op1", {second})});
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  // Loops over runs of neighbouring dimensions, in random order, some of them reduced.
  Body random_body(const std::string& name, const std::string& source, const std::string& target, bool may_reduce) {
    struct Run {
      size_t begin, end;
      int64_t extent;
    };
    std::vector<Run> runs;
    for (size_t d = 0; d < shape_.size();) {
      size_t end = d + 1;
      int64_t extent = shape_[d];
      while (end < shape_.size() && pick(2)) extent *= shape_[end++];
      runs.push_back({d, end, extent});
      d = end;
    }
    if (pick(2)) std::shuffle(runs.begin(), runs.end(), random_);
    const size_t reduced = may_reduce && runs.size() > 1 && pick(2) ? 1 + static_cast<size_t>(pick(static_cast<int>(runs.size()) - 1)) : 0;
    std::vector<LoopVar> vars;
    Expr index(0), kept(0);
    for (size_t r = 0; r < runs.size(); ++r) {
      const std::string var = "p" + std::to_string(r);
      const bool reduce_it = r >= runs.size() - reduced;
      vars.push_back(reduce_it ? reduce(var, runs[r].extent) : iter(var, runs[r].extent));
      Expr rest = v(var);
      for (size_t d = runs[r].end; d-- > runs[r].begin;) {
        index = index + Expr::mod(rest, Expr(shape_[d])) * strides_[d];
        rest = Expr::floordiv(rest, Expr(shape_[d]));
      }
      if (!reduce_it) kept = kept * runs[r].extent + v(var);
    }
    // A producer stores where it loads; a consumer stores in the order of its loops.
    return make_body(name, vars, {{source, index}}, target, may_reduce ? kept : index);
  }

  std::mt19937 random_;
  std::vector<int64_t> shape_, strides_;
};

TEST(AlignTest, RandomPairsHoldByEnumeration) {
  int found = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    const Program program = RandomPair(seed).make();
    const std::vector<const Body*> bodies = {&program.steps[0].bodies[0], &program.steps[1].bodies[0]};
    const auto aligned = align_loops(program, bodies);
    if (!aligned) continue;
    ++found;
    ASSERT_EQ(violation(bodies, *aligned), "") << "seed " << seed << "\n" << print(*bodies[0]) << print(*bodies[1]);
    for (size_t count = 1; count <= aligned->outer.size(); ++count)
      ASSERT_EQ(violation(bodies, with_outer(*aligned, count)), "") << "seed " << seed << " with " << count;
  }
  EXPECT_GT(found, 500);
}

TEST(PhaseTest, ScalarReductionStartsAPhaseAndUnrelatedBodiesCostNothing) {
  const Program program = make_program(
      {make_buffer("x", {96}, BufferKind::kInput), make_buffer("s", {1}), make_buffer("z", {10}, BufferKind::kInput), output(make_buffer("y", {96})),
       output(make_buffer("q", {10}))},
      {generated("op0", {make_body("op0", {reduce("p0", 96)}, {{"x", v("p0")}}, "s", Expr(0))}),
       generated("op1", {make_body("op1", {iter("p0", 10)}, {{"z", v("p0")}}, "q", v("p0"))}),
       generated("op2", {make_body("op2", {iter("p0", 96)}, {{"x", v("p0")}, {"s", Expr(0)}}, "y", v("p0"))})});
  std::vector<const Body*> bodies;
  for (const auto& step : program.steps) bodies.push_back(&step.bodies[0]);
  const auto phases = split_into_phases(program, bodies);
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_FALSE(phases[0].loops);
  EXPECT_EQ(outer_extents(phases[1].loops), std::vector<int64_t>{10});
  EXPECT_EQ(outer_extents(phases[2].loops), std::vector<int64_t>{96});
}

}  // namespace
}  // namespace kernelopt
