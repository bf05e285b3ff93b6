// error: no matching function|cannot convert
// Journaling a pass without one.
#include "kernelopt/journal/journal.h"

namespace kernelopt {

Status refused(Journal& journal, const Candidate& candidate) { return journal.add_pass(candidate); }

}  // namespace kernelopt
