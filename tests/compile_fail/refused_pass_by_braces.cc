// error: could not convert|private within this context|no matching function
// Minting a pass from braces.
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/reader.h"

namespace kernelopt {

Gate1Pass refused() { return {}; }

}  // namespace kernelopt
