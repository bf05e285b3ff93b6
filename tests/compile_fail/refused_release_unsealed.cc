// error: could not convert|cannot convert|invalid initialization
// Releasing with the passes of gate 2 only.
#include "kernelopt/gates/outcome.h"

namespace kernelopt {

auto refused(std::vector<Gate2Pass> passes) { return release(std::move(passes)); }

}  // namespace kernelopt
