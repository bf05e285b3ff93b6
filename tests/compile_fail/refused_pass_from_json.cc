// error: no matching function|cannot convert|could not convert
// Reading a pass back from its evidence.
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/reader.h"

namespace kernelopt {

Gate1Pass refused(const nlohmann::json& evidence) { return evidence.get<Gate1Pass>(); }

}  // namespace kernelopt
