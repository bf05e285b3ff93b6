// JournalRecorder: a Recorder over the run folder's journal.
#pragma once

#include <memory>
#include <string>

#include "recorder.h"

namespace kernelopt {

// A new journal for a new run, an earlier one moved aside (journal-1.sqlite, …), or the journal of an earlier run to go on
// with. `session.kind` says which. kBadInput when there is none to go on with.
Result<std::unique_ptr<Recorder>> open_recorder(const std::string& folder, const SessionStart& session);

// The options of the first session. kBadInput when there is no run.
Result<nlohmann::json> recorded_run(const std::string& folder);

}  // namespace kernelopt
