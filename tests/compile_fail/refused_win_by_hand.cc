// error: private within this context
// A win from a measurement alone.
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/reader.h"

namespace kernelopt {

Win refused(RatioEstimate race) { return Win(race, "set"); }

}  // namespace kernelopt
