// error: no matching function|cannot convert|could not convert
// Reading a pass back from its evidence.
#include "kernelopt/gates/gates.h"

namespace kernelopt {

Gate1Pass refused(const nlohmann::json& evidence) { return evidence.get<Gate1Pass>(); }

}  // namespace kernelopt
