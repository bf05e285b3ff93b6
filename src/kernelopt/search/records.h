// Records of the search: plain data that the loop, the planner and the journal share (DESIGN.md section 7).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelopt/codegen/candidate.h"
#include "kernelopt/plan/kernel_plan.h"

namespace kernelopt {

enum class AttemptState {
  kPassed,     // compiled, right, measured
  kSlower,     // compiled, right on one input, and slower than the baseline or than what passed: the other inputs wait until it is wanted
  kRejected,   // the candidate's fault; the reason says why
  kError,      // infrastructure; says nothing about the candidate
  kDuplicate,  // the same kernel as an earlier attempt, recognised before compiling
};
const char* attempt_state_name(AttemptState state);

// A race against the group's compiler baseline.
struct Measured {
  double ratio = 1;                 // candidate over baseline, medians; below 1 is faster
  double low = 1, high = 1;         // its confidence interval
  double baseline_seconds = 0, candidate_seconds = 0;
};

// What came of one candidate.
struct Evaluation {
  AttemptState state = AttemptState::kError;
  std::string reason;                // for rejected and error
  std::optional<Measured> measured;  // passed and slower only
};

// One plan tried, in the order tried.
struct Attempt {
  int number = 0;  // from 1, over the whole group
  int round = 0;   // from 1
  int chain = 0;
  TransformKind kind = TransformKind::kSeed;
  std::string description;
  std::optional<double> predicted;     // log ratio that the cost model expected before it was measured
  std::optional<double> parent_ratio;  // of the plan that this one was made from; empty: the baseline
  KernelPlan plan;
  std::string brief;  // what a language model was asked to write; empty: the plan says all
  std::string plan_key, shape_key, digest;  // digest is empty when the plan could not be printed
  Evaluation evaluation;

  bool passed() const { return evaluation.state == AttemptState::kPassed && evaluation.measured.has_value(); }
  bool measured() const { return passed() || (evaluation.state == AttemptState::kSlower && evaluation.measured.has_value()); }
  double ratio() const { return evaluation.measured ? evaluation.measured->ratio : 1.0; }
};

// T, N, K, B of the paper's Algorithm 1.
struct SearchSizes {
  int rounds = 5, plans = 4, chains = 4, beam = 4;
};

enum class SearchStop {
  kRoundsDone,   // T rounds of N plans each
  kAtFloor,      // the best is at the floor
  kCannotPay,    // what is left to gain is below the margin
  kExhausted,    // no plan is left that was not tried
  kOutOfTime,
  kInterrupted,
  kNoPlan,       // the group cannot be expressed
  kError,        // infrastructure
};
const char* search_stop_name(SearchStop stop);

struct SearchResult {
  std::vector<Attempt> attempts;
  SearchStop stop = SearchStop::kRoundsDone;
  std::string stop_reason;  // one line
  int rounds = 0;           // finished
};

}  // namespace kernelopt
