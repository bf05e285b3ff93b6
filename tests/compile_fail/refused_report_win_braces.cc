// error: private within this context|could not convert
// Reporting an outcome made of braces.
#include "kernelopt/journal/reader.h"

namespace kernelopt {

RecordedOutcome refused() { return {"optimized", "optimized", "fast"}; }

}  // namespace kernelopt
