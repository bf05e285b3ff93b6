// Recorder: where a run writes down what happens, as it happens, and reads back what an earlier part of the same run has
// finished. JournalRecorder keeps it in the journal; MemoryRecorder is for tests and for commands that keep nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/base/result.h"
#include "kernelopt/journal/journal.h"

namespace kernelopt {

class Recorder {
 public:
  virtual ~Recorder() = default;
  // Appends a note; durable when it returns.
  virtual Status add(const std::string& kind, const nlohmann::json& data) = 0;
  // Every note of a kind, in the order in which it was added, by this process or an earlier one.
  virtual Result<std::vector<nlohmann::json>> all(const std::string& kind) const = 0;
  // Decisions of the gates: {candidate, gate, verdict, reason, evidence}, oldest first.
  virtual Result<std::vector<nlohmann::json>> verdicts() const = 0;
  // Writes a typed row. Rows that claim something are written from the passes themselves.
  virtual Status write(const std::function<Status(Journal&)>& row) = 0;
};

class MemoryRecorder final : public Recorder {
 public:
  std::vector<std::pair<std::string, nlohmann::json>> notes;
  Status add(const std::string& kind, const nlohmann::json& data) override {
    notes.emplace_back(kind, data);
    return ok_status();
  }
  Result<std::vector<nlohmann::json>> all(const std::string& kind) const override {
    std::vector<nlohmann::json> found;
    for (const auto& [name, data] : notes)
      if (name == kind) found.push_back(data);
    return found;
  }
  Result<std::vector<nlohmann::json>> verdicts() const override { return std::vector<nlohmann::json>(); }
  Status write(const std::function<Status(Journal&)>&) override { return ok_status(); }
};

}  // namespace kernelopt
