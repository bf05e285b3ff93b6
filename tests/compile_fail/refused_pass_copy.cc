// error: use of deleted function
// Copying a pass.
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/reader.h"

namespace kernelopt {

Gate2Pass refused(const Gate2Pass& pass) { return pass; }

}  // namespace kernelopt
