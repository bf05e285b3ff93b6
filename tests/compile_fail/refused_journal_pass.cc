// error: no matching function|cannot convert
// Journaling a pass without one.
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/reader.h"

namespace kernelopt {

Status refused(Journal& journal, const Candidate& candidate) { return journal.add_pass(candidate); }

}  // namespace kernelopt
