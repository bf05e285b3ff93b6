// Problems of a benchmark as child processes: several at once, each with a hard limit, all stopped by an interrupt.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace kernelopt {

struct ChildJob {
  std::vector<std::string> arguments;  // argv, the executable first
  std::string log;                     // file that takes stdout and stderr, appended
  double limit_seconds = 0;            // past it the process group is killed
};

struct ChildEnd {
  enum class How { kExited, kSignal, kHang, kInterrupted, kNotStarted };
  How how = How::kNotStarted;
  int code = 0;  // exit status, signal, or errno
  double seconds = 0;
};

// "exit status 4", "killed by signal 11 (…)", "hang: killed after 840 s", …
std::string describe(const ChildEnd& end);

// Runs the jobs, at most `at_once` at a time, in order. `done` hears of each job that ended, in the order of their ends;
// jobs that an interrupt (interrupt.h) kept from starting are not reported. An interrupt goes to the running ones as
// SIGINT; what still runs `grace_seconds` later is killed. On return no process of any job's group is left. The
// children end with this process (PR_SET_PDEATHSIG), so call it on a thread that outlives them.
void run_children(const std::vector<ChildJob>& jobs, int at_once, double grace_seconds,
                  const std::function<void(size_t job, const ChildEnd& end)>& done);

}  // namespace kernelopt
