// The journal of one run folder: journal.sqlite, append-only. Every call is one transaction, durable when it returns
// (write-ahead log, synchronous = FULL): a process killed at any moment loses nothing that a call had finished.
//
// One writer at a time: a second one gets one clear error. Readers (reader.h) may look on meanwhile.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "kernelopt/gates/outcome.h"
#include "kernelopt/journal/records.h"
#include "kernelopt/journal/sqlite.h"

namespace kernelopt {

inline constexpr const char* kJournalFile = "journal.sqlite";

// Unix time in seconds; injected.
using Clock = std::function<double()>;
double system_time();

class Journal {
 public:
  // The folder must exist. kBadInput when another process writes there or the file is not ours; kIo when it cannot be written.
  static Result<Journal> open(const std::filesystem::path& folder, Clock clock = system_time);
  Journal(Journal&&) = default;
  Journal& operator=(Journal&&) = default;
  ~Journal() = default;

  // First call of every run and resume; all that follows belongs to it.
  Status begin(const SessionStart& session);

  Status add(const BaselineTime& baseline);
  Status add(const ProgramRecord& program);
  Status add(const GroupRecord& group);
  // Row id, for the candidate that comes of it.
  Result<int64_t> add(const AttemptRecord& attempt);
  Status add(const Candidate& candidate, std::optional<int64_t> attempt);
  Status add(const TimingRecord& timing);
  Status add(const StageSeconds& stage);
  // Anything else that a person or a resume may want: why a search ended, refused merges, … Kinds are the caller's.
  Status add_note(const std::string& kind, const nlohmann::json& data);

  // A pass is journaled from the pass itself.
  Status add_pass(const Gate1Pass& pass);
  Status add_pass(const Gate2Pass& pass);
  Status add_pass(const Gate3Set& set);
  Status add_pass(const Gate4Set& set);
  // Gates 1 and 2: of one candidate. Gates 3 and 4: the same for every member of the set.
  Status add_verdict(const Candidate& candidate, const std::string& fingerprint, const Rejected& rejected);
  Status add_verdict(const Candidate& candidate, const std::string& fingerprint, const Faulted& faulted);
  Status add_verdict(const StitchedSet& set, const Rejected& rejected);
  Status add_verdict(const StitchedSet& set, const Faulted& faulted);
  Status add_verdict(const Gate3Set& set, const Rejected& rejected);
  Status add_verdict(const Gate3Set& set, const Faulted& faulted);

  // A win can only be journaled from the release that all four gates passed; its kernels are kept whole.
  Status add_outcome(const ModelOutcome& outcome);

 private:
  class Lock;
  Journal(std::shared_ptr<Lock> lock, sqlite::Database database, Clock clock)
      : lock_(std::move(lock)), database_(std::move(database)), clock_(std::move(clock)) {}

  struct VerdictRow;
  Status add_verdict_row(const VerdictRow& row);
  template <typename Set>
  Status add_set_verdict(const Set& set, int gate, const char* verdict, const std::optional<std::string>& reason,
                         const nlohmann::json& evidence);
  template <typename... Values>
  Result<int64_t> insert(const char* table, const char* columns, const Values&... values);

  std::shared_ptr<Lock> lock_;  // outlives the database
  sqlite::Database database_;
  Clock clock_;
  int64_t session_ = 0;
};

}  // namespace kernelopt
