// The report of a run: report.json (docs/report.schema.json) from the pipeline's state and the journal, and text from
// report.json. Decides nothing.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "model_state.h"
#include "options.h"
#include "recorder.h"

namespace kernelopt {

inline constexpr int kReportVersion = 1;

// What `report.json` holds. `interrupted`: the run was stopped and has no outcome yet.
Result<nlohmann::json> make_report(const ModelState& state, const Options& options, const Recorder& recorder, double seconds,
                                   bool interrupted);

// The dispatch map alone, as `inspect --json` prints it.
nlohmann::json make_dispatch_map(const ModelState& state);

// The one line that a run ends with: what ships and why, gain, narrower formats used or none.
std::string verdict_line(const nlohmann::json& report);
// For people: table of modes, dispatch map, search, outcome.
std::string report_text(const nlohmann::json& report);
std::string dispatch_text(const nlohmann::json& map);

// Writes through a temporary file, so that a reader never sees half of it.
Status write_text(const std::string& path, const std::string& text);
Result<nlohmann::json> read_json(const std::string& path);

}  // namespace kernelopt
