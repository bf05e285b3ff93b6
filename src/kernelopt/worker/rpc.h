// Rpc: requests and replies of docs/protocol.md over one child process that may be restarted.
#pragma once

#include <functional>
#include <memory>

#include <nlohmann/json.hpp>

#include "kernelopt/worker/child_process.h"

namespace kernelopt {

struct Progress {
  std::string stage;
  int done = 0, total = 0;
};

// One request and its reply; starts the process when there is none. An error from the process itself (kWorkerDied,
// kTimeout, kInterrupted) has killed it; an error reply has not. `generation` counts the processes started so far: state in
// the process is lost when it changes.
class Rpc {
 public:
  virtual ~Rpc() = default;
  virtual Status start() = 0;
  virtual Result<nlohmann::json> call(const std::string& method, const nlohmann::json& params,
                                      std::chrono::milliseconds limit) = 0;
  virtual int generation() const = 0;
  // Seconds spent waiting for replies, over all processes so far.
  virtual double seconds_waited() const { return 0; }
  virtual void stop() = 0;
};

class ProcessRpc final : public Rpc {
 public:
  explicit ProcessRpc(ProcessSpec spec, std::function<void(const Progress&)> on_progress = {});
  Status start() override;
  Result<nlohmann::json> call(const std::string& method, const nlohmann::json& params,
                              std::chrono::milliseconds limit) override;
  int generation() const override { return generation_; }
  double seconds_waited() const override { return seconds_; }
  void stop() override;
  // Process id, -1 when none runs.
  int pid() const { return child_ ? child_->pid() : -1; }

 private:
  Result<nlohmann::json> exchange(const std::string& method, const nlohmann::json& params, std::chrono::milliseconds limit);

  ProcessSpec spec_;
  std::function<void(const Progress&)> on_progress_;
  std::unique_ptr<ChildProcess> child_;
  int generation_ = 0;
  double seconds_ = 0;
  int64_t next_id_ = 1;
};

}  // namespace kernelopt
