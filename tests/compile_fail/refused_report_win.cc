// error: private within this context
// Reporting an outcome that no journal holds.
#include "kernelopt/journal/reader.h"

namespace kernelopt {

RecordedOutcome refused() { return RecordedOutcome(); }

}  // namespace kernelopt
