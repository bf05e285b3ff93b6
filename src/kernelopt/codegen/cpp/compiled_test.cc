// Generated C++ compiled and run against the interpreter of loop bodies, over plans, lanes and awkward shapes.
#include <gtest/gtest.h>

#include "kernelopt/codegen/testing/compiled_kernels.h"
#include "kernelopt/codegen/testing/sample_programs.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt {
namespace {

using namespace testing;

struct Case {
  std::string label;
  size_t program;
  size_t kernel;
};

Target cpu(int bits, int threads = 2) {
  Target target;
  target.vector_bits = bits;
  target.threads = threads;
  return target;
}

// Plans of every kind of transformation: the starts, and of the moves of the first start one of each kind and description
// as far as `most` allows.
std::vector<Move> plans_of(const PlanSpace& space, size_t most) {
  std::vector<Move> plans = space.starts();
  plans.push_back({TransformKind::kSeed, "seed", space.seed()});
  plans.back().plan.math = MathVariant::kFast;
  std::map<TransformKind, int> seen;
  for (const auto& move : space.moves(plans[0].plan)) {
    if (plans.size() >= most) break;
    if (move.plan.math == MathVariant::kPrecise) continue;
    if (++seen[move.kind] > 2) continue;
    plans.push_back(move);
  }
  plans.erase(std::remove_if(plans.begin(), plans.end(), [](const Move& m) { return m.plan.math == MathVariant::kPrecise; }), plans.end());
  if (plans.size() > most) plans.resize(most);
  return plans;
}

void run_all(int bits, size_t most, size_t stride) {
  const std::vector<ProgramBuilder> builders = sample_programs();
  std::vector<Program> programs;
  std::vector<Group> groups;
  KernelLibrary library(bits / 32);
  std::vector<Case> cases;
  for (size_t b = 0; b < builders.size(); ++b) {
    auto program = builders[b].program();
    ASSERT_TRUE(program.ok()) << builders[b].name() << ": " << program.error().to_string();
    programs.push_back(std::move(*program));
    groups.push_back(builders[b].group());
    if (b % stride != 0) continue;
    const auto space = PlanSpace::create(programs.back(), groups.back(), cpu(bits));
    ASSERT_TRUE(space.ok()) << builders[b].name() << ": " << space.error().to_string();
    for (const auto& move : plans_of(*space, most)) {
      KernelPlan plan = move.plan;
      plan.threads = 2;  // tiny work would run on one
      const auto candidate = print_cpp(programs.back(), groups.back(), plan, cpu(bits));
      ASSERT_TRUE(candidate.ok()) << builders[b].name() << ", " << move.description << ": " << candidate.error().to_string();
      cases.push_back({builders[b].name() + ", " + transform_name(move.kind) + ": " + move.description, b, library.add(*candidate)});
    }
  }
  const std::string failure = library.build();
  ASSERT_EQ(failure, "");
  ASSERT_GE(cases.size(), builders.size() / stride);
  for (const auto& entry : cases) {
    const Program& program = programs[entry.program];
    const Group& group = groups[entry.program];
    for (const bool special : {false, true}) {
      std::mt19937 random(17);
      Memory start;
      int64_t limit = 90;
      for (const auto& [name, buffer] : program.buffers)
        for (const auto& [other, table] : program.buffers)
          if (name == "index" && other == "table") limit = table.size[0];
      for (const auto& [name, buffer] : program.buffers) start[name] = random_elements(buffer, random, special, buffer.dtype == DType::kInt64 ? limit : 50);
      Memory expected = start, actual = start;
      Interpreter interpreter(program, expected);
      for (const Body* body : group_bodies(program, group)) interpreter.run(*body);
      const std::string complaint = run_kernel(library.kernel(entry.kernel), program, group, actual);
      EXPECT_EQ(complaint, "") << entry.label;
      const std::string difference = compare(program, group, actual, expected);
      EXPECT_EQ(difference, "") << entry.label << (special ? " with NaN and infinities" : "");
    }
  }
}

TEST(Compiled, SixteenLanesOverManyPlans) { run_all(512, 8, 1); }
TEST(Compiled, EightLanes) { run_all(256, 2, 2); }
TEST(Compiled, FourLanesWithoutIntrinsics) { run_all(128, 1, 3); }

}  // namespace
}  // namespace kernelopt
