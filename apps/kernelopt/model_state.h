// ModelState: what the stages of the pipeline learn about one model. Filled in order; the report is made from it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernelopt/analyst/kernel_metrics.h"
#include "kernelopt/analyst/roofline.h"
#include "kernelopt/gates/outcome.h"
#include "kernelopt/search/group_evaluator.h"
#include "kernelopt/search/profiler.h"
#include "kernelopt/search/select.h"
#include "kernelopt/search/strategy_memory.h"
#include "kernelopt/target/target.h"
#include "kernelopt/worker/worker.h"

namespace kernelopt {

// Journaled attempts of earlier parts of the run and of this one, as JSON, by candidate digest or plan key.
struct GroupState {
  int program = 0;                       // index into ModelState::programs
  Group group;
  GroupRef ref;
  std::optional<nlohmann::json> baseline;
  std::string kept;                      // why the compiler's kernels stay without a search; empty: it may be searched
  bool representative = true;
  int copies = 1;                        // equal groups, itself included
  Work work;
  Roofline roofline;
  std::optional<GroupProfile> profile;   // absent where its search was not worth one
  std::optional<RatioEstimate> time;     // the compiler's kernels against themselves
  double floor_seconds = 0;
  Outlook outlook;
  std::unique_ptr<GroupEvaluator> evaluator;
  std::optional<SearchResult> search;
  std::map<std::string, Candidate> candidates;  // written, by digest
  std::vector<std::string> ranked;       // digests that may be released, fastest first

  const KernelMetrics* metrics() const { return profile && profile->metrics ? &*profile->metrics : nullptr; }
  // From counters where there are some.
  Diagnosis diagnosis() const { return metrics() ? diagnose(roofline, *metrics()) : roofline.diagnosis; }
};

struct ModelState {
  nlohmann::json hello = nlohmann::json::object(), peaks = nlohmann::json::object();
  Target target;
  LoadedModel loaded;
  std::vector<nlohmann::json> references;  // one a seed
  std::vector<ModeTiming> modes;
  std::string best_mode;                   // the fastest, "eager" included
  std::string compiled_mode;               // the fastest that compiles: captured and stitched
  Capture capture;
  std::vector<std::unique_ptr<Program>> programs;
  std::vector<std::string> program_files;  // of each program
  std::vector<MergeRefusal> merge_refusals;
  std::vector<NotOptimizable> not_optimizable;
  std::vector<GroupState> groups;
  nlohmann::json model_usage = nullptr;     // of language models, by agent
  // What the profiler did; its groups' profiles are theirs. Absent: nothing was searched.
  std::optional<Profile> profile;
  StrategyMemory memory, learned;          // what the search reads; what this run adds to the device's
  std::optional<BaselineSound> sound;
  std::vector<nlohmann::json> release_steps;
  std::optional<ModelOutcome> outcome;
  std::optional<RatioEstimate> against_max_autotune;
  std::map<std::string, double> stage_seconds;
  double seconds_waited = 0;               // for worker and judge; the rest of the wall time is the engine's own
  std::vector<std::string> notes;
  std::optional<std::string> degenerate;   // why a gain would mean nothing
  bool retimed = true;                     // false: the modes' times come from the part of the run before a resume

  const ModeTiming* mode(const std::string& name) const {
    for (const auto& timing : modes)
      if (timing.mode == name && !timing.error) return &timing;
    return nullptr;
  }
  double mode_seconds(const std::string& name) const;  // median; 0 when not measured
};

}  // namespace kernelopt
