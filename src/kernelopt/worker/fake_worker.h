// FakeWorker, FakeJudge: the interfaces of worker.h answered by functions that a test sets. A function that was not set
// answers kInternal, so that no test passes on an answer that nobody gave.
#pragma once

#include <functional>

#include "kernelopt/worker/worker.h"

namespace kernelopt {

inline Error not_faked(const char* method) { return Error(ErrorCode::kInternal, std::string(method) + " is not faked"); }

class FakeWorker : public Worker {
 public:
  std::function<Result<nlohmann::json>()> on_hello;
  std::function<Result<LoadedModel>(const ModelSpec&)> on_load_model;
  std::function<Result<Capture>(const std::string&, const std::string&)> on_capture;
  std::function<Result<std::vector<GroupDescription>>(int, const std::vector<std::vector<std::string>>&)> on_describe;
  std::function<Result<std::vector<ModeTiming>>(const std::vector<std::string>&)> on_baseline_modes;
  std::function<Result<std::vector<CompileOutcome>>(const std::vector<nlohmann::json>&)> on_compile;
  std::function<Result<GroupOutput>(const GroupRequest&)> on_run_group;
  std::function<Result<RawPairs>(const nlohmann::json&, const nlohmann::json&)> on_time_group;
  std::function<Result<Stitched>(const std::string&, const nlohmann::json&)> on_stitch;
  std::function<Result<ModelOutput>(const std::string&, uint64_t, int)> on_run_model;
  std::function<Result<RawPairs>(const std::string&, const std::string&)> on_time_model;
  std::function<Result<std::string>()> on_runtime_source;
  int restart_count = 0;
  std::vector<std::string> calls;  // methods, in order

  Result<nlohmann::json> hello() override { return answer("hello", on_hello); }
  Result<LoadedModel> load_model(const ModelSpec& spec) override { return answer("load_model", on_load_model, spec); }
  int restarts() const override { return restart_count; }
  void stop() override {}
  Status drop_files(const nlohmann::json&) override { return ok_status(); }
  Result<nlohmann::json> measure_peaks() override { return not_faked("measure_peaks"); }
  Result<Capture> capture(const std::string& mode, const std::string& folder) override {
    return answer("capture", on_capture, mode, folder);
  }
  Result<std::vector<GroupDescription>> describe_groups(int graph,
                                                        const std::vector<std::vector<std::string>>& groups) override {
    return answer("describe_groups", on_describe, graph, groups);
  }
  Result<std::vector<ModeTiming>> baseline_modes(const std::vector<std::string>& modes, Timing) override {
    return answer("baseline_modes", on_baseline_modes, modes);
  }
  Result<std::vector<CompileOutcome>> compile(const std::vector<nlohmann::json>& candidates) override {
    return answer("compile", on_compile, candidates);
  }
  Result<GroupOutput> run_group(const GroupRequest& request) override { return answer("run_group", on_run_group, request); }
  Result<RawPairs> time_group(const GroupRef&, const nlohmann::json& baseline, const nlohmann::json& candidate,
                              const nlohmann::json&, uint64_t, Timing) override {
    return answer("time_group", on_time_group, baseline, candidate);
  }
  Result<Stitched> stitch(const std::string& mode, const nlohmann::json& kernels) override {
    return answer("stitch", on_stitch, mode, kernels);
  }
  Result<Stitched> load_optimized(const std::string&) override { return not_faked("load_optimized"); }
  Result<std::string> runtime_source() override { return answer("runtime_source", on_runtime_source); }
  Result<ModelOutput> run_model(const std::string& handle, uint64_t seed, int calls_made) override {
    return answer("run_model", on_run_model, handle, seed, calls_made);
  }
  Result<RawPairs> time_model(const std::string& baseline, const std::string& candidate, uint64_t, Timing) override {
    return answer("time_model", on_time_model, baseline, candidate);
  }
  Status drop(const std::string&) override { return ok_status(); }

 private:
  template <typename R, typename... Formal, typename... Actual>
  R answer(const char* method, const std::function<R(Formal...)>& function, Actual&&... arguments) {
    calls.push_back(method);
    if (!function) return not_faked(method);
    return function(std::forward<Actual>(arguments)...);
  }
};

class FakeJudge : public Judge {
 public:
  std::function<Result<nlohmann::json>(uint64_t, int)> on_reference_model;
  std::function<Result<nlohmann::json>(uint64_t, const ModelOutput&)> on_compare_model;
  std::function<Result<nlohmann::json>(const GroupRef&, uint64_t)> on_group_inputs;
  std::function<Result<nlohmann::json>(const GroupRef&, uint64_t, const nlohmann::json&)> on_compare_group;
  int restart_count = 0;

  Result<nlohmann::json> hello() override { return not_faked("hello"); }
  Result<LoadedModel> load_model(const ModelSpec&) override { return LoadedModel{}; }
  int restarts() const override { return restart_count; }
  void stop() override {}
  Status drop_files(const nlohmann::json&) override { return ok_status(); }
  Result<nlohmann::json> reference_model(uint64_t seed, int calls) override {
    if (!on_reference_model) return not_faked("reference_model");
    return on_reference_model(seed, calls);
  }
  Result<nlohmann::json> compare_model(uint64_t seed, int, const ModelOutput& run, const nlohmann::json&) override {
    if (!on_compare_model) return not_faked("compare_model");
    return on_compare_model(seed, run);
  }
  Result<nlohmann::json> group_inputs(const GroupRef& group, uint64_t seed, const std::string&) override {
    if (!on_group_inputs) return not_faked("group_inputs");
    return on_group_inputs(group, seed);
  }
  Result<nlohmann::json> compare_group(const GroupRef& group, uint64_t seed, const std::string&,
                                       const nlohmann::json& outputs, const nlohmann::json&) override {
    if (!on_compare_group) return not_faked("compare_group");
    return on_compare_group(group, seed, outputs);
  }
  Result<nlohmann::json> check_lowering(const std::string&, int) override { return not_faked("check_lowering"); }
};

}  // namespace kernelopt
