// Rows kept on chip: which nests get teams, what their launches promise, and the rewrites that make whole loops of parts.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernelopt/codegen/printer.h"
#include "kernelopt/codegen/testing/sample_programs.h"
#include "kernelopt/plan/lower.h"
#include "kernelopt/plan/plan_space.h"
#include "kernelopt/plan/program_choices.h"

namespace kernelopt {
namespace {

using namespace testing;

Target gpu() {
  Target target;
  target.kind = DeviceKind::kCuda;
  target.isa = "sm_90";
  target.threads = 132;
  return target;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

std::vector<Move> kept_starts(const Program& program, const Group& group) {
  const auto space = PlanSpace::create(program, group, gpu());
  KO_CHECK(space.ok(), space.ok() ? "" : space.error().to_string());
  auto starts = space->starts();
  std::erase_if(starts, [](const Move& move) { return move.kind != TransformKind::kKeepRows; });
  return starts;
}

TEST(Teams, LongRowsAreReadOnceByProgramsThatAllFitAtOnce) {
  const auto builder = normalized_exponentials(2048, 131072, 1);
  const auto program = builder.program();
  ASSERT_TRUE(program.ok());
  const auto starts = kept_starts(*program, builder.group());
  ASSERT_GE(starts.size(), 2u);
  for (const auto& start : starts) {
    const auto& plan = start.plan.nests.at(0).program;
    const auto printed = print_triton(*program, builder.group(), start.plan, gpu());
    ASSERT_TRUE(printed.ok()) << printed.error().to_string();
    const auto& parts = printed->parts();
    ASSERT_EQ(parts.launches.size(), 1u);
    EXPECT_TRUE(parts.launches[0].cooperative);
    EXPECT_EQ(printed->to_json()["launches"][0]["cooperative"], true);
    EXPECT_LE(parts.launches[0].programs, plan.programs);
    EXPECT_EQ(parts.launches[0].programs % plan.team, 0);
    // Each piece of the row is loaded once, whatever the number of phases.
    const std::string& source = parts.kernels[0].source;
    const int64_t pieces = (131072 / plan.team + plan.inner_block - 1) / plan.inner_block;
    EXPECT_LE(count(source, "tl.load(b0"), static_cast<size_t>(pieces) + 1) << source;
    EXPECT_EQ(count(source, "while tl.atomic_add("), 1u) << source;
    // One counter a row, zeroed for every launch.
    EXPECT_EQ(std::count_if(parts.scratch.begin(), parts.scratch.end(), [](const Scratch& s) { return s.zeroed && s.elements == 2048; }), 1);
  }
}

TEST(Teams, ShortRowsAndSinglePassesNeedNone) {
  for (const auto& builder : {normalized_exponentials(2048, 512, 1), row_reductions(2048, 131072, "row")}) {
    const auto program = builder.program();
    ASSERT_TRUE(program.ok());
    EXPECT_TRUE(kept_starts(*program, builder.group()).empty()) << builder.name();
  }
}

// Row sums in parts of `length`, then summed.
ProgramBuilder sums_in_parts(int64_t rows, int64_t parts, int64_t length) {
  const int64_t columns = parts * length;
  ProgramBuilder p("parts");
  p.input("x", {rows, columns}).internal("p", {rows, parts}).output("y", {rows});
  BodyBuilder a("op0");
  a.iter("i", rows).iter("k", parts).reduce("j", length);
  a.store_reduction("p", add({times(parts, "i"), "k"}), a.reduction("sum", {a.load("x", add({times(columns, "i"), times(length, "k"), "j"}))}));
  BodyBuilder b("op1");
  b.iter("i", rows).reduce("k", parts);
  b.store_reduction("y", "i", b.reduction("sum", {b.load("p", add({times(parts, "i"), "k"}))}));
  return p.step(a).step(b);
}

TEST(JoinParts, TakesTheCompilersCutBack) {
  const auto builder = sums_in_parts(7, 13, 50);
  const auto program = builder.program();
  ASSERT_TRUE(program.ok());
  WorkGroup work = make_work_group(*program, builder.group());
  ASSERT_EQ(work.bodies.size(), 2u);
  EXPECT_FALSE(apply_rewrite(work, {RewriteKind::kJoinParts, "op0", 0}).ok());
  const auto status = apply_rewrite(work, {RewriteKind::kJoinParts, "op1", 0});
  ASSERT_TRUE(status.ok()) << status.error().to_string();
  ASSERT_EQ(work.bodies.size(), 1u);
  const FlatBody& body = work.bodies[0];
  EXPECT_EQ(body.reduce_elements(), 650);
  ASSERT_EQ(body.vars.size(), 2u);
  const auto load = std::find_if(body.ops.begin(), body.ops.end(), [](const FlatOp& f) { return f.op.code == OpCode::kLoad; });
  ASSERT_NE(load, body.ops.end());
  EXPECT_EQ(load->op.buffer, "x");
  EXPECT_TRUE(load->op.index == Expr(650) * Expr::var(body.vars[0].name) + Expr::var(body.vars[1].name)) << load->op.index.to_string();
}

}  // namespace
}  // namespace kernelopt
