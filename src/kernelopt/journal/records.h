// What the journal holds, as plain records. Rows that claim something (a pass, a win) are not here: they are written from
// the passes themselves (journal.h), and come back as records that nothing accepts as a pass (reader.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/measure/samples.h"

namespace kernelopt {

enum class SessionKind { kStart, kResume };

struct SessionStart {
  SessionKind kind = SessionKind::kStart;
  std::string version;       // of this program
  std::string model;         // path or module:function
  std::string model_digest;  // of what it was loaded from
  std::string fingerprint;   // of the device
  nlohmann::json options;
};

struct BaselineTime {
  std::string mode;
  Samples samples;  // empty when `error` says why
  std::optional<double> compile_seconds, first_call_seconds;
  std::optional<int64_t> peak_bytes;
  std::optional<std::string> error;
};

struct ProgramRecord {
  std::string mode;
  int graph = 0;
  std::string document;  // JSON text, kept byte for byte
};

struct GroupRecord {
  int graph = 0;
  std::string digest;
  std::vector<std::string> steps;
  std::optional<std::string> kept;  // why it stays the compiler's
  nlohmann::json facts;             // bytes, floor, headroom, …
};

struct AttemptRecord {
  std::string group;  // digest
  int round = 0, chain = 0;
  std::string transform, description;
  std::string plan_key, shape_key;
  nlohmann::json plan;
  std::optional<std::string> parent;  // candidate digest that it was made from
};

enum class TimingKind { kGroup, kModel, kAa };

struct TimingRecord {
  TimingKind kind = TimingKind::kGroup;
  std::string subject;  // candidate digest, set digest, or the mode timed against itself
  std::string fingerprint;
  PairedSamples samples;
  Seconds warmup{0}, repetition{0};  // asked for at least
};

struct StageSeconds {
  std::string name;
  Seconds seconds{0};
};

}  // namespace kernelopt
