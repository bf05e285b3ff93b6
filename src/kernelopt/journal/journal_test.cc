#include "kernelopt/journal/journal.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "kernelopt/gates/fake_observations.h"
#include "kernelopt/journal/reader.h"
#include "kernelopt/journal/schema.h"

namespace kernelopt {
namespace {

using namespace testing;
using nlohmann::json;
namespace fs = std::filesystem;

// A run folder of its own, gone with the object.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "kernelopt-journal-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

SessionStart session(SessionKind kind = SessionKind::kStart) {
  return {kind, "0.1.0", "model.py", "abc", kDevice, {{"rounds", 5}}};
}

// An open journal with a session and a clock that counts.
Journal started(const Folder& folder) {
  Journal journal = Journal::open(folder.path(), [time = 100.0]() mutable { return time += 1; }).value();
  EXPECT_TRUE(journal.begin(session()).ok());
  return journal;
}

AttemptRecord attempt(const std::string& key) {
  return {"g0", 1, 2, "tile", "tiles of 8", key, "shape", {{"tile", 8}}, std::nullopt};
}

TEST(Journal, GivesBackWhatWasWritten) {
  Folder folder;
  Journal journal = started(folder);
  ASSERT_TRUE(journal.add(BaselineTime{"default", {Seconds(1e-3), Seconds(2e-3)}, 3.5, std::nullopt, 1 << 20, std::nullopt}).ok());
  ASSERT_TRUE(journal.add(BaselineTime{"max-autotune", {}, std::nullopt, std::nullopt, std::nullopt, "no GPU"}).ok());
  ASSERT_TRUE(journal.add(ProgramRecord{"default", 0, R"({"format": "kernelopt.program"})"}).ok());
  ASSERT_TRUE(journal.add(GroupRecord{0, "g0", {"op0", "op1"}, std::nullopt, {{"bytes", 64}}}).ok());
  ASSERT_TRUE(journal.add(GroupRecord{0, "g1", {"op2"}, "op sort", {}}).ok());
  const auto subject = fake_subject("g0", "a");
  const auto row = journal.add(attempt("plan a"));
  ASSERT_TRUE(row.ok());
  ASSERT_TRUE(journal.add(*subject.candidate, *row).ok());
  ASSERT_TRUE(journal.add(*subject.candidate, std::nullopt).ok());
  ASSERT_TRUE(journal.add(StageSeconds{"search", Seconds(2)}).ok());
  ASSERT_TRUE(journal.add(StageSeconds{"search", Seconds(3)}).ok());
  ASSERT_TRUE(journal.add_note("stop", {{"why", "floor"}}).ok());
  ASSERT_TRUE(journal.add_note("stop", {{"why", "not UTF-8: \xff"}}).ok());

  auto reader = JournalReader::open(folder.path()).value();
  const auto sessions = reader.sessions().value();
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].at, 101);
  EXPECT_EQ(sessions[0].session.options["rounds"], 5);
  const auto baselines = reader.baselines().value();
  ASSERT_EQ(baselines.size(), 2u);
  EXPECT_EQ(baselines[0].samples[1], Seconds(2e-3));
  EXPECT_EQ(baselines[0].compile_seconds, 3.5);
  EXPECT_EQ(baselines[0].first_call_seconds, std::nullopt);
  EXPECT_EQ(baselines[0].peak_bytes, 1 << 20);
  EXPECT_EQ(baselines[1].error, "no GPU");
  EXPECT_EQ(reader.programs().value()[0].document, R"({"format": "kernelopt.program"})");
  const auto groups = reader.groups().value();
  EXPECT_EQ(groups[0].steps, (std::vector<std::string>{"op0", "op1"}));
  EXPECT_EQ(groups[1].kept, "op sort");
  const auto attempts = reader.attempts("g0").value();
  ASSERT_EQ(attempts.size(), 1u);
  EXPECT_EQ(attempts[0].id, *row);
  EXPECT_EQ(attempts[0].attempt.plan_key, "plan a");
  EXPECT_EQ(attempts[0].attempt.plan["tile"], 8);
  const auto candidates = reader.candidates("g0").value();
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_EQ(candidates[0].attempt, *row);
  EXPECT_EQ(candidates[1].attempt, std::nullopt);
  EXPECT_EQ(candidates[0].document, subject.candidate->to_json());
  EXPECT_EQ(reader.stages().value().at("search"), Seconds(5));
  EXPECT_EQ(reader.notes("stop").value().size(), 2u);
  EXPECT_FALSE(reader.outcome().value().has_value());
}

TEST(Journal, VerdictsComeFromPassesAndRejections) {
  Folder folder;
  Journal journal = started(folder);
  const auto a = fake_subject("g0", "a"), b = fake_subject("g1", "b");
  ASSERT_TRUE(journal.add_pass(pass1(a)).ok());
  ASSERT_TRUE(journal.add_pass(pass2(a)).ok());
  ASSERT_TRUE(journal.add_verdict(*b.candidate, kDevice, Rejected{1, RejectReason::kCompileError, {{"line", 3}}}).ok());
  ASSERT_TRUE(journal.add_verdict(*b.candidate, kDevice, Faulted{2, "disk full", {}}).ok());
  const StitchedSet set = stitched({a, b});
  ASSERT_TRUE(journal.add_verdict(set, Rejected{3, RejectReason::kTolerance, {{"rho", 7}}}).ok());
  ASSERT_TRUE(journal.add_verdict(set, Faulted{3, "late", {}}).ok());
  const Gate3Set third = pass3({a, b});
  ASSERT_TRUE(journal.add_pass(third).ok());
  ASSERT_TRUE(journal.add_verdict(third, Rejected{4, RejectReason::kTooSlow, {}}).ok());
  ASSERT_TRUE(journal.add_verdict(third, Faulted{4, "few pairs", {}}).ok());
  ASSERT_TRUE(journal.add_pass(pass4({a, b})).ok());

  auto reader = JournalReader::open(folder.path()).value();
  EXPECT_EQ(reader.verdicts().value().size(), 16u);
  const auto of_a = reader.verdicts(a.candidate->digest()).value();
  ASSERT_EQ(of_a.size(), 8u);
  EXPECT_EQ(of_a[0].gate, 1);
  EXPECT_EQ(of_a[0].kind, RecordedVerdictKind::kPass);
  EXPECT_EQ(of_a[0].set, std::nullopt);
  EXPECT_EQ(of_a[1].evidence["rho"], 1.5);
  EXPECT_EQ(of_a[2].kind, RecordedVerdictKind::kRejected);
  EXPECT_EQ(of_a[2].set, set.digest());
  EXPECT_EQ(of_a[2].reason, "out of tolerance");
  EXPECT_EQ(of_a[7].gate, 4);
  EXPECT_EQ(of_a[7].evidence["margin"], 1.03);
}

TEST(Journal, KeepsAWinWhole) {
  Folder folder;
  Journal journal = started(folder);
  ASSERT_TRUE(journal.add_outcome(Fallback{"default", "nothing passed", {{"tried", 3}}}).ok());
  const auto a = fake_subject("g0", "a"), b = fake_subject("g1", "b");
  ModelOutcome won = std::get<Optimized>(conclude(pass4({a, b})));
  ASSERT_TRUE(journal.add_outcome(won).ok());

  auto reader = JournalReader::open(folder.path()).value();
  auto outcome = reader.outcome().value();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->kind(), "optimized");
  EXPECT_EQ(outcome->set(), std::get<Optimized>(won).release_set().digest());
  EXPECT_NEAR(*outcome->ratio(), 0.8, 1e-9);
  EXPECT_LT(outcome->interval()->high, 1);
  ASSERT_EQ(outcome->kernels().size(), 2u);
  EXPECT_EQ(outcome->kernels()[0].candidate, a.candidate->digest());
  EXPECT_EQ(outcome->kernels()[0].document, a.candidate->to_json());
  for (const char* gate : {"1", "2", "3", "4"}) EXPECT_TRUE(outcome->kernels()[1].evidence.contains(gate)) << gate;
}

TEST(Journal, OtherOutcomes) {
  const auto last = [](ModelOutcome outcome) {
    Folder folder;
    Journal journal = started(folder);
    EXPECT_TRUE(journal.add_outcome(outcome).ok());
    return *JournalReader::open(folder.path()).value().outcome().value();
  };
  const auto matched = last(Matched{"default", "no difference", std::nullopt});
  EXPECT_EQ(matched.kind(), "matched");
  EXPECT_EQ(matched.ships(), "default");
  EXPECT_FALSE(matched.ratio().has_value());
  EXPECT_TRUE(matched.kernels().empty());
  EXPECT_EQ(last(Fallback{"max-autotune", "nothing passed", {{"tried", 3}}}).data()["tried"], 3);
  const auto eager = last(EagerFallback{EagerReason::kDisagrees, "output 0", {{"seed", 7}}});
  EXPECT_EQ(eager.kind(), "eager");
  EXPECT_EQ(eager.ships(), "eager");
  EXPECT_EQ(eager.reason(), "compiler disagrees with eager: output 0");
}

TEST(Journal, ResumeKnowsWhatIsFinished) {
  Folder folder;
  const auto finished = fake_subject("g0", "finished"), rejected = fake_subject("g0", "rejected"),
             untimed = fake_subject("g0", "untimed"), faulted = fake_subject("g0", "faulted");
  {
    Journal journal = started(folder);
    for (const Subject* subject : {&finished, &rejected, &untimed, &faulted})
      ASSERT_TRUE(journal.add(*subject->candidate, std::nullopt).ok());
    for (const Subject* subject : {&finished, &untimed, &faulted}) ASSERT_TRUE(journal.add_pass(pass1(*subject)).ok());
    for (const Subject* subject : {&finished, &untimed}) ASSERT_TRUE(journal.add_pass(pass2(*subject)).ok());
    ASSERT_TRUE(journal.add_verdict(*rejected.candidate, kDevice, Rejected{2, RejectReason::kUnwritten, {}}).ok());
    ASSERT_TRUE(journal.add_verdict(*faulted.candidate, kDevice, Faulted{2, "died", {}}).ok());
    for (int part = 0; part < 2; ++part)
      ASSERT_TRUE(journal.add(TimingRecord{TimingKind::kGroup, finished.candidate->digest(), kDevice, fake_samples(0.9, 10),
                                           tolerance::kWarmup, tolerance::kRepetition}).ok());
    ASSERT_TRUE(journal.add(TimingRecord{TimingKind::kGroup, untimed.candidate->digest(), "another device",
                                         fake_samples(0.9, 10), tolerance::kWarmup, tolerance::kRepetition}).ok());
  }
  Journal resumed = Journal::open(folder.path()).value();
  ASSERT_TRUE(resumed.begin(session(SessionKind::kResume)).ok());
  auto reader = JournalReader::open(folder.path()).value();
  EXPECT_EQ(reader.sessions().value().size(), 2u);
  auto progress = reader.progress("g0", kDevice).value();
  const auto of = [&](const Subject& subject) { return progress[subject.candidate->digest()]; };
  EXPECT_TRUE(of(finished).finished());
  EXPECT_EQ(of(finished).times->pairs(), 20u);
  EXPECT_EQ(of(finished).times->candidate()[3], fake_samples(0.9, 10).candidate()[3]);
  EXPECT_TRUE(of(rejected).finished());
  EXPECT_TRUE(of(rejected).rejected());
  EXPECT_FALSE(of(untimed).finished());
  EXPECT_FALSE(of(faulted).finished());
  EXPECT_EQ(of(faulted).gates.count(2), 0u);
  EXPECT_TRUE(reader.progress("g0", "another device").value()[finished.candidate->digest()].gates.empty());
  EXPECT_TRUE(reader.progress("g1", kDevice).value().empty());
}

TEST(Journal, IsAppendOnly) {
  Folder folder;
  {
    Journal journal = started(folder);
    ASSERT_TRUE(journal.add_note("kind", {}).ok());
  }
  auto database = sqlite::Database::open((folder.path() / kJournalFile).string(), sqlite::OpenMode::kCreate).value();
  for (const char* sql : {"DELETE FROM notes", "UPDATE notes SET kind = 'x'", "UPDATE sessions SET model = 'x'",
                          "DELETE FROM sessions"}) {
    const Status status = database.execute(sql);
    ASSERT_FALSE(status.ok()) << sql;
    EXPECT_NE(status.error().message().find("append-only"), std::string::npos);
  }
  // Nor does the schema take a win without its set.
  EXPECT_FALSE(database.execute("INSERT INTO outcomes(session, at, kind, ships, reason, data) "
                                "VALUES(1, 0, 'optimized', 'optimized', '', '{}')").ok());
}

TEST(Journal, OneWriterAtATime) {
  Folder folder;
  std::optional<Journal> first = started(folder);
  const auto second = Journal::open(folder.path());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kBadInput);
  EXPECT_EQ(second.error().message(), "another process is writing to " + folder.path().string());
  EXPECT_TRUE(JournalReader::open(folder.path()).ok());
  first.reset();
  EXPECT_TRUE(Journal::open(folder.path()).ok());
}

TEST(Journal, AnotherProcessIsToldTheSame) {
  Folder folder;
  Journal first = started(folder);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto second = Journal::open(folder.path());
    ::_exit(!second.ok() && second.error().code() == ErrorCode::kBadInput ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Journal, RefusesWhatIsNotOne) {
  Folder folder;
  EXPECT_EQ(JournalReader::open(folder.path()).error().code(), ErrorCode::kBadInput);
  EXPECT_EQ(Journal::open(folder.path() / "missing").error().code(), ErrorCode::kIo);

  std::ofstream(folder.path() / kJournalFile) << "this is text, and long enough to be no SQLite file at all";
  EXPECT_FALSE(JournalReader::open(folder.path()).ok());
  EXPECT_FALSE(Journal::open(folder.path()).ok());

  Folder other;
  {
    auto database = sqlite::Database::open((other.path() / kJournalFile).string(), sqlite::OpenMode::kCreate).value();
    ASSERT_TRUE(database.execute("CREATE TABLE t(x)").ok());
  }
  EXPECT_EQ(Journal::open(other.path()).error().code(), ErrorCode::kBadInput);
  EXPECT_EQ(JournalReader::open(other.path()).error().code(), ErrorCode::kBadInput);

  Folder newer;
  { started(newer); }
  {
    auto database = sqlite::Database::open((newer.path() / kJournalFile).string(), sqlite::OpenMode::kCreate).value();
    ASSERT_TRUE(database.execute("PRAGMA user_version = 99").ok());
  }
  const auto refused = Journal::open(newer.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("version 99"), std::string::npos);
  EXPECT_NE(refused.error().message().find("version 1"), std::string::npos);
}

// The first version's schema with rows in it, as that version wrote it. Later versions must keep reading it.
TEST(Journal, ReadsTheOldSample) {
  Folder folder;
  std::ifstream file(std::string(KERNELOPT_SOURCE_DIR) + "/src/kernelopt/journal/testdata/journal_v1.sql");
  ASSERT_TRUE(file);
  std::stringstream sql;
  sql << file.rdbuf();
  {
    auto database = sqlite::Database::open((folder.path() / kJournalFile).string(), sqlite::OpenMode::kCreate).value();
    const Status status = database.execute(sql.str());
    ASSERT_TRUE(status.ok()) << status.error().message();
  }
  auto reader = JournalReader::open(folder.path()).value();
  EXPECT_EQ(reader.sessions().value()[0].session.model, "model.py");
  EXPECT_EQ(reader.baselines().value()[0].samples.size(), 2u);
  EXPECT_EQ(reader.attempts("g0").value()[0].attempt.plan_key, "plan a");
  EXPECT_TRUE(reader.progress("g0", kDevice).value().at("c0").finished());
  const auto outcome = reader.outcome().value();
  EXPECT_EQ(outcome->kind(), "optimized");
  EXPECT_EQ(outcome->kernels()[0].candidate, "c0");
  EXPECT_EQ(reader.notes("stop").value()[0]["why"], "floor");
  // Writing goes on where it ended, still append-only.
  Journal journal = Journal::open(folder.path()).value();
  ASSERT_TRUE(journal.begin(session(SessionKind::kResume)).ok());
  ASSERT_TRUE(journal.add_note("stop", {{"why", "time"}}).ok());
  EXPECT_EQ(reader.notes("stop").value().size(), 2u);
}

TEST(JournalDeathTest, WritesBelongToASession) {
  Folder folder;
  Journal journal = Journal::open(folder.path()).value();
  EXPECT_DEATH((void)journal.add_note("kind", {}), "before begin");
}

// A child writes and tells what it has finished; it is killed at some moment; all that it told must be there, and the file
// must be whole.
TEST(Journal, KilledWritersLoseNothingFinished) {
  Folder folder;
  int expected = 0;
  for (int round = 0; round < 8; ++round) {
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(told[0]);
      auto journal = Journal::open(folder.path());
      if (!journal.ok() || !journal->begin(session(SessionKind::kResume)).ok()) ::_exit(1);
      for (int i = 0;; ++i) {
        if (!journal->add_note("work", {{"round", round}, {"i", i}, {"bulk", std::string(3000, 'x')}}).ok()) ::_exit(1);
        const char done = 1;
        if (::write(told[1], &done, 1) != 1) ::_exit(1);
      }
    }
    ::close(told[1]);
    // Killed after a number of writes that differs by round, and then at no particular moment of the next one.
    int finished = 0;
    char done;
    while (finished < 3 + 5 * round && ::read(told[0], &done, 1) == 1) ++finished;
    ASSERT_EQ(finished, 3 + 5 * round);
    ::usleep(static_cast<useconds_t>(137 * round));
    ::kill(child, SIGKILL);
    while (::read(told[0], &done, 1) == 1) ++finished;
    ::close(told[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    expected += finished;

    auto reader = JournalReader::open(folder.path());
    ASSERT_TRUE(reader.ok()) << reader.error().to_string();
    const auto notes = reader->notes("work").value();
    // One more may have been committed and not yet told.
    EXPECT_GE(static_cast<int>(notes.size()), expected);
    EXPECT_LE(static_cast<int>(notes.size()), expected + 1);
    expected = static_cast<int>(notes.size());
    for (size_t i = 1; i < notes.size(); ++i)
      if (notes[i]["round"] == notes[i - 1]["round"]) {
        EXPECT_EQ(notes[i]["i"].get<int>(), notes[i - 1]["i"].get<int>() + 1);
      }
  }
  // The lock went with the last child.
  EXPECT_TRUE(Journal::open(folder.path()).ok());
  auto database = sqlite::Database::open((folder.path() / kJournalFile).string(), sqlite::OpenMode::kReadOnly).value();
  auto check = database.prepare("PRAGMA integrity_check").value();
  ASSERT_TRUE(check.step().value());
  EXPECT_EQ(check.text(0), "ok");
}

}  // namespace
}  // namespace kernelopt
