// error: private within this context
// A win from a measurement alone.
#include "kernelopt/gates/outcome.h"

namespace kernelopt {

Win refused(RatioEstimate race) { return Win(race, "set"); }

}  // namespace kernelopt
