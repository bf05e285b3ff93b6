#include "kernelopt/journal/schema.h"

#include <string>

namespace kernelopt {
namespace {

// "kopt": tells our files from other SQLite databases.
constexpr int64_t kApplicationId = 0x6b6f7074;

// Times are seconds; `at` is Unix time. Every row belongs to the session (start or resume) that wrote it. JSON columns hold
// text. Samples are lists of seconds per call.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE sessions(id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL CHECK(kind IN ('start', 'resume')),
  version TEXT NOT NULL, model TEXT NOT NULL, model_digest TEXT NOT NULL, fingerprint TEXT NOT NULL, options TEXT NOT NULL);
CREATE TABLE baselines(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  mode TEXT NOT NULL, samples TEXT NOT NULL, compile_seconds REAL, first_call_seconds REAL, peak_bytes INTEGER, error TEXT);
CREATE TABLE programs(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  mode TEXT NOT NULL, graph INTEGER NOT NULL, digest TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE groups(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  graph INTEGER NOT NULL, digest TEXT NOT NULL, steps TEXT NOT NULL, kept TEXT, facts TEXT NOT NULL);
CREATE TABLE attempts(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  group_digest TEXT NOT NULL, round INTEGER NOT NULL, chain INTEGER NOT NULL, transform TEXT NOT NULL,
  description TEXT NOT NULL, plan_key TEXT NOT NULL, shape_key TEXT NOT NULL, plan TEXT NOT NULL, parent TEXT);
CREATE TABLE candidates(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  attempt INTEGER REFERENCES attempts, digest TEXT NOT NULL, group_digest TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE verdicts(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  candidate TEXT NOT NULL, group_digest TEXT NOT NULL, set_digest TEXT, fingerprint TEXT NOT NULL,
  gate INTEGER NOT NULL CHECK(gate BETWEEN 1 AND 4), verdict TEXT NOT NULL CHECK(verdict IN ('pass', 'rejected', 'error')),
  reason TEXT, evidence TEXT NOT NULL);
CREATE TABLE timings(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  kind TEXT NOT NULL CHECK(kind IN ('group', 'model', 'aa')), subject TEXT NOT NULL, fingerprint TEXT NOT NULL,
  baseline TEXT NOT NULL, candidate TEXT NOT NULL, warmup_seconds REAL NOT NULL, repetition_seconds REAL NOT NULL);
CREATE TABLE outcomes(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  kind TEXT NOT NULL CHECK(kind IN ('optimized', 'matched', 'fallback', 'eager')), ships TEXT NOT NULL, reason TEXT NOT NULL,
  set_digest TEXT, fingerprint TEXT, ratio REAL, low REAL, high REAL, data TEXT NOT NULL,
  CHECK((kind = 'optimized') = (set_digest IS NOT NULL)));
CREATE TABLE wins(id INTEGER PRIMARY KEY, outcome INTEGER NOT NULL REFERENCES outcomes, group_digest TEXT NOT NULL,
  candidate TEXT NOT NULL, document TEXT NOT NULL, evidence TEXT NOT NULL);
CREATE TABLE stages(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  name TEXT NOT NULL, seconds REAL NOT NULL);
CREATE TABLE notes(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  kind TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX attempts_by_group ON attempts(group_digest);
CREATE INDEX candidates_by_digest ON candidates(digest);
CREATE INDEX verdicts_by_candidate ON verdicts(candidate, gate);
CREATE INDEX timings_by_subject ON timings(subject);
CREATE INDEX notes_by_kind ON notes(kind);
)sql";

constexpr const char* kTables[] = {"sessions", "baselines", "programs", "groups", "attempts", "candidates", "verdicts",
                                   "timings", "outcomes", "wins", "stages", "notes"};

Status append_only(sqlite::Database& database) {
  for (const std::string table : kTables)
    for (const std::string verb : {"UPDATE", "DELETE"})
      KO_RETURN_IF_ERROR(database.execute("CREATE TRIGGER " + table + "_no_" + verb + " BEFORE " + verb + " ON " + table +
                                          " BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"));
  return ok_status();
}

Result<int64_t> version_of(const sqlite::Database& database) {
  KO_TRY(int64_t id, database.integer("PRAGMA application_id"));
  KO_TRY(int64_t version, database.integer("PRAGMA user_version"));
  KO_TRY(int64_t tables, database.integer("SELECT count(*) FROM sqlite_master"));
  if (id == 0 && version == 0 && tables == 0) return int64_t{0};
  if (id != kApplicationId) return Error(ErrorCode::kBadInput, "not a journal of KernelOPT");
  if (version < 1 || version > kJournalVersion)
    return Error(ErrorCode::kBadInput, "the journal has version " + std::to_string(version) + "; this program knows version " +
                                           std::to_string(kJournalVersion));
  return version;
}

}  // namespace

Status prepare_schema(sqlite::Database& database) {
  KO_TRY(int64_t version, version_of(database));
  if (version == kJournalVersion) return ok_status();
  KO_TRY(auto transaction, sqlite::Transaction::begin(database));
  KO_RETURN_IF_ERROR(database.execute(kVersion1));
  KO_RETURN_IF_ERROR(append_only(database));
  KO_RETURN_IF_ERROR(database.execute("PRAGMA application_id = " + std::to_string(kApplicationId)));
  KO_RETURN_IF_ERROR(database.execute("PRAGMA user_version = " + std::to_string(kJournalVersion)));
  return transaction.commit();
}

Status check_schema(const sqlite::Database& database) {
  KO_TRY(int64_t version, version_of(database));
  if (version == 0) return Error(ErrorCode::kBadInput, "the journal is empty");
  return ok_status();
}

}  // namespace kernelopt
