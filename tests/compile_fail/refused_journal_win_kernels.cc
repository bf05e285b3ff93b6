// error: no matching function|could not convert|cannot convert
// Journaling a win from kernels without passes.
#include "kernelopt/journal/journal.h"

namespace kernelopt {

Status refused(Journal& journal, std::vector<Candidate> kernels) { return journal.add_outcome(std::move(kernels)); }

}  // namespace kernelopt
