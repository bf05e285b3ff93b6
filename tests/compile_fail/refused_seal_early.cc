// error: no matching function for call to .*VerifiedKernel
// Sealing a kernel before gate 4.
#include "kernelopt/gates/outcome.h"

namespace kernelopt {

VerifiedKernel refused(Gate3Pass pass) { return VerifiedKernel(std::move(pass)); }

}  // namespace kernelopt
