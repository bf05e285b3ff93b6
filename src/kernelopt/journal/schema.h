// Schema of journal.sqlite. Append-only: triggers refuse every UPDATE and DELETE. `PRAGMA user_version` holds the version;
// a new version adds columns or tables and an entry to kMigrations, and keeps a sample of the old one under testdata/.
#pragma once

#include "kernelopt/journal/sqlite.h"

namespace kernelopt {

inline constexpr int kJournalVersion = 1;

// Creates or upgrades. kBadInput for a file of a newer version or of another program.
Status prepare_schema(sqlite::Database& database);
// For readers: nothing is changed. kBadInput as above.
Status check_schema(const sqlite::Database& database);

}  // namespace kernelopt
