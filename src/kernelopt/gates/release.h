// Ranked release (DESIGN.md section 6): from ranked candidates a group to a set that passed gates 3 and 4. A pure algorithm
// over one question, "does this set pass?"; it mints nothing and returns only what the answer gave it.
//
// The fastest set is tried first. When it fails, the smallest faulty set of groups is found by delta debugging (bisection
// where one group is at fault), and only that set falls back to its next candidates, or to the baseline. Every set that
// passed on the way is kept, and the fastest of them is the result. Where several groups failed only together, each is then
// tried again on top of the result, so that no more of them stay behind than must.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "kernelopt/gates/decision.h"

namespace kernelopt {

// By group: the rank of the chosen candidate, 0 the fastest, or kBaseline.
using Choice = std::vector<int>;
inline constexpr int kBaseline = -1;

// Answer to one trial. Token is whatever a pass is (Gate4Set); ratio its measured time over the baseline's.
template <typename Token>
struct TrialPass {
  Token token;
  double ratio;
};
template <typename Token>
using Trial = std::variant<TrialPass<Token>, Rejected, Faulted>;

// What the search for a release did, for the report.
struct ReleaseStep {
  enum class Kind { kPassed, kRejected, kFaulted, kDemoted } kind;
  Choice choice;            // what was tried; for kDemoted, the choice that failed
  std::vector<int> groups;  // kDemoted: the groups that fall back
  bool minimal = false;     // kDemoted: no group of the set could be left out (false: the budget ended first)
  std::optional<Rejected> rejected;
  std::optional<Faulted> faulted;
};

template <typename Token>
struct ReleaseResult {
  std::optional<TrialPass<Token>> pass;  // none: nothing passed, the baseline ships
  Choice choice;                         // all kBaseline then
  std::optional<Faulted> fault;          // infrastructure ended the search early
  std::vector<ReleaseStep> steps;
};

struct ReleaseLimits {
  int max_trials = 64;   // questions asked, repeats included
  int fault_retries = 1; // of one set
};

template <typename Token>
class RankedRelease {
 public:
  // `candidates`: number of ranked candidates by group. `trial(choice)` returns Trial<Token>; it is never asked about the
  // baseline alone, nor twice about a set that it passed or rejected.
  template <typename TrialFunction>
  static ReleaseResult<Token> run(const std::vector<int>& candidates, TrialFunction&& trial, ReleaseLimits limits = {});

 private:
  enum class Verdict { kPass, kFail, kUnknown, kNoBudget };

  template <typename TrialFunction>
  class Search {
   public:
    Search(const std::vector<int>& candidates, TrialFunction& trial, ReleaseLimits limits)
        : candidates_(candidates), trial_(trial), limits_(limits) {}
    ReleaseResult<Token> run();

   private:
    Verdict ask(const Choice& choice);
    std::vector<int> minimal_fault(const Choice& choice, bool& minimal);
    void restore(const std::vector<std::pair<int, int>>& groups);  // each with the rank to try

    const std::vector<int>& candidates_;
    TrialFunction& trial_;
    ReleaseLimits limits_;
    int asked_ = 0;
    std::map<Choice, Verdict> known_;
    ReleaseResult<Token> result_;
  };
};

template <typename Token>
template <typename TrialFunction>
ReleaseResult<Token> RankedRelease<Token>::run(const std::vector<int>& candidates, TrialFunction&& trial,
                                               ReleaseLimits limits) {
  return Search<std::remove_reference_t<TrialFunction>>(candidates, trial, limits).run();
}

template <typename Token>
template <typename TrialFunction>
auto RankedRelease<Token>::Search<TrialFunction>::ask(const Choice& choice) -> Verdict {
  const bool baseline = std::all_of(choice.begin(), choice.end(), [](int rank) { return rank == kBaseline; });
  if (baseline) return Verdict::kPass;
  if (const auto found = known_.find(choice); found != known_.end()) return found->second;
  for (int attempt = 0; attempt <= limits_.fault_retries; ++attempt) {
    if (asked_ >= limits_.max_trials) return Verdict::kNoBudget;
    ++asked_;
    Trial<Token> answer = trial_(choice);
    ReleaseStep step{ReleaseStep::Kind::kPassed, choice, {}, false, std::nullopt, std::nullopt};
    if (auto* pass = std::get_if<TrialPass<Token>>(&answer)) {
      result_.steps.push_back(std::move(step));
      if (!result_.pass || pass->ratio < result_.pass->ratio) {
        result_.pass.emplace(std::move(*pass));
        result_.choice = choice;
      }
      return known_[choice] = Verdict::kPass;
    }
    if (auto* rejected = std::get_if<Rejected>(&answer)) {
      step.kind = ReleaseStep::Kind::kRejected;
      step.rejected = std::move(*rejected);
      result_.steps.push_back(std::move(step));
      return known_[choice] = Verdict::kFail;
    }
    step.kind = ReleaseStep::Kind::kFaulted;
    step.faulted = std::get<Faulted>(std::move(answer));
    result_.steps.push_back(std::move(step));
  }
  return known_[choice] = Verdict::kUnknown;
}

// Delta debugging (Zeller and Hildebrandt's ddmin) over the groups of a choice that failed: a subset of them that fails,
// and of which no single group can be left out. Subsets that cannot be decided count as not failing.
template <typename Token>
template <typename TrialFunction>
std::vector<int> RankedRelease<Token>::Search<TrialFunction>::minimal_fault(const Choice& choice, bool& minimal) {
  std::vector<int> suspects;
  for (size_t group = 0; group < choice.size(); ++group)
    if (choice[group] != kBaseline) suspects.push_back(static_cast<int>(group));
  minimal = true;
  size_t parts = 2;
  while (suspects.size() > 1) {
    parts = std::min(parts, suspects.size());
    std::vector<int> smaller;
    // Each part alone, then each part left out.
    for (size_t round = 0; round < 2 * parts && smaller.empty(); ++round) {
      const bool alone = round < parts;
      if (!alone && parts == 2) break;  // the complement of one half is the other
      const size_t part = alone ? round : round - parts;
      const size_t from = part * suspects.size() / parts, to = (part + 1) * suspects.size() / parts;
      std::vector<int> subset;
      for (size_t i = 0; i < suspects.size(); ++i)
        if ((i >= from && i < to) == alone) subset.push_back(suspects[i]);
      Choice tried(choice.size(), kBaseline);
      for (int group : subset) tried[group] = choice[group];
      const Verdict verdict = ask(tried);
      if (verdict == Verdict::kNoBudget) {
        minimal = false;
        return suspects;
      }
      if (verdict == Verdict::kFail) {
        smaller = std::move(subset);
        parts = alone ? 2 : std::max<size_t>(parts - 1, 2);
      }
    }
    if (!smaller.empty()) {
      suspects = std::move(smaller);
    } else {
      if (parts == suspects.size()) break;
      parts = std::min(2 * parts, suspects.size());
    }
  }
  return suspects;
}

// Puts groups back, one by one, on top of the best set so far.
template <typename Token>
template <typename TrialFunction>
void RankedRelease<Token>::Search<TrialFunction>::restore(const std::vector<std::pair<int, int>>& groups) {
  if (!result_.pass || result_.fault) return;
  for (const auto& [group, rank] : groups) {
    Choice choice = result_.choice;
    if (choice[group] != kBaseline && choice[group] <= rank) continue;
    choice[group] = rank;
    if (ask(choice) == Verdict::kNoBudget) return;
  }
}

template <typename Token>
template <typename TrialFunction>
ReleaseResult<Token> RankedRelease<Token>::Search<TrialFunction>::run() {
  Choice choice;
  for (int count : candidates_) choice.push_back(count > 0 ? 0 : kBaseline);
  result_.choice.assign(choice.size(), kBaseline);
  std::vector<std::pair<int, int>> left_behind;
  for (;;) {
    const Verdict verdict = ask(choice);
    if (verdict == Verdict::kPass || verdict == Verdict::kNoBudget) break;
    if (verdict == Verdict::kUnknown) {
      result_.fault = result_.steps.back().faulted;
      break;
    }
    bool minimal = true;
    std::vector<int> groups = minimal_fault(choice, minimal);
    ReleaseStep step{ReleaseStep::Kind::kDemoted, choice, groups, minimal, std::nullopt, std::nullopt};
    result_.steps.push_back(std::move(step));
    if (!minimal) break;
    for (int group : groups) {
      if (groups.size() > 1) left_behind.emplace_back(group, choice[group]);
      choice[group] = choice[group] + 1 < candidates_[group] ? choice[group] + 1 : kBaseline;
    }
  }
  // The best set may be one that the bisection met: then groups that are not at fault are missing from it as well.
  for (size_t group = 0; group < choice.size(); ++group)
    if (choice[group] != kBaseline) left_behind.emplace_back(static_cast<int>(group), choice[group]);
  restore(left_behind);
  return std::move(result_);
}

}  // namespace kernelopt
