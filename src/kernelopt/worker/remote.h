// RemoteWorker, RemoteJudge: the interfaces of worker.h over processes. A process that dies or hangs costs the call that was
// running; the next call starts another one, and its state (model, capture, handles) is rebuilt when a call needs it.
#pragma once

#include <map>
#include <memory>

#include "kernelopt/worker/rpc.h"
#include "kernelopt/worker/worker.h"

namespace kernelopt {

// Deadlines of the methods; every request has one.
struct Deadlines {
  std::chrono::seconds hello{300}, load{300}, capture{900}, describe{300}, baseline{1800}, compile{180}, run_group{60},
      time_group{60}, stitch{600}, run_model{300}, time_model{300}, reference{900}, compare{300}, other{180};
};

// What both have in common: hello once a process, the model loaded again after a restart.
class RemoteProcess {
 public:
  RemoteProcess(std::unique_ptr<Rpc> rpc, std::string role, Deadlines deadlines);

  Result<nlohmann::json> hello();
  Result<LoadedModel> load_model(const ModelSpec& spec);
  int restarts() const { return rpc_->generation() > 0 ? rpc_->generation() - 1 : 0; }
  double seconds_waited() const { return rpc_->seconds_waited(); }
  void stop() { rpc_->stop(); }
  Status drop_files(const nlohmann::json& tree);

  // A call on a process that has said hello and, if there is one, has the model.
  Result<nlohmann::json> call(const std::string& method, const nlohmann::json& params, std::chrono::seconds limit);
  int generation() const { return rpc_->generation(); }
  const Deadlines& deadlines() const { return deadlines_; }

 private:
  Status ready(bool with_model);
  Result<LoadedModel> send_model();

  std::unique_ptr<Rpc> rpc_;
  std::string role_;
  Deadlines deadlines_;
  nlohmann::json hello_;
  int hello_generation_ = 0, model_generation_ = 0;
  std::optional<ModelSpec> model_;
};

class RemoteWorker final : public Worker {
 public:
  explicit RemoteWorker(std::unique_ptr<Rpc> rpc, Deadlines deadlines = {});

  Result<nlohmann::json> hello() override { return process_.hello(); }
  Result<LoadedModel> load_model(const ModelSpec& spec) override;
  int restarts() const override { return process_.restarts(); }
  double seconds_waited() const override { return process_.seconds_waited(); }
  void stop() override { process_.stop(); }
  Status drop_files(const nlohmann::json& tree) override { return process_.drop_files(tree); }
  Result<nlohmann::json> measure_peaks() override;
  Result<Capture> capture(const std::string& mode, const std::string& folder) override;
  Result<std::vector<GroupDescription>> describe_groups(int graph,
                                                        const std::vector<std::vector<std::string>>& groups) override;
  Result<std::vector<ModeTiming>> baseline_modes(const std::vector<std::string>& modes, Timing timing) override;
  Result<std::vector<CompileOutcome>> compile(const std::vector<nlohmann::json>& candidates) override;
  Result<GroupOutput> run_group(const GroupRequest& request) override;
  Result<RawPairs> time_group(const GroupRef& group, const nlohmann::json& baseline, const nlohmann::json& candidate,
                                   const nlohmann::json& inputs, uint64_t seed, Timing timing) override;
  Result<Stitched> stitch(const std::string& mode, const nlohmann::json& kernels) override;
  Result<Stitched> load_optimized(const std::string& path) override;
  Result<std::string> runtime_source() override;
  Result<ModelOutput> run_model(const std::string& handle, uint64_t seed, int calls) override;
  Result<RawPairs> time_model(const std::string& baseline, const std::string& candidate, uint64_t seed,
                                   Timing timing) override;
  Status drop(const std::string& handle) override;

 private:
  // What a handle stands for, so that it can be made again in a new process.
  struct Handle {
    std::string method;
    nlohmann::json params;
    std::string remote;
    int generation = 0;
  };
  Status need_capture();
  Result<Stitched> make(const std::string& method, nlohmann::json params);
  Result<nlohmann::json> realise(Handle& handle);
  Result<std::string> remote_handle(const std::string& handle);

  RemoteProcess process_;
  std::optional<std::pair<std::string, std::string>> capture_;  // mode, folder
  int capture_generation_ = 0;
  std::map<std::string, Handle> handles_;
  int next_handle_ = 1;
};

class RemoteJudge final : public Judge {
 public:
  explicit RemoteJudge(std::unique_ptr<Rpc> rpc, Deadlines deadlines = {});

  Result<nlohmann::json> hello() override { return process_.hello(); }
  Result<LoadedModel> load_model(const ModelSpec& spec) override { return process_.load_model(spec); }
  int restarts() const override { return process_.restarts(); }
  double seconds_waited() const override { return process_.seconds_waited(); }
  void stop() override { process_.stop(); }
  Status drop_files(const nlohmann::json& tree) override { return process_.drop_files(tree); }
  Result<nlohmann::json> reference_model(uint64_t seed, int calls) override;
  Result<nlohmann::json> compare_model(uint64_t seed, int calls, const ModelOutput& run,
                                       const nlohmann::json& tolerances) override;
  Result<nlohmann::json> group_inputs(const GroupRef& group, uint64_t seed, const std::string& input_case) override;
  Result<nlohmann::json> compare_group(const GroupRef& group, uint64_t seed, const std::string& input_case,
                                       const nlohmann::json& outputs, const nlohmann::json& tolerances) override;
  Result<nlohmann::json> check_lowering(const std::string& program, int graph) override;

 private:
  RemoteProcess process_;
};

}  // namespace kernelopt
