// The agents of the search as interfaces (DESIGN.md section 7). Built-in ones stand in builtin_planner.h and executor.h; all
// have fakes in fake_agents.h. Nothing that they return is trusted: the gates decide.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "kernelopt/base/result.h"
#include "kernelopt/plan/plan_space.h"
#include "kernelopt/search/records.h"

namespace kernelopt {

// Where plans come from. PlanSpace behind an interface, so that the loop is tested without one.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  virtual const KernelPlan& seed() const = 0;
  virtual std::vector<Move> starts() const = 0;
  virtual std::vector<Move> moves(const KernelPlan& plan) const = 0;
};

// A plan to try. With a brief, it is written after the brief by an executor that can, and the plan is only where it starts.
struct Proposal : Move {
  std::string brief;
  Proposal(Move move, std::string text = "") : Move(std::move(move)), brief(std::move(text)) {}
};
// Identity of a proposal.
inline std::string proposal_key(const Move& move, const std::string& brief) {
  return brief.empty() ? plan_key(move.plan) : plan_key(move.plan) + "\n" + brief;
}

struct PlanRequest {
  const std::vector<Attempt>* history = nullptr;
  const Attempt* parent = nullptr;           // the beam entry to improve; null: the baseline
  const std::set<std::string>* seen = nullptr;  // plan keys that were tried
  int round = 1, rounds = 1;
  bool starts_only = false;                  // parent is null: starting points that were not tried, nothing else
  int count = 1;                             // at most this many
  bool diversify = false;                    // recent plans were all alike (melted_down): other approaches first
};

// Proposes distinct plans that are not in `seen`, best first; fewer than asked when it has no more.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::vector<Proposal> propose(const PlanRequest& request) = 0;
};

// Writes the candidate of a plan. kUnsupported or kCandidate where it cannot.
class Executor {
 public:
  virtual ~Executor() = default;
  // Told of proposals that will be written soon, so that slow work for them can go on side by side.
  virtual void prepare(const std::vector<Proposal>& proposals) { (void)proposals; }
  virtual Result<Candidate> write(const Proposal& proposal) = 0;
  // Another try after a refusal, which may have come from `write` itself or from a gate; nothing: there is none. Asked for
  // at most kMaxRepairs times a proposal.
  virtual std::optional<Result<Candidate>> repair(const Proposal& proposal, const std::string& reason) {
    (void)proposal, (void)reason;
    return std::nullopt;
  }
};
inline constexpr int kMaxRepairs = 2;

// Expects log ratios before anything is compiled. Orders plans; decides nothing.
class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual std::optional<double> predict(const KernelPlan& plan) const = 0;
  virtual void learn(const Attempt& attempt) = 0;
  virtual double confidence() const = 0;  // in [0, 1)
};

// Compiles candidates, runs gates 1 and 2, races survivors against the baseline. One evaluation a candidate, in order. An error
// ends the group's search (kInterrupted, or infrastructure that restarts did not mend); a bad candidate is no error.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  virtual Result<std::vector<Evaluation>> evaluate(const std::vector<Candidate>& candidates) = 0;
};

// Told as things happen, for the journal and for progress.
class SearchObserver {
 public:
  virtual ~SearchObserver() = default;
  virtual void attempted(const Attempt& attempt) = 0;
  virtual void round_done(int round, const std::vector<Attempt>& attempts, const std::vector<int>& beam) = 0;
};

}  // namespace kernelopt
