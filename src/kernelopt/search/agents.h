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

struct PlanRequest {
  const std::vector<Attempt>* history = nullptr;
  const Attempt* parent = nullptr;           // the beam entry to improve; null: the baseline
  const std::set<std::string>* seen = nullptr;  // plan keys that were tried
  int round = 1, rounds = 1;
  bool starts_only = false;                  // parent is null: starting points that were not tried, nothing else
  int count = 1;                             // at most this many
};

// Proposes distinct plans that are not in `seen`, best first; fewer than asked when it has no more.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::vector<Move> propose(const PlanRequest& request) = 0;
};

// Writes the candidate of a plan. kUnsupported or kCandidate where it cannot.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual Result<Candidate> write(const KernelPlan& plan) = 0;
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
