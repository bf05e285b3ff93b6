#include "kernelopt/gates/accuracy.h"

#include <algorithm>
#include <cmath>

#include "kernelopt/gates/tolerances.h"

namespace kernelopt {
namespace {

constexpr size_t kMaxLeavesShown = 8;

bool is_half(DType type) { return type == DType::kFloat16 || type == DType::kBFloat16; }

// NaN counts as out of bounds.
bool within(const std::optional<double>& value, double bound) { return value && *value <= bound; }

// Distances that the output type cannot show.
bool equal_within_type(const LeafComparison& leaf, Change change) {
  const double unit = rounding_unit(*leaf.dtype);
  return within(leaf.d_opt, unit) && (change == Change::kRewrite || within(leaf.d_opt_rows, unit));
}

}  // namespace

double rounding_unit(DType type) {
  switch (type) {
    case DType::kFloat16: return std::ldexp(1.0, -11);
    case DType::kBFloat16: return std::ldexp(1.0, -8);
    case DType::kFloat32: return std::ldexp(1.0, -24);
    case DType::kFloat64: return std::ldexp(1.0, -53);
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64: return 0;
  }
  return 0;
}

AccuracyRule group_rule(Precision precision, Change change) {
  return {AskedTolerance::kGroup, false, precision, change};
}

AccuracyRule model_rule(Precision precision, Change change) { return {AskedTolerance::kModel, true, precision, change}; }

std::optional<double> leaf_rho(const LeafComparison& leaf, Change change) {
  if (!leaf.d_opt || !leaf.d_ref) return std::nullopt;
  const double whole = *leaf.d_opt / std::max(*leaf.d_ref, tolerance::kMinReferenceDistance);
  if (change == Change::kRewrite) return whole;
  if (!leaf.d_opt_rows || !leaf.d_ref_rows) return std::nullopt;
  const double rows = *leaf.d_opt_rows / std::max(*leaf.d_ref_rows, tolerance::kMinReferenceDistance);
  // Not std::max alone: it would drop a NaN.
  return std::isnan(whole) || std::isnan(rows) ? std::nan("") : std::max(whole, rows);
}

bool has_lost_digits(const LeafComparison& leaf) {
  if (!leaf.is_tensor || leaf.dtype != DType::kFloat32 || !leaf.d_opt) return false;
  const auto rho = leaf_rho(leaf, Change::kRewrite);
  return rho && *rho > tolerance::kRhoLost && *leaf.d_opt > tolerance::kLostDistance;
}

LeafVerdict judge_leaf(const LeafComparison& leaf, const AccuracyRule& rule) {
  const auto failed = [](RejectReason reason, std::optional<double> rho = std::nullopt) {
    return LeafVerdict{reason, rho};
  };
  if (!leaf.is_tensor) return leaf.equal ? LeafVerdict{} : failed(RejectReason::kUnequal);
  if (!leaf.shape_equal) return failed(RejectReason::kShape);
  if (!leaf.dtype_equal) return failed(RejectReason::kDType);
  if (!leaf.dtype || !is_floating(*leaf.dtype)) return leaf.equal ? LeafVerdict{} : failed(RejectReason::kUnequal);

  LeafVerdict verdict;
  verdict.rho = leaf_rho(leaf, rule.change);
  if (!leaf.nonfinite_equal) return failed(RejectReason::kNonFinite, verdict.rho);

  const bool half = is_half(*leaf.dtype);
  const size_t asked = static_cast<size_t>(half ? AskedTolerance::kHalf : rule.tolerance);
  const bool close = asked < leaf.violations.size() && leaf.violations[asked] == 0;
  const bool accurate =
      equal_within_type(leaf, rule.change) || within(verdict.rho, rho_bound(rule.precision, rule.change));
  if (rule.rho_always || rho_required(rule.precision, rule.change)) {
    if (!accurate) verdict.failure = RejectReason::kRho;
  } else if (!close && !(accurate && (half || rule.float64_fallback))) {
    verdict.failure = RejectReason::kTolerance;
  }
  // A policy's rho comes on top of gate 2's allclose, never instead of it.
  if (!verdict.failure && !close && !half && !rule.float64_fallback) verdict.failure = RejectReason::kTolerance;
  return verdict;
}

ComparisonVerdict judge_comparison(const Comparison& comparison, const AccuracyRule& rule) {
  ComparisonVerdict verdict;
  if (!comparison.structure_equal || comparison.leaves.empty()) {
    verdict.failure = RejectReason::kStructure;
    verdict.evidence = {{"leaves", comparison.leaves.size()}};
    return verdict;
  }
  nlohmann::json failures = nlohmann::json::array();
  const LeafComparison* worst = nullptr;
  size_t failed = 0;
  for (const LeafComparison& leaf : comparison.leaves) {
    const LeafVerdict one = judge_leaf(leaf, rule);
    if (one.rho && (!verdict.rho || std::isnan(*one.rho) || *one.rho > *verdict.rho)) {
      if (!verdict.rho || !std::isnan(*verdict.rho)) {
        verdict.rho = one.rho;
        worst = &leaf;
      }
    }
    if (!one.failure) continue;
    if (!verdict.failure) verdict.failure = one.failure;
    if (++failed > kMaxLeavesShown) continue;
    nlohmann::json shown = leaf_to_json(leaf);
    shown["reason"] = reject_reason_name(*one.failure);
    failures.push_back(std::move(shown));
  }
  verdict.evidence = {{"leaves", comparison.leaves.size()}, {"failed", failed}};
  if (failed > 0) verdict.evidence["failures"] = std::move(failures);
  if (worst) verdict.evidence["worst"] = leaf_to_json(*worst);
  return verdict;
}

}  // namespace kernelopt
