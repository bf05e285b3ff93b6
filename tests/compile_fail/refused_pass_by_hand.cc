// error: private within this context
// Minting a pass outside its gate.
#include "kernelopt/gates/gates.h"

namespace kernelopt {

Gate4Pass refused(Gate3Pass pass, RatioEstimate race) { return Gate4Pass(std::move(pass), race, {}); }

}  // namespace kernelopt
