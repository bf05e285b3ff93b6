// error: could not convert|cannot convert|invalid initialization
// Releasing candidates that passed no gate.
#include "kernelopt/gates/outcome.h"

namespace kernelopt {

auto refused(std::vector<Candidate> candidates) { return release(std::move(candidates)); }

}  // namespace kernelopt
