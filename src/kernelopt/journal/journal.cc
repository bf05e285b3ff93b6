#include "kernelopt/journal/journal.h"

#include <cerrno>
#include <chrono>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "kernelopt/base/digest.h"
#include "kernelopt/journal/schema.h"

namespace kernelopt {

using nlohmann::json;

double system_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The kernel drops the lock with the process, however it ends. Close-on-exec keeps workers from holding it.
class Journal::Lock {
 public:
  static Result<std::shared_ptr<Lock>> take(const std::filesystem::path& folder) {
    const std::string path = (folder / "journal.lock").string();
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return Error(ErrorCode::kIo, path + ": " + std::strerror(errno));
    auto lock = std::shared_ptr<Lock>(new Lock(fd));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK)
        return Error(ErrorCode::kBadInput, "another process is writing to " + folder.string());
      return Error(ErrorCode::kIo, path + ": " + std::strerror(errno));
    }
    return lock;
  }
  ~Lock() { ::close(fd_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  explicit Lock(int fd) : fd_(fd) {}
  int fd_;
};

struct Journal::VerdictRow {
  std::string candidate, group;
  std::optional<std::string> set;
  std::string fingerprint;
  int gate;
  const char* verdict;
  std::optional<std::string> reason;
  const json& evidence;
};

namespace {

constexpr const char* kPass = "pass";
constexpr const char* kRejected = "rejected";
constexpr const char* kError = "error";

std::string text(SessionKind kind) { return kind == SessionKind::kStart ? "start" : "resume"; }
std::string text(TimingKind kind) {
  switch (kind) {
    case TimingKind::kGroup: return "group";
    case TimingKind::kModel: return "model";
    case TimingKind::kAa: return "aa";
  }
  return "group";
}

// Messages of compilers and models may hold bytes that are no UTF-8; they must not cost the row.
std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json fault_data(const Faulted& faulted) { return {{"message", faulted.message}, {"data", faulted.data}}; }

}  // namespace

Result<Journal> Journal::open(const std::filesystem::path& folder, Clock clock) {
  KO_TRY(std::shared_ptr<Lock> lock, Lock::take(folder));
  KO_TRY(sqlite::Database database, sqlite::Database::open((folder / kJournalFile).string(), sqlite::OpenMode::kCreate));
  // Where the file system cannot share memory SQLite keeps its rollback journal, which is as durable.
  KO_RETURN_IF_ERROR(database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON"));
  KO_RETURN_IF_ERROR(prepare_schema(database));
  return Journal(std::move(lock), std::move(database), std::move(clock));
}

template <typename... Values>
Result<int64_t> Journal::insert(const char* table, const char* columns, const Values&... values) {
  KO_CHECK(session_ != 0, "the journal was written to before begin()");
  std::string sql = std::string("INSERT INTO ") + table + "(session, at, " + columns + ") VALUES(?, ?";
  for (size_t i = 0; i < sizeof...(values); ++i) sql += ", ?";
  KO_TRY(sqlite::Statement statement, database_.prepare(sql + ")"));
  KO_RETURN_IF_ERROR(statement.bind(1, session_));
  KO_RETURN_IF_ERROR(statement.bind(2, clock_()));
  int parameter = 3;
  Status status = ok_status();
  const auto bind = [&](const auto& value) {
    if (status.ok()) status = statement.bind(parameter++, value);
  };
  (bind(values), ...);
  KO_RETURN_IF_ERROR(std::move(status));
  KO_TRY(bool row, statement.step());
  KO_CHECK(!row, "an INSERT returned a row");
  return database_.last_row();
}

Status Journal::begin(const SessionStart& session) {
  KO_TRY(sqlite::Statement statement,
         database_.prepare("INSERT INTO sessions(at, kind, version, model, model_digest, fingerprint, options) "
                           "VALUES(?, ?, ?, ?, ?, ?, ?)"));
  KO_RETURN_IF_ERROR(statement.bind(1, clock_()));
  KO_RETURN_IF_ERROR(statement.bind(2, text(session.kind)));
  KO_RETURN_IF_ERROR(statement.bind(3, session.version));
  KO_RETURN_IF_ERROR(statement.bind(4, session.model));
  KO_RETURN_IF_ERROR(statement.bind(5, session.model_digest));
  KO_RETURN_IF_ERROR(statement.bind(6, session.fingerprint));
  KO_RETURN_IF_ERROR(statement.bind(7, dump(session.options)));
  KO_TRY(bool row, statement.step());
  KO_CHECK(!row, "an INSERT returned a row");
  session_ = database_.last_row();
  return ok_status();
}

Status Journal::add(const BaselineTime& baseline) {
  auto row = insert("baselines", "mode, samples, compile_seconds, first_call_seconds, peak_bytes, error", baseline.mode,
                    dump(samples_to_json(baseline.samples)), baseline.compile_seconds, baseline.first_call_seconds,
                    baseline.peak_bytes, baseline.error);
  return row.ok() ? ok_status() : Status(std::move(row).error());
}

Status Journal::add(const ProgramRecord& program) {
  auto row = insert("programs", "mode, graph, digest, document", program.mode, program.graph, sha256_hex(program.document),
                    program.document);
  return row.ok() ? ok_status() : Status(std::move(row).error());
}

Status Journal::add(const GroupRecord& group) {
  auto row = insert("groups", "graph, digest, steps, kept, facts", group.graph, group.digest, dump(json(group.steps)),
                    group.kept, dump(group.facts));
  return row.ok() ? ok_status() : Status(std::move(row).error());
}

Result<int64_t> Journal::add(const AttemptRecord& attempt) {
  return insert("attempts", "group_digest, round, chain, transform, description, plan_key, shape_key, plan, parent",
                attempt.group, attempt.round, attempt.chain, attempt.transform, attempt.description, attempt.plan_key,
                attempt.shape_key, dump(attempt.plan), attempt.parent);
}

Status Journal::add(const Candidate& candidate, std::optional<int64_t> attempt) {
  auto row = insert("candidates", "attempt, digest, group_digest, document", attempt, candidate.digest(),
                    candidate.parts().group, dump(candidate.to_json()));
  return row.ok() ? ok_status() : Status(std::move(row).error());
}

Status Journal::add(const TimingRecord& timing) {
  auto row = insert("timings", "kind, subject, fingerprint, baseline, candidate, warmup_seconds, repetition_seconds",
                    text(timing.kind), timing.subject, timing.fingerprint, dump(samples_to_json(timing.samples.baseline())),
                    dump(samples_to_json(timing.samples.candidate())), timing.warmup.count(), timing.repetition.count());
  return row.ok() ? ok_status() : Status(std::move(row).error());
}

Status Journal::add(const StageSeconds& stage) {
  auto row = insert("stages", "name, seconds", stage.name, stage.seconds.count());
  return row.ok() ? ok_status() : Status(std::move(row).error());
}

Status Journal::add_note(const std::string& kind, const json& data) {
  auto row = insert("notes", "kind, data", kind, dump(data));
  return row.ok() ? ok_status() : Status(std::move(row).error());
}

Status Journal::add_verdict_row(const VerdictRow& verdict) {
  auto row = insert("verdicts", "candidate, group_digest, set_digest, fingerprint, gate, verdict, reason, evidence",
                    verdict.candidate, verdict.group, verdict.set, verdict.fingerprint, verdict.gate, verdict.verdict,
                    verdict.reason, dump(verdict.evidence));
  return row.ok() ? ok_status() : Status(std::move(row).error());
}

template <typename Set>
Status Journal::add_set_verdict(const Set& set, int gate, const char* verdict, const std::optional<std::string>& reason,
                                const json& evidence) {
  KO_TRY(auto transaction, sqlite::Transaction::begin(database_));
  for (const auto& member : set.members())
    KO_RETURN_IF_ERROR(add_verdict_row({member.digest(), member.group(), set.digest(), set.fingerprint(), gate, verdict,
                                        reason, evidence}));
  return transaction.commit();
}

Status Journal::add_pass(const Gate1Pass& pass) {
  return add_verdict_row(
      {pass.digest(), pass.group(), std::nullopt, pass.subject().fingerprint, 1, kPass, std::nullopt, pass.evidence()});
}
Status Journal::add_pass(const Gate2Pass& pass) {
  return add_verdict_row(
      {pass.digest(), pass.group(), std::nullopt, pass.subject().fingerprint, 2, kPass, std::nullopt, pass.evidence()});
}
Status Journal::add_pass(const Gate3Set& set) {
  return add_set_verdict(set, 3, kPass, std::nullopt, set.members()[0].evidence());
}
Status Journal::add_pass(const Gate4Set& set) {
  return add_set_verdict(set, 4, kPass, std::nullopt, set.members()[0].evidence());
}

Status Journal::add_verdict(const Candidate& candidate, const std::string& fingerprint, const Rejected& rejected) {
  return add_verdict_row({candidate.digest(), candidate.parts().group, std::nullopt, fingerprint, rejected.gate, kRejected,
                          reject_reason_name(rejected.reason), rejected.data});
}
Status Journal::add_verdict(const Candidate& candidate, const std::string& fingerprint, const Faulted& faulted) {
  return add_verdict_row({candidate.digest(), candidate.parts().group, std::nullopt, fingerprint, faulted.gate, kError,
                          faulted.message, fault_data(faulted)});
}
Status Journal::add_verdict(const StitchedSet& set, const Rejected& rejected) {
  return add_set_verdict(set, rejected.gate, kRejected, reject_reason_name(rejected.reason), rejected.data);
}
Status Journal::add_verdict(const StitchedSet& set, const Faulted& faulted) {
  return add_set_verdict(set, faulted.gate, kError, faulted.message, fault_data(faulted));
}
Status Journal::add_verdict(const Gate3Set& set, const Rejected& rejected) {
  return add_set_verdict(set, rejected.gate, kRejected, reject_reason_name(rejected.reason), rejected.data);
}
Status Journal::add_verdict(const Gate3Set& set, const Faulted& faulted) {
  return add_set_verdict(set, faulted.gate, kError, faulted.message, fault_data(faulted));
}

Status Journal::add_outcome(const ModelOutcome& outcome) {
  std::string ships = "eager", reason;
  std::optional<std::string> set, fingerprint;
  std::optional<RatioEstimate> race;
  json data = json::object();
  const ReleaseSet* released = nullptr;
  if (const auto* optimized = std::get_if<Optimized>(&outcome)) {
    released = &optimized->release_set();
    ships = "optimized";
    reason = "passed all four gates and beat the best mode";
    set = released->digest();
    fingerprint = released->fingerprint();
    race = optimized->win().race();
  } else if (const auto* matched = std::get_if<Matched>(&outcome)) {
    ships = matched->ships;
    reason = matched->reason;
    race = matched->race;
  } else if (const auto* fallback = std::get_if<Fallback>(&outcome)) {
    ships = fallback->ships;
    reason = fallback->reason;
    data = fallback->data;
  } else {
    const auto& eager = std::get<EagerFallback>(outcome);
    reason = std::string(eager_reason_name(eager.reason)) + ": " + eager.message;
    data = eager.data;
  }
  if (race) data["race"] = ratio_to_json(*race);
  const auto of_race = [&](auto field) { return race ? std::optional<double>(field(*race)) : std::nullopt; };

  KO_TRY(auto transaction, sqlite::Transaction::begin(database_));
  KO_TRY(int64_t row, insert("outcomes", "kind, ships, reason, set_digest, fingerprint, ratio, low, high, data",
                             outcome_name(outcome), ships, reason, set, fingerprint,
                             of_race([](const auto& r) { return r.ratio; }),
                             of_race([](const auto& r) { return r.interval.low; }),
                             of_race([](const auto& r) { return r.interval.high; }), dump(data)));
  if (released) {
    for (const VerifiedKernel& kernel : released->kernels()) {
      KO_TRY(sqlite::Statement statement,
             database_.prepare("INSERT INTO wins(outcome, group_digest, candidate, document, evidence) VALUES(?, ?, ?, ?, ?)"));
      KO_RETURN_IF_ERROR(statement.bind(1, row));
      KO_RETURN_IF_ERROR(statement.bind(2, kernel.candidate().parts().group));
      KO_RETURN_IF_ERROR(statement.bind(3, kernel.candidate().digest()));
      KO_RETURN_IF_ERROR(statement.bind(4, dump(kernel.candidate().to_json())));
      KO_RETURN_IF_ERROR(statement.bind(5, dump(kernel.evidence())));
      KO_TRY(bool more, statement.step());
      KO_CHECK(!more, "an INSERT returned a row");
    }
  }
  return transaction.commit();
}

}  // namespace kernelopt
