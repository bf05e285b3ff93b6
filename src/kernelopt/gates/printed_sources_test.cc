// Gate 1's allow-list admits everything that the C++ printer prints: a name that the printer starts to use and the list
// lacks would reject every candidate, and show here.
#include <filesystem>

#include <gtest/gtest.h>

#include "kernelopt/codegen/printer.h"
#include "kernelopt/codegen/testing/sample_programs.h"
#include "kernelopt/gates/gates.h"
#include "kernelopt/plan/plan_space.h"

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

}  // namespace
}  // namespace kernelopt
