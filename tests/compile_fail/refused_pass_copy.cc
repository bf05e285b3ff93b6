// error: use of deleted function
// Copying a pass.
#include "kernelopt/gates/gates.h"

namespace kernelopt {

Gate2Pass refused(const Gate2Pass& pass) { return pass; }

}  // namespace kernelopt
