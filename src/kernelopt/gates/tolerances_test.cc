// Pins every tolerance to DESIGN.md: the numbers stand here once more on purpose, and where the page lies beside the
// checkout its own text is read as well.
#include "kernelopt/gates/tolerances.h"

#include <fstream>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "kernelopt/gates/observation.h"
#include "kernelopt/gates/policy.h"

namespace kernelopt {
namespace {

TEST(Tolerances, AreTheDesigns) {
  EXPECT_EQ(tolerance::kGroup, 1e-3);
  EXPECT_EQ(tolerance::kModel, 1e-4);
  EXPECT_EQ(tolerance::kHalf, 1e-2);
  EXPECT_EQ(tolerance::kErrorFactor, 4);
  EXPECT_EQ(tolerance::kRhoChallenge, 1.5);
  EXPECT_EQ(tolerance::kRhoRewrite, 4);
  EXPECT_EQ(tolerance::kRhoPaper, 10);
  EXPECT_EQ(tolerance::kMinReferenceDistance, 1e-8);
  EXPECT_EQ(tolerance::kMinSeeds, 3);
  EXPECT_EQ(tolerance::kMinRuns, 2);
  EXPECT_EQ(tolerance::kStart, 1e-4);
  EXPECT_EQ(tolerance::kStartSeeds, 2);
  EXPECT_EQ(tolerance::kMargin, 1.03);
  EXPECT_EQ(tolerance::kWarmup, std::chrono::milliseconds(25));
  EXPECT_EQ(tolerance::kRepetition, std::chrono::milliseconds(100));
}

TEST(Tolerances, SpillsThatFillTheL1) { EXPECT_EQ(tolerance::kMostStackBytes, 256); }

TEST(Tolerances, TheJudgeIsAskedForThem) {
  EXPECT_EQ(tolerances_request(), nlohmann::json::parse(R"([
    {"rtol": 1e-3, "atol": 1e-3, "rms_scaled": true, "error_factor": 4.0},
    {"rtol": 1e-4, "atol": 1e-4, "rms_scaled": true, "error_factor": 4.0},
    {"rtol": 1e-2, "atol": 1e-2, "rms_scaled": true, "error_factor": 4.0}])"));
}

TEST(Tolerances, PoliciesUseThem) {
  EXPECT_EQ(rho_bound(Precision::kStrict, Change::kChallenge), 1.5);
  EXPECT_EQ(rho_bound(Precision::kAccurate, Change::kChallenge), 1.5);
  EXPECT_EQ(rho_bound(Precision::kPaper, Change::kChallenge), 10);
  EXPECT_EQ(rho_bound(Precision::kStrict, Change::kRewrite), 4);
  EXPECT_EQ(rho_bound(Precision::kAccurate, Change::kRewrite), 4);
  EXPECT_EQ(rho_bound(Precision::kPaper, Change::kRewrite), 10);
  EXPECT_TRUE(rho_required(Precision::kStrict, Change::kChallenge));
  EXPECT_TRUE(rho_required(Precision::kAccurate, Change::kChallenge));
  EXPECT_FALSE(rho_required(Precision::kPaper, Change::kChallenge));
  for (Precision precision : {Precision::kStrict, Precision::kAccurate, Precision::kPaper}) {
    EXPECT_FALSE(rho_required(precision, Change::kRewrite));
    EXPECT_FALSE(format_admitted(precision, "tf32"));
    EXPECT_FALSE(format_admitted(precision, "bf16"));
    EXPECT_FALSE(format_admitted(precision, "fp16"));
    EXPECT_FALSE(format_admitted(precision, "no such format"));
    EXPECT_TRUE(format_admitted(precision, "bf16x6"));
    EXPECT_EQ(format_admitted(precision, "bf16x3"), precision != Precision::kStrict);
    EXPECT_EQ(format_admitted(precision, "fp16x3"), precision != Precision::kStrict);
    EXPECT_EQ(parse_precision(precision_name(precision)), precision);
  }
  EXPECT_FALSE(parse_precision("loose").has_value());
}

// One number that DESIGN.md states, found by the words around it.
struct Stated {
  const char* pattern;
  double value;
};

TEST(Tolerances, DesignPageSaysTheSame) {
  std::ifstream file(std::string(KERNELOPT_SOURCE_DIR) + "/../shared/DESIGN.md");
  if (!file) GTEST_SKIP() << "DESIGN.md is not beside this checkout";
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = std::regex_replace(text.str(), std::regex("\\s+"), " ");
  const Stated stated[] = {
      {R"(2 functional \|.*? allclose rtol = atol = (1e-\d))", tolerance::kGroup},
      {R"(3 model \|.*? allclose rtol = atol = (1e-\d))", tolerance::kModel},
      {R"(fp16 and bf16 outputs use (1e-\d) in gates 2 and 3)", tolerance::kHalf},
      {R"(at least (\d+) × eager's own largest float64 error)", tolerance::kErrorFactor},
      {R"(at least (\d+) fresh seeds)", static_cast<double>(tolerance::kMinSeeds)},
      {R"(d_ref ≥ (1e-\d))", tolerance::kMinReferenceDistance},
      {R"(\(paper: ≤ (\d+)\))", tolerance::kRhoPaper},
      {R"(rewrites in the same formats need ρ ≤ (\d+))", tolerance::kRhoRewrite},
      {R"(`accurate` \(default\) \| ρ ≤ ([\d.]+) on ordinary)", tolerance::kRhoChallenge},
      {R"(bf16x6\), ρ ≤ ([\d.]+) \|)", tolerance::kRhoChallenge},
      {R"(what the paper accepts: allclose at 1e-4, or ρ ≤ (\d+))", tolerance::kRhoPaper},
      {R"(warm-up (\d+) ms)", static_cast<double>(tolerance::kWarmup.count())},
      {R"(repetition (\d+) ms)", static_cast<double>(tolerance::kRepetition.count())},
      {R"(τ\(candidate\) ≤ ([\d.]+) · τ\(baseline\))", tolerance::kMargin},
      {R"(already matches eager at (1e-\d) on two seeds)", tolerance::kStart},
  };
  for (const Stated& one : stated) {
    std::smatch match;
    ASSERT_TRUE(std::regex_search(page, match, std::regex(one.pattern))) << "DESIGN.md no longer says: " << one.pattern;
    EXPECT_DOUBLE_EQ(std::stod(match[1].str()), one.value) << one.pattern;
  }
}

}  // namespace
}  // namespace kernelopt
