// Printed sources, without the prelude, against tests/golden/cpp. KERNELOPT_UPDATE_GOLDENS=1 rewrites the files.
// compiled_test.cc runs what is printed here.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernelopt/codegen/printer.h"
#include "kernelopt/codegen/testing/sample_programs.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt {
namespace {

using namespace testing;

void check_golden(const ProgramBuilder& builder, const std::string& name) {
  Target target;
  target.vector_bits = 256;
  target.threads = 2;
  const auto program = builder.program();
  ASSERT_TRUE(program.ok());
  const auto space = PlanSpace::create(*program, builder.group(), target);
  ASSERT_TRUE(space.ok());
  KernelPlan plan = space->seed();
  plan.math = MathVariant::kFast;
  plan.threads = 2;
  for (auto& nest : plan.nests) nest.unroll = 1;
  const auto candidate = print_cpp(*program, builder.group(), plan, target);
  ASSERT_TRUE(candidate.ok()) << candidate.error().to_string();
  const std::string& source = candidate->parts().kernels[0].source;
  const std::string end_of_prelude = "using namespace ko;\n";
  const std::string text = source.substr(source.find(end_of_prelude) + end_of_prelude.size());
  const std::filesystem::path path = std::filesystem::path(KERNELOPT_SOURCE_DIR) / "tests/golden/cpp" / (name + ".expected");
  if (std::getenv("KERNELOPT_UPDATE_GOLDENS") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path << " is missing; KERNELOPT_UPDATE_GOLDENS=1 writes it";
  const std::string expected((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text, expected);
}

TEST(Golden, SoftmaxOfRows) { check_golden(normalized_exponentials(64, 512, 1), "softmax_rows"); }
TEST(Golden, GatherWithChecks) { check_golden(gather_scatter(700, 24, 500), "gather_scatter"); }
TEST(Golden, WindowReduction) { check_golden(pool(8, 33, 40, 3, 2, 1, true), "window_reduction"); }

}  // namespace
}  // namespace kernelopt
