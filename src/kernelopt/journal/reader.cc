#include "kernelopt/journal/reader.h"

#include <algorithm>

#include "kernelopt/journal/journal.h"
#include "kernelopt/journal/schema.h"

namespace kernelopt {
namespace {

using nlohmann::json;
using sqlite::Statement;

Result<json> parse(const Statement& row, int column) {
  json value = json::parse(row.text(column), nullptr, false);
  if (value.is_discarded()) return Error(ErrorCode::kIo, "journal: a column does not hold JSON");
  return value;
}

// Calls make(row) for every row of a query with the given parameters, in order, and collects what it returns.
template <typename T, typename Make, typename... Parameters>
Result<std::vector<T>> collect(const sqlite::Database& database, const char* sql, Make make,
                               const Parameters&... parameters) {
  KO_TRY(Statement statement, database.prepare(sql));
  int index = 1;
  Status status = ok_status();
  [[maybe_unused]] const auto bind = [&](const auto& value) {
    if (status.ok()) status = statement.bind(index++, value);
  };
  (bind(parameters), ...);
  KO_RETURN_IF_ERROR(std::move(status));
  std::vector<T> rows;
  for (;;) {
    KO_TRY(bool more, statement.step());
    if (!more) return rows;
    Result<T> row = make(statement);
    if (!row.ok()) return std::move(row).error();
    rows.push_back(std::move(row).value());
  }
}

constexpr const char* kVerdictColumns =
    "SELECT candidate, group_digest, set_digest, fingerprint, gate, verdict, reason, evidence FROM verdicts ";

Result<RecordedVerdict> read_verdict(const Statement& row) {
  RecordedVerdict verdict;
  verdict.candidate = row.text(0);
  verdict.group = row.text(1);
  verdict.set = row.optional_text(2);
  verdict.fingerprint = row.text(3);
  verdict.gate = static_cast<int>(row.integer(4));
  const std::string kind = row.text(5);
  verdict.kind = kind == "pass"       ? RecordedVerdictKind::kPass
                 : kind == "rejected" ? RecordedVerdictKind::kRejected
                                      : RecordedVerdictKind::kError;
  verdict.reason = row.optional_text(6);
  KO_TRY(verdict.evidence, parse(row, 7));
  return verdict;
}

Result<TimingRecord> read_timing(const Statement& row) {
  const std::string kind = row.text(0);
  KO_TRY(json baseline, parse(row, 3));
  KO_TRY(json candidate, parse(row, 4));
  KO_TRY(PairedSamples samples, read_paired_samples(json::array({std::move(baseline), std::move(candidate)})));
  return TimingRecord{kind == "model" ? TimingKind::kModel
                      : kind == "aa"  ? TimingKind::kAa
                                      : TimingKind::kGroup,
                      row.text(1),
                      row.text(2),
                      std::move(samples),
                      Seconds(row.real(5)),
                      Seconds(row.real(6))};
}

}  // namespace

bool CandidateProgress::rejected() const {
  return std::any_of(gates.begin(), gates.end(),
                     [](const auto& gate) { return gate.second == RecordedVerdictKind::kRejected; });
}

Result<JournalReader> JournalReader::open(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kJournalFile;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored))
    return Error(ErrorCode::kBadInput, "no journal in " + folder.string());
  KO_TRY(sqlite::Database database, sqlite::Database::open(file.string(), sqlite::OpenMode::kReadOnly));
  KO_RETURN_IF_ERROR(check_schema(database));
  return JournalReader(std::move(database));
}

Result<std::vector<RecordedSession>> JournalReader::sessions() const {
  return collect<RecordedSession>(
      database_, "SELECT at, kind, version, model, model_digest, fingerprint, options FROM sessions ORDER BY id",
      [](const Statement& row) -> Result<RecordedSession> {
        RecordedSession result{row.real(0), {}};
        result.session.kind = row.text(1) == "resume" ? SessionKind::kResume : SessionKind::kStart;
        result.session.version = row.text(2);
        result.session.model = row.text(3);
        result.session.model_digest = row.text(4);
        result.session.fingerprint = row.text(5);
        KO_TRY(result.session.options, parse(row, 6));
        return result;
      });
}

Result<std::vector<BaselineTime>> JournalReader::baselines() const {
  return collect<BaselineTime>(
      database_,
      "SELECT mode, samples, compile_seconds, first_call_seconds, peak_bytes, error FROM baselines ORDER BY id",
      [](const Statement& row) -> Result<BaselineTime> {
        BaselineTime result;
        result.mode = row.text(0);
        KO_TRY(json samples, parse(row, 1));
        KO_TRY(result.samples, read_samples(samples));
        result.compile_seconds = row.optional_real(2);
        result.first_call_seconds = row.optional_real(3);
        if (!row.is_null(4)) result.peak_bytes = row.integer(4);
        result.error = row.optional_text(5);
        return result;
      });
}

Result<std::vector<ProgramRecord>> JournalReader::programs() const {
  return collect<ProgramRecord>(database_, "SELECT mode, graph, document FROM programs ORDER BY id",
                                [](const Statement& row) -> Result<ProgramRecord> {
                                  return ProgramRecord{row.text(0), static_cast<int>(row.integer(1)), row.text(2)};
                                });
}

Result<std::vector<GroupRecord>> JournalReader::groups() const {
  return collect<GroupRecord>(database_, "SELECT graph, digest, steps, kept, facts FROM groups ORDER BY id",
                              [](const Statement& row) -> Result<GroupRecord> {
                                GroupRecord result;
                                result.graph = static_cast<int>(row.integer(0));
                                result.digest = row.text(1);
                                KO_TRY(json steps, parse(row, 2));
                                for (const json& step : steps)
                                  if (step.is_string()) result.steps.push_back(step.get<std::string>());
                                result.kept = row.optional_text(3);
                                KO_TRY(result.facts, parse(row, 4));
                                return result;
                              });
}

Result<std::vector<RecordedAttempt>> JournalReader::attempts(const std::string& group) const {
  return collect<RecordedAttempt>(
      database_,
      "SELECT id, group_digest, round, chain, transform, description, plan_key, shape_key, plan, parent FROM attempts "
      "WHERE group_digest = ? ORDER BY id",
      [](const Statement& row) -> Result<RecordedAttempt> {
        RecordedAttempt result{row.integer(0), {}};
        AttemptRecord& attempt = result.attempt;
        attempt.group = row.text(1);
        attempt.round = static_cast<int>(row.integer(2));
        attempt.chain = static_cast<int>(row.integer(3));
        attempt.transform = row.text(4);
        attempt.description = row.text(5);
        attempt.plan_key = row.text(6);
        attempt.shape_key = row.text(7);
        KO_TRY(attempt.plan, parse(row, 8));
        attempt.parent = row.optional_text(9);
        return result;
      },
      group);
}

Result<std::vector<RecordedCandidate>> JournalReader::candidates(const std::string& group) const {
  return collect<RecordedCandidate>(
      database_, "SELECT digest, group_digest, attempt, document FROM candidates WHERE group_digest = ? ORDER BY id",
      [](const Statement& row) -> Result<RecordedCandidate> {
        RecordedCandidate result;
        result.digest = row.text(0);
        result.group = row.text(1);
        if (!row.is_null(2)) result.attempt = row.integer(2);
        KO_TRY(result.document, parse(row, 3));
        return result;
      },
      group);
}

Result<std::vector<RecordedVerdict>> JournalReader::verdicts() const {
  return collect<RecordedVerdict>(database_, (std::string(kVerdictColumns) + "ORDER BY id").c_str(), read_verdict);
}

Result<std::vector<RecordedVerdict>> JournalReader::verdicts(const std::string& candidate) const {
  return collect<RecordedVerdict>(database_, (std::string(kVerdictColumns) + "WHERE candidate = ? ORDER BY id").c_str(),
                                  read_verdict, candidate);
}

Result<std::vector<TimingRecord>> JournalReader::timings(const std::string& subject) const {
  return collect<TimingRecord>(
      database_,
      "SELECT kind, subject, fingerprint, baseline, candidate, warmup_seconds, repetition_seconds FROM timings "
      "WHERE subject = ? ORDER BY id",
      read_timing, subject);
}

Result<std::optional<RecordedOutcome>> JournalReader::outcome() const {
  KO_TRY(Statement row, database_.prepare("SELECT id, kind, ships, reason, set_digest, ratio, low, high, data FROM outcomes "
                                          "ORDER BY id DESC LIMIT 1"));
  KO_TRY(bool found, row.step());
  if (!found) return std::optional<RecordedOutcome>();
  RecordedOutcome outcome;
  outcome.kind_ = row.text(1);
  outcome.ships_ = row.text(2);
  outcome.reason_ = row.text(3);
  outcome.set_ = row.optional_text(4);
  outcome.ratio_ = row.optional_real(5);
  if (!row.is_null(6) && !row.is_null(7)) outcome.interval_ = {row.real(6), row.real(7)};
  KO_TRY(outcome.data_, parse(row, 8));
  KO_TRY(outcome.kernels_,
         collect<RecordedOutcome::Kernel>(
             database_, "SELECT group_digest, candidate, document, evidence FROM wins WHERE outcome = ? ORDER BY id",
             [](const Statement& win) -> Result<RecordedOutcome::Kernel> {
               RecordedOutcome::Kernel kernel{win.text(0), win.text(1), {}, {}};
               KO_TRY(kernel.document, parse(win, 2));
               KO_TRY(kernel.evidence, parse(win, 3));
               return kernel;
             },
             row.integer(0)));
  return std::optional<RecordedOutcome>(std::move(outcome));
}

Result<std::map<std::string, Seconds>> JournalReader::stages() const {
  using Stage = std::pair<std::string, double>;
  KO_TRY(auto rows, collect<Stage>(database_, "SELECT name, sum(seconds) FROM stages GROUP BY name",
                                   [](const Statement& row) -> Result<Stage> { return Stage{row.text(0), row.real(1)}; }));
  std::map<std::string, Seconds> stages;
  for (const auto& [name, seconds] : rows) stages[name] = Seconds(seconds);
  return stages;
}

Result<std::vector<json>> JournalReader::notes(const std::string& kind) const {
  return collect<json>(database_, "SELECT data FROM notes WHERE kind = ? ORDER BY id",
                       [](const Statement& row) { return parse(row, 0); }, kind);
}

Result<std::map<std::string, CandidateProgress>> JournalReader::progress(const std::string& group,
                                                                         const std::string& fingerprint) const {
  std::map<std::string, CandidateProgress> progress;
  KO_TRY(auto verdicts,
         collect<RecordedVerdict>(
             database_,
             (std::string(kVerdictColumns) + "WHERE group_digest = ? AND fingerprint = ? AND gate <= 2 ORDER BY id").c_str(),
             read_verdict, group, fingerprint));
  for (const RecordedVerdict& verdict : verdicts)
    if (verdict.kind != RecordedVerdictKind::kError) progress[verdict.candidate].gates[verdict.gate] = verdict.kind;
  KO_TRY(auto timings, collect<TimingRecord>(
                           database_,
                           "SELECT kind, subject, fingerprint, baseline, candidate, warmup_seconds, repetition_seconds "
                           "FROM timings WHERE kind = 'group' AND fingerprint = ?2 AND subject IN "
                           "(SELECT digest FROM candidates WHERE group_digest = ?1) ORDER BY id",
                           read_timing, group, fingerprint));
  for (const TimingRecord& timing : timings) {
    auto& times = progress[timing.subject].times;
    if (times) times->extend(timing.samples);
    else times = timing.samples;
  }
  return progress;
}

}  // namespace kernelopt
