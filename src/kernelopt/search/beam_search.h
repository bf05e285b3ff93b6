// Beam search over kernel plans: Algorithm 1 of the paper (DESIGN.md section 7). The only loop of the engine that tries
// candidates. It is untrusted: what it finds has still to pass gates 3 and 4.
#pragma once

#include <functional>

#include "kernelopt/search/agents.h"
#include "kernelopt/search/select.h"

namespace kernelopt {

struct BeamSearch {
  SearchSizes sizes;
  Outlook outlook;
  std::function<bool()> out_of_time = [] { return false; };
  std::function<bool()> stop_requested = [] { return false; };
  Predictor* predictor = nullptr;  // told of every attempt; may be null
  int batch = 4;  // candidates evaluated between two looks at the clock

  // Every round tries exactly N new plans (fewer only when none is left). A plan whose kernel equals an earlier one is
  // recorded as a duplicate and does not count.
  SearchResult run(Planner& planner, Executor& executor, Evaluator& evaluator, SearchObserver& observer) const;
};

}  // namespace kernelopt
