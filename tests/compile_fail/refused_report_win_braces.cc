// error: private within this context|could not convert
// Reporting an outcome made of braces.
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/reader.h"

namespace kernelopt {

RecordedOutcome refused() { return {"optimized", "optimized", "fast"}; }

}  // namespace kernelopt
