// The options of a run as the journal keeps them, so that `resume` and `verify` work on the same terms.
#pragma once

#include <nlohmann/json.hpp>

#include "options.h"

namespace kernelopt {

nlohmann::json run_to_json(const Options& options);
// What the journal says, on top of this command's own folder, python, json and minutes.
Options options_of_run(const nlohmann::json& run, Options options);

}  // namespace kernelopt
