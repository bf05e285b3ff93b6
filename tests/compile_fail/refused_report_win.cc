// error: private within this context
// Reporting an outcome that no journal holds.
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/reader.h"

namespace kernelopt {

RecordedOutcome refused() { return RecordedOutcome(); }

}  // namespace kernelopt
