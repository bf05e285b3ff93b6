// What one output's comparison means under a tolerance and a policy (DESIGN.md section 6). Pure.
#pragma once

#include <optional>

#include "kernelopt/gates/decision.h"
#include "kernelopt/gates/observation.h"
#include "kernelopt/gates/policy.h"

namespace kernelopt {

struct AccuracyRule {
  AskedTolerance tolerance;  // of float32 and float64 outputs: kGroup or kModel
  bool float64_fallback;     // float32 outputs out of tolerance may still pass by rho
  Precision precision;
  Change change;
  bool rho_always = false;           // rho must hold even where allclose passes
};
// Gate 2 holds float32 to allclose; half-precision outputs have the float64 test in both gates.
AccuracyRule group_rule(Precision precision, Change change);
AccuracyRule model_rule(Precision precision, Change change);

struct LeafVerdict {
  std::optional<RejectReason> failure;  // none: it passes
  std::optional<double> rho;            // wherever both distances are known
};
LeafVerdict judge_leaf(const LeafComparison& leaf, const AccuracyRule& rule);

// d_opt / max(d_ref, kMinReferenceDistance); for challenges also the same of the worst rows.
std::optional<double> leaf_rho(const LeafComparison& leaf, Change change);

struct ComparisonVerdict {
  std::optional<RejectReason> failure;
  std::optional<double> rho;  // the worst leaf's
  nlohmann::json evidence;    // every leaf that failed (a bounded number), else the worst one
};
ComparisonVerdict judge_comparison(const Comparison& comparison, const AccuracyRule& rule);

// Whether an output of the compiler's own program has lost digits that eager's has.
bool has_lost_digits(const LeafComparison& leaf);

// Half a unit in the last place at 1.
double rounding_unit(DType type);

}  // namespace kernelopt
