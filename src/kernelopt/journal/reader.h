// The reading side of the journal, for the report and for resuming. Read only; may look on while a run writes.
//
// What comes back are records of what was decided. None of them is a pass, and nothing turns one into a pass: before a
// release, a resumed run takes its finalists through the gates again.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernelopt/journal/records.h"
#include "kernelopt/journal/sqlite.h"
#include "kernelopt/measure/statistics.h"

namespace kernelopt {

enum class RecordedVerdictKind { kPass, kRejected, kError };

struct RecordedVerdict {
  std::string candidate, group;
  std::optional<std::string> set;
  std::string fingerprint;
  int gate;
  RecordedVerdictKind kind;
  std::optional<std::string> reason;
  nlohmann::json evidence;
};

struct RecordedCandidate {
  std::string digest, group;
  std::optional<int64_t> attempt;
  nlohmann::json document;  // kernelopt.candidate
};

struct RecordedAttempt {
  int64_t id;
  AttemptRecord attempt;
};

struct RecordedSession {
  double at;
  SessionStart session;
};

// How a run ended. Only the reader makes one, from a row that only Journal::add_outcome writes; the report shows these.
class RecordedOutcome {
 public:
  struct Kernel {
    std::string group, candidate;
    nlohmann::json document, evidence;
  };
  const std::string& kind() const { return kind_; }  // optimized, matched, fallback, eager
  const std::string& ships() const { return ships_; }
  const std::string& reason() const { return reason_; }
  const std::optional<std::string>& set() const { return set_; }
  std::optional<double> ratio() const { return ratio_; }
  std::optional<ConfidenceInterval> interval() const { return interval_; }
  const nlohmann::json& data() const { return data_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }  // of a win only

 private:
  friend class JournalReader;
  RecordedOutcome() {}
  std::string kind_, ships_, reason_;
  std::optional<std::string> set_;
  std::optional<double> ratio_;
  std::optional<ConfidenceInterval> interval_;
  nlohmann::json data_;
  std::vector<Kernel> kernels_;
};

// What a resume need not do again for one candidate on one device: gates 1 and 2 decided, times taken.
struct CandidateProgress {
  std::map<int, RecordedVerdictKind> gates;  // the last verdict of each; an error is not a verdict and is left out
  std::optional<PairedSamples> times;        // every group timing of it, joined
  bool rejected() const;
  bool finished() const { return rejected() || (gates.count(1) && gates.count(2) && times); }
};

class JournalReader {
 public:
  // kBadInput where there is no journal or not one of ours.
  static Result<JournalReader> open(const std::filesystem::path& folder);

  Result<std::vector<RecordedSession>> sessions() const;
  Result<std::vector<BaselineTime>> baselines() const;
  Result<std::vector<ProgramRecord>> programs() const;
  Result<std::vector<GroupRecord>> groups() const;
  Result<std::vector<RecordedAttempt>> attempts(const std::string& group) const;
  Result<std::vector<RecordedCandidate>> candidates(const std::string& group) const;
  Result<std::vector<RecordedVerdict>> verdicts() const;
  Result<std::vector<RecordedVerdict>> verdicts(const std::string& candidate) const;
  Result<std::vector<TimingRecord>> timings(const std::string& subject) const;
  // The last one.
  Result<std::optional<RecordedOutcome>> outcome() const;
  // Seconds by stage, all sessions together.
  Result<std::map<std::string, Seconds>> stages() const;
  Result<std::vector<nlohmann::json>> notes(const std::string& kind) const;

  // By candidate digest.
  Result<std::map<std::string, CandidateProgress>> progress(const std::string& group, const std::string& fingerprint) const;

 private:
  explicit JournalReader(sqlite::Database database) : database_(std::move(database)) {}
  sqlite::Database database_;
};

}  // namespace kernelopt
