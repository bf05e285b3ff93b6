// StrategyMemory: what searches on one device have learned, for the planner to read (DESIGN.md section 7). A queue of the
// last remarkable experiences, and how often each kind of transformation paid for each bottleneck. Context for planners and
// nothing else: no gate knows it (the gates are a layer below and cannot include this).
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <string>

#include "kernelopt/search/cost_model.h"
#include "kernelopt/search/records.h"

namespace kernelopt {

// When an experience is worth keeping, and when a strategy is marked AVOID.
struct MemoryRules {
  size_t length = 8;
  double speedup = 1.05, slowdown = 1.20;  // against the plan that it was made from
  double avoid_below = 0.30;               // rate of success
  int avoid_after = 3;                     // tries
};

struct Experience {
  std::string bottleneck, kind, description;
  double speedup = 1;  // over the plan that it was made from; 0: it was refused
  bool operator==(const Experience&) const = default;
};

struct StrategyRecord {
  int tried = 0, succeeded = 0;
  double log_gain = 0;  // sum over tries, none below 0
  double rate() const { return tried > 0 ? static_cast<double>(succeeded) / tried : 0; }
};

class StrategyMemory {
 public:
  explicit StrategyMemory(MemoryRules rules = {}) : rules_(rules) {}

  // Takes in a finished attempt; duplicates and faults of the infrastructure teach nothing.
  void learn(const Attempt& attempt, Bottleneck bottleneck);
  // What another memory learned, after everything here.
  void merge(const StrategyMemory& newer);

  const std::deque<Experience>& experiences() const { return experiences_; }
  StrategyRecord strategy(Bottleneck bottleneck, TransformKind kind) const;
  bool avoid(Bottleneck bottleneck, TransformKind kind) const { return avoided(strategy(bottleneck, kind)); }
  const CostModel& model() const { return model_; }
  bool empty() const { return strategies_.empty(); }

  nlohmann::json to_json() const;
  // kBadInput for anything that to_json did not write.
  static Result<StrategyMemory> from_json(const nlohmann::json& document, MemoryRules rules = {});
  // For people and for prompts: experiences, then strategies with AVOID where they earned it.
  std::string text() const;

 private:
  bool avoided(const StrategyRecord& record) const {
    return record.tried >= rules_.avoid_after && record.rate() < rules_.avoid_below;
  }

  MemoryRules rules_;
  std::deque<Experience> experiences_;
  std::map<std::pair<std::string, std::string>, StrategyRecord> strategies_;  // bottleneck, kind
  CostModel model_;
};

// One file a device in a folder; writers take turns.
class MemoryStore {
 public:
  explicit MemoryStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // Empty when there is none yet. A file that cannot be read counts as none: memory is a convenience, and a run must not fail
  // for it; `note`, if given, says so.
  StrategyMemory load(const std::string& fingerprint, std::string* note = nullptr) const;
  // Adds what a run learned to what is there by now. kIo.
  Status add(const std::string& fingerprint, const std::string& device, const StrategyMemory& learned) const;
  // Every device's file: {device, fingerprint, memory}.
  std::vector<nlohmann::json> all() const;

 private:
  std::filesystem::path file(const std::string& fingerprint) const;
  std::filesystem::path folder_;
};

// $KERNELOPT_MEMORY; nothing where it is not set.
std::optional<std::string> memory_folder_of_environment();

}  // namespace kernelopt
