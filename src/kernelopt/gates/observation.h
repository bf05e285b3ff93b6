// What worker and judge saw, as plain records (docs/protocol.md, "Exact shapes"). They decide nothing and vouch for
// nothing: the gates read them, and nothing else mints a pass.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/base/result.h"
#include "kernelopt/ir/dtype.h"
#include "kernelopt/measure/statistics.h"

namespace kernelopt {

// `violations` of a leaf, in the order in which tolerances_request() asks.
enum class AskedTolerance { kGroup = 0, kModel = 1, kHalf = 2 };
// The `tolerances` parameter of compare_group and compare_model.
nlohmann::json tolerances_request();

struct LeafComparison {
  std::string path;
  bool is_tensor = true;            // otherwise a plain value: `equal` says all
  std::optional<DType> dtype;       // nothing for a type that the engine does not know (complex, …): must be equal
  bool equal = false;               // bit for bit, NaN equal to NaN
  bool shape_equal = false, dtype_equal = false, stride_equal = true;
  bool nonfinite_equal = false;     // NaN and infinities in the same places
  int64_t elements = 0;
  double max_abs = 0, max_rel = 0;
  std::vector<int64_t> violations;  // by AskedTolerance
  std::optional<double> d_opt, d_ref, d_opt_rows, d_ref_rows;  // none for integers
  double rms = 0, ref_error = 0;
};
Result<LeafComparison> read_leaf_comparison(const nlohmann::json& leaf);
nlohmann::json leaf_to_json(const LeafComparison& leaf);

// Reply of compare_group and compare_model.
struct Comparison {
  bool structure_equal = false;
  std::vector<LeafComparison> leaves;
};
Result<Comparison> read_comparison(const nlohmann::json& reply);

// What one launch of a Triton candidate takes, as its binary says.
struct LaunchResources {
  std::string kernel;
  int64_t programs = 0;
  int warps = 0;
  bool cooperative = false;
  int64_t registers = 0;     // a thread
  int64_t stack_bytes = 0;   // of local memory a thread: spilled registers and local arrays
  int64_t shared_bytes = 0;  // a program
};

// One candidate's entry of the reply of `compile`.
struct CompileReport {
  std::string library;
  Seconds seconds{0};
  std::vector<std::string> symbols;  // defined for others to use
  std::vector<LaunchResources> launches = {};  // Triton: one a launch, in their order
};
// kCandidate, with the compiler's message, where it did not compile.
Result<CompileReport> read_compile_report(const nlohmann::json& entry);

// A request whose failure may be the candidate's fault or not: how often it was tried, and how it ended the last time.
template <typename T>
struct Observed {
  Result<T> result;
  int attempts = 1;
};

// run_group and compare_group on one input.
struct GroupRun {
  uint64_t seed = 0;
  std::string input_case = "ordinary";
  int runs = 1;  // of the candidate on this input
  bool inputs_unchanged = false, guards_intact = false, deterministic = false;
  int64_t unwritten = 0;  // elements that still hold the poison
  Comparison comparison;
};
Result<GroupRun> read_group_run(uint64_t seed, std::string input_case, int runs, const nlohmann::json& run_group,
                                const nlohmann::json& compare_group);

struct GroupObservation {
  std::string candidate;             // digest of what ran
  std::vector<uint64_t> used_seeds;  // seeds that the search has shown this candidate: not fresh
  std::vector<Observed<GroupRun>> runs;
};

struct ReplacedGroup {
  int graph = 0;
  std::string digest;
  std::vector<std::string> steps;
};
Result<std::vector<ReplacedGroup>> read_replaced(const nlohmann::json& stitch_reply);

// run_model and compare_model for one seed: outputs, inputs and buffers after the calls are leaves alike.
struct ModelRun {
  uint64_t seed = 0;
  int calls = 1;
  Comparison comparison;
};

struct ModelObservation {
  std::string set;  // digest of the set of candidates stitched in
  Observed<std::vector<ReplacedGroup>> stitched{Error(ErrorCode::kInternal, "not stitched")};
  std::vector<Observed<ModelRun>> runs;
};

// time_model: the stitched model against the best mode's program.
struct RaceObservation {
  std::string set;
  std::string baseline_mode;
  Seconds warmup{0}, repetition{0};  // asked for at least
  uint64_t bootstrap_seed = 0;
  Observed<PairedSamples> samples{Error(ErrorCode::kInternal, "not timed")};
  std::optional<AaControl> aa;
};

// Reply of reference_model for one seed.
struct ReferenceFacts {
  bool deterministic = false;
  std::vector<std::string> reasons;  // why not
  bool constant_output = false, independent_of_inputs = false;
};
Result<ReferenceFacts> read_reference_facts(const nlohmann::json& reply);

}  // namespace kernelopt
