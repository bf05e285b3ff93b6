// The pipeline of DESIGN.md section 1 for one model: load, reference, baseline, capture, decompose, audit, search, release.
// Stages are functions over a ModelState; the gates decide, this file only orders the work.
#pragma once

#include <functional>

#include "aside.h"
#include "display.h"
#include "model_state.h"
#include "options.h"
#include "recorder.h"
#include "kernelopt/gates/release.h"
#include "kernelopt/search/language_agents.h"
#include "kernelopt/stitch/optimized_file.h"

namespace kernelopt {

struct PipelineContext {
  Worker& worker;
  Judge& judge;
  Recorder& recorder;
  Display& display;
  const Options& options;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  LanguageModels models = {};
  ProfilerSettings profiler = {ProfilerChoice::kOff, {}, {}, ""};

  // Seconds until --minutes are over; nothing without the option.
  std::optional<double> seconds_left() const;
};

class Pipeline {
 public:
  explicit Pipeline(PipelineContext context);

  // Up to the groups with their times: what `inspect` shows.
  Status inspect();
  // Everything, up to an outcome in the state. kInterrupted when the user stopped it; the state then holds what there is.
  Status optimize();

  // For `verify`: the processes know the model, the run's modes are taken as given, and with `groups` the model is captured
  // and decomposed.
  Status prepare_verify(const std::string& captured_mode, const std::string& best_mode, bool groups);
  // A handle's outputs against eager's, for every seed of model_seeds().
  Result<std::vector<Observed<ModelRun>>> compare_model(const std::string& handle, uint64_t seed);
  // A handle's time against the best mode's program.
  Result<RatioEstimate> race_against_best(const std::string& handle);

  ModelState& state() { return state_; }
  const ModelState& state() const { return state_; }

 private:
  Status load();
  using References = std::vector<Result<nlohmann::json>>;
  References fetch_references();
  Status check_reference(const References& references);
  Status time_modes();
  Status capture();
  Status decompose_programs();
  Status audit();
  Status time_groups();
  Status search();
  Status load_memory();
  // Counts what the compiler's kernels of these groups do, or says in the state why not.
  Status profile(const std::vector<size_t>& groups);
  Status save_memory();
  Status search_group(size_t index, double seconds);
  Result<std::vector<Observed<Comparison>>> audit_group(const GroupState& group);
  struct Trialled;
  Result<Trialled> try_set(const std::vector<size_t>& groups, const std::vector<int>& choice, const std::string& baseline,
                           const std::optional<AaControl>& aa);
  Result<PairedSamples> race(const std::string& baseline, const std::string& candidate, double most_seconds);
  // A handle of the best mode's program.
  Result<std::string> baseline_handle();
  Status write_optimized(const Optimized& optimized);
  Status release_best();
  Status race_max_autotune(const std::string& handle);

  // Runs a stage under its name for the clock and the display.
  Status stage(const std::string& name, const std::function<Status()>& run);
  bool finished() const { return state_.outcome.has_value(); }
  void conclude_early(ModelOutcome outcome);
  void show(const std::string& stage, const std::string& detail = "");
  SetContext set_context() const;

  void keep(Status status);
  class Gates;  // journals what the gates decide

  PipelineContext context_;
  ModelState state_;
  Status journal_status_ = ok_status();  // the first failure of a callback that cannot return one
  std::shared_ptr<GateObserver> gates_;
  int candidates_ = 0;
  Aside aside_;
};

// What a group with a library call is judged as, and by which inputs. Leaves other groups' contexts as they are.
void challenge(GroupContext& context, const Program& program, const Group& group);

// Seeds that gate 3 and the audit compare, and the number of calls at each: later calls see the state that earlier ones left.
struct SeedCalls {
  uint64_t seed;
  int calls;
};
std::vector<SeedCalls> model_seeds(uint64_t seed);

// Where optimized.py finds the model: a copy named model.py beside it, or the module as given.
ModelOrigin model_origin(const ModelSpec& spec);

// The document that stands for a candidate's attempt in the journal and in the report.
nlohmann::json attempt_to_json(const Attempt& attempt, const std::string& group);
// The evaluation in such a document.
Evaluation evaluation_of(const nlohmann::json& attempt);

// A number for JSON, which has no infinities.
nlohmann::json json_number(double value);

// Times of at least so many pairs and seconds; a race in the search is shorter than the one of gate 4.
StoppingRule search_race(uint64_t seed);

}  // namespace kernelopt
