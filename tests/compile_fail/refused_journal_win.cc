// error: private within this context
// Journaling a win that was put together by hand.
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/reader.h"

namespace kernelopt {

Status refused(Journal& journal, Win win, ReleaseSet set) {
  return journal.add_outcome(ModelOutcome(Optimized(std::move(win), std::move(set))));
}

}  // namespace kernelopt
