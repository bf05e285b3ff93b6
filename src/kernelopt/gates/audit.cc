#include "kernelopt/gates/audit.h"

#include <set>

#include "kernelopt/gates/accuracy.h"
#include "kernelopt/gates/tolerances.h"

namespace kernelopt {
namespace {

using nlohmann::json;

// The audit speaks for gates 2 and 3 at once; its outcomes are filed under the model's gate.
constexpr int kModel = 3;

using Outcome = std::variant<BaselineSound, EagerFallback, Faulted>;

// Nothing while the request may still succeed.
std::optional<EagerFallback> compiler_failure(const Error& error, int attempts) {
  const auto judged = judge_failure(kModel, error, attempts);
  const auto* rejected = std::get_if<Rejected>(&judged);
  if (!rejected) return std::nullopt;
  return EagerFallback{EagerReason::kCompilerFailed, "the compiler's program failed: " + error.to_string(), rejected->data};
}

}  // namespace

const char* eager_reason_name(EagerReason reason) {
  switch (reason) {
    case EagerReason::kCompilerFailed: return "compiler failed";
    case EagerReason::kDisagrees: return "compiler disagrees with eager";
    case EagerReason::kUnverifiable: return "cannot be checked";
  }
  return "unknown";
}

Outcome BaselineAudit::decide(const AuditObservation& observation) {
  KO_CHECK(!observation.fingerprint.empty(), "a baseline audit without a device fingerprint");
  std::optional<Faulted> fault;
  const auto note_fault = [&](const Error& error, int attempts) {
    if (!fault) fault = Faulted{kModel, error.to_string(), {{"attempts", attempts}}};
  };

  // Without a reference nothing below means anything.
  json degenerate = json::array();
  for (const auto& observed : observation.references) {
    if (!observed.result.ok()) {
      note_fault(observed.result.error(), observed.attempts);
      continue;
    }
    const ReferenceFacts& facts = *observed.result;
    if (!facts.deterministic)
      return EagerFallback{EagerReason::kUnverifiable,
                           facts.reasons.empty() ? "eager disagrees with itself" : facts.reasons.front(),
                           {{"reasons", facts.reasons}}};
    degenerate.push_back(
        {{"constant_output", facts.constant_output}, {"independent_of_inputs", facts.independent_of_inputs}});
  }

  const AccuracyRule rule = model_rule(observation.precision, Change::kRewrite);
  std::set<uint64_t> seeds;
  json runs = json::array();
  std::set<std::string> inaccurate;
  for (const auto& observed : observation.runs) {
    if (!observed.result.ok()) {
      if (auto fallback = compiler_failure(observed.result.error(), observed.attempts)) return std::move(*fallback);
      note_fault(observed.result.error(), observed.attempts);
      continue;
    }
    const ModelRun& run = *observed.result;
    const ComparisonVerdict verdict = judge_comparison(run.comparison, rule);
    json shown = {{"seed", run.seed}, {"calls", run.calls}};
    shown.update(verdict.evidence);
    if (verdict.failure)
      return EagerFallback{EagerReason::kDisagrees,
                           std::string("the compiler's program and eager: ") + reject_reason_name(*verdict.failure),
                           std::move(shown)};
    for (const LeafComparison& leaf : run.comparison.leaves)
      if (has_lost_digits(leaf)) inaccurate.insert(leaf.path);
    runs.push_back(std::move(shown));
    seeds.insert(run.seed);
  }
  if (fault) return std::move(*fault);
  if (seeds.size() < static_cast<size_t>(tolerance::kMinSeeds) || observation.references.size() < seeds.size())
    return Faulted{kModel, "too few seeds in the baseline audit", {{"seeds", seeds.size()}}};

  const AccuracyRule group_tolerance = group_rule(observation.precision, Change::kRewrite);
  std::vector<std::pair<std::string, std::string>> excluded;
  for (const GroupAudit& group : observation.groups) {
    std::string why = group.comparisons.empty() ? "the compiler's kernels were not compared with the reference" : "";
    for (const auto& observed : group.comparisons) {
      if (!observed.result.ok()) {
        why = "could not be compared: " + observed.result.error().to_string();
        continue;
      }
      const ComparisonVerdict verdict = judge_comparison(*observed.result, group_tolerance);
      if (!verdict.failure) continue;
      if (group.reference_confirmed) {
        json data = verdict.evidence;
        data["group"] = group.group;
        return EagerFallback{EagerReason::kDisagrees,
                             std::string("the compiler's kernels of one group and eager: ") +
                                 reject_reason_name(*verdict.failure),
                             std::move(data)};
      }
      why = std::string("reference and compiler: ") + reject_reason_name(*verdict.failure);
    }
    if (!why.empty()) excluded.emplace_back(group.group, why);
  }

  json evidence = {{"runs", std::move(runs)}, {"references", std::move(degenerate)}, {"excluded", json::array()}};
  for (const auto& [group, why] : excluded) evidence["excluded"].push_back({{"group", group}, {"why", why}});
  if (!inaccurate.empty()) evidence["inaccurate"] = inaccurate;
  return BaselineSound(observation.fingerprint, std::move(excluded), {inaccurate.begin(), inaccurate.end()}, std::move(evidence));
}

}  // namespace kernelopt
