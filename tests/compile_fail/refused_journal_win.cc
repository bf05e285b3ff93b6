// error: private within this context
// Journaling a win that was put together by hand.
#include "kernelopt/journal/journal.h"

namespace kernelopt {

Status refused(Journal& journal, Win win, ReleaseSet set) {
  return journal.add_outcome(ModelOutcome(Optimized(std::move(win), std::move(set))));
}

}  // namespace kernelopt
