// Worker and Judge: what the two Python processes can be asked (docs/protocol.md), one function per method. Interfaces;
// remote.h talks to processes, fake_worker.h is for tests. They observe; nothing here decides.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/base/result.h"
#include "kernelopt/codegen/candidate.h"

namespace kernelopt {

struct ModelSpec {
  std::string path;  // file, or module:function
  std::string device = "cpu";
  std::optional<std::string> dtype, inputs, state_dict;
  uint64_t seed = 0;
};

struct LoadedModel {
  int64_t parameters = 0;
  nlohmann::json inputs = nlohmann::json::array();  // for people: dtype, size, stride, device each
  std::vector<std::string> needs;  // "random", "mutates", …
};

struct Capture {
  std::vector<std::string> programs;  // files, in graph order
  std::vector<std::string> graph_breaks;
  std::vector<std::string> refused;   // graphs that stay the compiler's as a whole, with why
  double compile_seconds = 0;
};

struct GroupDescription {
  std::string digest;
  std::vector<std::string> step_digests, names, external;
  std::optional<nlohmann::json> baseline;  // the compiler's kernels as a candidate document
  std::optional<std::string> refused;
};

struct ModeTiming {
  std::string mode;
  std::vector<double> samples;  // seconds per call
  double compile_seconds = 0, first_call_seconds = 0;
  int64_t peak_bytes = 0;
  std::optional<std::string> error;
};

struct CompileOutcome {
  std::string library;
  double seconds = 0;
  bool cached = false;
  nlohmann::json entry;        // as replied
  std::optional<Error> error;  // kCandidate: the compiler's message
};

// A group as the processes need it: the program file holds the steps, names map canonical buffers to real ones.
struct GroupRef {
  int graph = 0;
  std::string program;  // file
  std::vector<std::string> steps, names;
};

struct GroupRequest {
  GroupRef group;
  nlohmann::json candidate;  // a candidate document
  nlohmann::json inputs;     // from Judge::group_inputs
  uint64_t seed = 0;
  std::string input_case = "ordinary";
  int64_t guard_bytes = 4096;
  int runs = 2;
};

struct GroupOutput {
  nlohmann::json outputs;  // canonical name -> exchange leaf
  nlohmann::json reply;    // all of it, for the gates
};

struct Timing {
  double warmup_ms = 25, rep_ms = 100;
};
// A race that its first samples do not decide goes on in larger pieces: each request sets memory and inputs up anew.
inline constexpr Timing kMoreOfARace{25, 400};

struct RawPairs {
  std::vector<double> baseline, candidate;  // seconds per call, taken in alternation
  nlohmann::json reply;
};

struct Replacement {
  int graph = 0;
  std::vector<std::string> steps;
  std::string digest;
};

struct Stitched {
  std::string handle;
  std::vector<Replacement> replaced;
  double compile_seconds = 0;
  nlohmann::json status;  // load_optimized only
  nlohmann::json reply;   // all of it, for the gates
};

struct ModelOutput {
  nlohmann::json outputs, inputs, buffers;  // exchange trees, after the calls
};

inline constexpr const char* kEagerHandle = "eager";

class Process {
 public:
  virtual ~Process() = default;
  virtual Result<nlohmann::json> hello() = 0;
  virtual Result<LoadedModel> load_model(const ModelSpec& spec) = 0;
  // How often the process had to be started again.
  virtual int restarts() const = 0;
  // Seconds that callers have waited for it.
  virtual double seconds_waited() const { return 0; }
  // Removes the exchange files that a value names.
  virtual Status drop_files(const nlohmann::json& tree) = 0;
  virtual void stop() = 0;
};

class Worker : public Process {
 public:
  virtual Result<nlohmann::json> measure_peaks() = 0;
  virtual Result<Capture> capture(const std::string& mode, const std::string& folder) = 0;
  virtual Result<std::vector<GroupDescription>> describe_groups(int graph,
                                                                const std::vector<std::vector<std::string>>& groups) = 0;
  virtual Result<std::vector<ModeTiming>> baseline_modes(const std::vector<std::string>& modes, Timing timing) = 0;
  // One outcome a candidate, in order.
  virtual Result<std::vector<CompileOutcome>> compile(const std::vector<nlohmann::json>& candidates) = 0;
  virtual Result<GroupOutput> run_group(const GroupRequest& request) = 0;
  virtual Result<RawPairs> time_group(const GroupRef& group, const nlohmann::json& baseline,
                                           const nlohmann::json& candidate, const nlohmann::json& inputs, uint64_t seed,
                                           Timing timing) = 0;
  // kernels: a kernel set document, null for the compiler's own program. Handles outlive restarts.
  virtual Result<Stitched> stitch(const std::string& mode, const nlohmann::json& kernels) = 0;
  virtual Result<Stitched> load_optimized(const std::string& path) = 0;
  virtual Result<std::string> runtime_source() = 0;
  virtual Result<ModelOutput> run_model(const std::string& handle, uint64_t seed, int calls) = 0;
  virtual Result<RawPairs> time_model(const std::string& baseline, const std::string& candidate, uint64_t seed,
                                           Timing timing) = 0;
  virtual Status drop(const std::string& handle) = 0;
};

class Judge : public Process {
 public:
  virtual Result<nlohmann::json> reference_model(uint64_t seed, int calls) = 0;
  virtual Result<nlohmann::json> compare_model(uint64_t seed, int calls, const ModelOutput& run,
                                               const nlohmann::json& tolerances) = 0;
  virtual Result<nlohmann::json> group_inputs(const GroupRef& group, uint64_t seed, const std::string& input_case) = 0;
  virtual Result<nlohmann::json> compare_group(const GroupRef& group, uint64_t seed, const std::string& input_case,
                                               const nlohmann::json& outputs, const nlohmann::json& tolerances) = 0;
  virtual Result<nlohmann::json> check_lowering(const std::string& program, int graph) = 0;
};

}  // namespace kernelopt
