#include "journal_recorder.h"

#include <filesystem>

#include <fmt/format.h>

#include "kernelopt/journal/reader.h"

namespace kernelopt {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

class JournalRecorder final : public Recorder {
 public:
  JournalRecorder(Journal journal, JournalReader reader) : journal_(std::move(journal)), reader_(std::move(reader)) {}
  Status add(const std::string& kind, const json& data) override { return journal_.add_note(kind, data); }
  Result<std::vector<json>> all(const std::string& kind) const override { return reader_.notes(kind); }
  Status write(const std::function<Status(Journal&)>& row) override { return row(journal_); }
  Result<std::vector<json>> verdicts() const override {
    KO_TRY(auto recorded, reader_.verdicts());
    std::vector<json> result;
    for (const auto& verdict : recorded) {
      const char* name = verdict.kind == RecordedVerdictKind::kPass       ? "passed"
                         : verdict.kind == RecordedVerdictKind::kRejected ? "rejected"
                                                                          : "error";
      result.push_back({{"candidate", verdict.candidate},
                        {"gate", verdict.gate},
                        {"verdict", name},
                        {"reason", verdict.reason ? json(*verdict.reason) : json(nullptr)},
                        {"evidence", verdict.evidence}});
    }
    return result;
  }

 private:
  Journal journal_;
  JournalReader reader_;
};

Status move_aside(const fs::path& folder) {
  const auto path = (folder / kJournalFile).string();
  if (!fs::exists(path)) return ok_status();
  int number = 1;
  const auto aside = [&] { return (folder / fmt::format("journal-{}.sqlite", number)).string(); };
  while (fs::exists(aside())) ++number;
  for (const char* suffix : {"-wal", "-shm", ""}) {
    std::error_code error;
    if (fs::exists(path + suffix)) fs::rename(path + suffix, aside() + suffix, error);
    if (error) return Error(ErrorCode::kIo, "cannot move " + path + ": " + error.message());
  }
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<Recorder>> open_recorder(const std::string& folder, const SessionStart& session) {
  if (session.kind == SessionKind::kStart) {
    KO_RETURN_IF_ERROR(move_aside(folder));
  } else if (!fs::exists(fs::path(folder) / kJournalFile)) {
    return Error(ErrorCode::kBadInput, folder + " holds no journal");
  }
  KO_TRY(auto journal, Journal::open(folder));
  KO_RETURN_IF_ERROR(journal.begin(session));
  KO_TRY(auto reader, JournalReader::open(folder));
  return std::unique_ptr<Recorder>(std::make_unique<JournalRecorder>(std::move(journal), std::move(reader)));
}

Result<json> recorded_run(const std::string& folder) {
  if (!fs::exists(fs::path(folder) / kJournalFile)) return Error(ErrorCode::kBadInput, folder + " holds no journal");
  KO_TRY(auto reader, JournalReader::open(folder));
  KO_TRY(auto sessions, reader.sessions());
  if (sessions.empty()) return Error(ErrorCode::kBadInput, folder + " holds no run");
  return sessions.front().session.options;
}

}  // namespace kernelopt
