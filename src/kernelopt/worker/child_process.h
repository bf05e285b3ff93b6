// ChildProcess: one Python process with two inherited pipes for frames, in a process group of its own that dies with us
// (DESIGN.md section 2). Moves bytes; knows nothing of methods.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernelopt/base/result.h"

namespace kernelopt {

struct ProcessSpec {
  std::vector<std::string> command;                // command[0] is looked up in PATH
  std::map<std::string, std::string> environment;  // added to ours
  std::string name;                                // for messages: "worker", "judge"
};

using Monotonic = std::chrono::steady_clock;
using Deadline = Monotonic::time_point;

class ChildProcess {
 public:
  // kEnvironment when the command cannot be started.
  static Result<std::unique_ptr<ChildProcess>> spawn(const ProcessSpec& spec);
  ~ChildProcess();  // kill()
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // One frame of docs/protocol.md each. kTimeout when the deadline passes, kWorkerDied when the other side is gone or
  // speaks nonsense, kInterrupted after a signal. After any error the process must be killed: the stream is not in step.
  Status send(const std::string& payload, Deadline deadline);
  Result<std::string> receive(Deadline deadline);

  // Closes the request pipe and waits up to `grace` for the process to end by itself, then kills the group.
  void finish(std::chrono::milliseconds grace);
  // SIGKILL to the whole group, and reaps it. Idempotent.
  void kill();

  int pid() const { return pid_; }
  // The last few KiB of standard output and error.
  const std::string& tail() const { return tail_; }
  // The last non-empty line of the tail, for one-line messages.
  std::string last_line() const;

 private:
  ChildProcess() = default;
  enum class Wait { kReady, kTimeout, kInterrupted };
  Wait wait_for(int fd, short events, Deadline deadline);
  Status read_exactly(char* into, size_t bytes, Deadline deadline);
  void drain_tail();
  Error died();

  std::string name_;
  int pid_ = -1;
  int to_child_ = -1, from_child_ = -1, output_ = -1;
  std::string tail_;
};

}  // namespace kernelopt
