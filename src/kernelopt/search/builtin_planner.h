// BuiltinPlanner: proposes plans without a network (DESIGN.md section 7). Starting points first; then single transformations
// of the beam's plans, kinds that paid so far before kinds that did not, new shapes before new sizes early on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "kernelopt/search/agents.h"
#include "kernelopt/search/bottleneck.h"
#include "kernelopt/search/strategy_memory.h"

namespace kernelopt {

// PlanSpace as a PlanSource.
class SpacePlanSource final : public PlanSource {
 public:
  explicit SpacePlanSource(PlanSpace space) : space_(std::move(space)) {}
  const KernelPlan& seed() const override { return space_.seed(); }
  std::vector<Move> starts() const override { return space_.starts(); }
  std::vector<Move> moves(const KernelPlan& plan) const override { return space_.moves(plan); }

 private:
  PlanSpace space_;
};

// How promising a kind of transformation is before anything was measured: a log gain.
double prior_gain(Bottleneck bottleneck, TransformKind kind);

// The mean log gain of each kind over the parents of the attempts that used it. A candidate that failed or was no faster
// counts as no gain.
struct KindRecord {
  int tried = 0;
  double log_gain = 0;  // sum
};
std::map<TransformKind, KindRecord> kind_records(const std::vector<Attempt>& history);

class BuiltinPlanner final : public Planner {
 public:
  // Memory and predictor may be null and must outlive the planner.
  BuiltinPlanner(std::shared_ptr<const PlanSource> source, Bottleneck bottleneck, uint64_t seed,
                 const StrategyMemory* memory = nullptr, const Predictor* predictor = nullptr);
  std::vector<Proposal> propose(const PlanRequest& request) override;

 private:
  std::shared_ptr<const PlanSource> source_;
  Bottleneck bottleneck_;
  uint64_t seed_;
  const StrategyMemory* memory_;
  const Predictor* predictor_;

  // The expected log gain of a kind: prior, what this device remembers, what this search has seen.
  double kind_gain(TransformKind kind, const KindRecord& record) const;
  std::vector<Move> starts() const;
};

// One in so many rounds may still be spent on new shapes before sizes are as good.
inline constexpr double kShapeRounds = 0.6;

}  // namespace kernelopt
