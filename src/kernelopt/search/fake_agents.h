// Fakes of the search's agents, for tests: a space of plans that differ in lanes (shape) and threads (size), a printer that
// writes them down, and an evaluator that answers by a function.
#pragma once

#include <functional>

#include "kernelopt/search/agents.h"

namespace kernelopt {

class FakePlanSource final : public PlanSource {
 public:
  std::vector<Move> start_moves;
  std::function<std::vector<Move>(const KernelPlan&)> on_moves = [](const KernelPlan&) { return std::vector<Move>(); };
  KernelPlan seed_plan;

  const KernelPlan& seed() const override { return seed_plan; }
  std::vector<Move> starts() const override { return start_moves; }
  std::vector<Move> moves(const KernelPlan& plan) const override { return on_moves(plan); }
};

// A plan that says who it is: `unroll` of its one nest, and rewrites as its shape.
inline KernelPlan fake_plan(int shape, int size) {
  KernelPlan plan;
  plan.nests.resize(1);
  plan.nests[0].bodies = {"op0"};
  plan.nests[0].unroll = size;
  plan.rewrites.push_back({RewriteKind::kInline, "buf" + std::to_string(shape), 0});
  return plan;
}
inline int fake_shape(const KernelPlan& plan) { return std::stoi(plan.rewrites.at(0).target.substr(3)); }
inline int fake_size(const KernelPlan& plan) { return plan.nests.at(0).unroll; }

inline Candidate fake_candidate(const std::string& source, const std::string& group = "group") {
  CandidateParts parts;
  parts.language = "cpp";
  parts.group = group;
  parts.kernels.push_back({"kernel0", source, {{"b0", DType::kFloat32, ParamRole::kIn}, {"b1", DType::kFloat32, ParamRole::kOut}}});
  parts.launches.push_back({"kernel0", {"b0", "b1"}});
  return Candidate(std::move(parts));
}

class FakeExecutor final : public Executor {
 public:
  std::function<Result<Candidate>(const KernelPlan&)> on_write = [](const KernelPlan& plan) -> Result<Candidate> {
    return fake_candidate("shape " + std::to_string(fake_shape(plan)) + " size " + std::to_string(fake_size(plan)));
  };
  Result<Candidate> write(const Proposal& proposal) override { return on_write(proposal.plan); }
  std::function<std::optional<Result<Candidate>>(const Proposal&, const std::string&)> on_repair;
  std::optional<Result<Candidate>> repair(const Proposal& proposal, const std::string& reason) override {
    return on_repair ? on_repair(proposal, reason) : std::nullopt;
  }
};

class FakeEvaluator final : public Evaluator {
 public:
  std::function<Result<Evaluation>(const Candidate&)> on_evaluate;
  std::vector<size_t> batches;

  Result<std::vector<Evaluation>> evaluate(const std::vector<Candidate>& candidates) override {
    batches.push_back(candidates.size());
    std::vector<Evaluation> result;
    for (const auto& candidate : candidates) {
      KO_TRY(Evaluation evaluation, on_evaluate(candidate));
      result.push_back(std::move(evaluation));
    }
    return result;
  }
};

inline Evaluation passed_at(double ratio) {
  return {AttemptState::kPassed, "", Measured{ratio, ratio * 0.99, ratio * 1.01, 1e-3, 1e-3 * ratio}};
}

class RecordingObserver final : public SearchObserver {
 public:
  std::vector<Attempt> attempts;
  std::vector<std::vector<int>> beams;
  void attempted(const Attempt& attempt) override { attempts.push_back(attempt); }
  void round_done(int, const std::vector<Attempt>&, const std::vector<int>& beam) override { beams.push_back(beam); }
};

}  // namespace kernelopt
