// error: could not convert|private within this context|no matching function
// Minting a pass from braces.
#include "kernelopt/gates/gates.h"

namespace kernelopt {

Gate1Pass refused() { return {}; }

}  // namespace kernelopt
