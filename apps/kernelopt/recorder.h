// Recorder: where a run writes down what happens, as it happens, and reads back what an earlier part of the same run has
// finished. journal_recorder.h keeps it in the journal; tests use MemoryRecorder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/base/result.h"

namespace kernelopt {

class Recorder {
 public:
  virtual ~Recorder() = default;
  // Appends; durable when it returns.
  virtual Status add(const std::string& kind, const nlohmann::json& data) = 0;
  // Everything of a kind, in the order in which it was added, by this process or an earlier one.
  virtual Result<std::vector<nlohmann::json>> all(const std::string& kind) const = 0;
};

class MemoryRecorder final : public Recorder {
 public:
  std::vector<std::pair<std::string, nlohmann::json>> events;
  Status add(const std::string& kind, const nlohmann::json& data) override {
    events.emplace_back(kind, data);
    return ok_status();
  }
  Result<std::vector<nlohmann::json>> all(const std::string& kind) const override {
    std::vector<nlohmann::json> found;
    for (const auto& [name, data] : events)
      if (name == kind) found.push_back(data);
    return found;
  }
};

}  // namespace kernelopt
