// PlanSpace: every kernel plan that can express a group, reached by named transformations from a seed plan. Ask-and-tell:
// the search picks moves, the code generator prints the plan that a move leads to. Pure; no measuring here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/fusion/group.h"
#include "kernelopt/plan/kernel_plan.h"
#include "kernelopt/target/target.h"

namespace kernelopt {

// A transformation applied to a plan: what kind (for memory and diversity), what it did (for people), where it leads.
struct Move {
  TransformKind kind;
  std::string description;
  KernelPlan plan;
};

class PlanSpace {
 public:
  // kUnsupported, with the reason, when no plan can express the group.
  static Result<PlanSpace> create(const Program& program, const Group& group, const Target& target);

  // The plan closest to what the compiler generated.
  const KernelPlan& seed() const;
  // Strong starting points, best guess first, each different in more than sizes where the group allows it.
  std::vector<Move> starts() const;
  // Every legal single transformation of `plan`, in a fixed order.
  std::vector<Move> moves(const KernelPlan& plan) const;
  Status check(const KernelPlan& plan) const;

 private:
  struct Impl;
  explicit PlanSpace(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// Identity of a plan: equal keys print equal kernels.
std::string plan_key(const KernelPlan& plan);
// Identity of a plan without its sizes (tiles, unroll factors): plans of different shape_key differ in more than sizes.
std::string plan_shape_key(const KernelPlan& plan);
nlohmann::json plan_to_json(const KernelPlan& plan);

}  // namespace kernelopt
