#include "bench_children.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "kernelopt/worker/interrupt.h"

namespace kernelopt {
namespace {

using Clock = std::chrono::steady_clock;

struct Running {
  size_t job;
  pid_t pid;
  Clock::time_point begin;
  bool hang = false;
};

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The pid, or -errno. The child leads its own process group, so that all it starts can be killed with it.
pid_t spawn(const ChildJob& job) {
  const int log = ::open(job.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return -errno;
  std::vector<char*> argv;
  for (const auto& argument : job.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int error = errno;
    ::close(log);
    return -error;
  }
  if (pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::signal(SIGPIPE, SIG_DFL);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, STDIN_FILENO);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::setpgid(pid, pid);  // both sides do it: whoever comes first
  ::close(log);
  return pid;
}

// Whether the process ended. It is reaped only after its group is killed: until then nobody else can get the number.
bool ended(const Running& child, siginfo_t& info) {
  info = {};
  if (::waitid(P_PID, child.pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return false;
  ::kill(-child.pid, SIGKILL);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return true;
}

ChildEnd end_of(const Running& child, const siginfo_t& info, bool stopping) {
  ChildEnd end;
  end.seconds = since(child.begin);
  end.code = info.si_status;
  const bool exited = info.si_code == CLD_EXITED;
  if (child.hang) end.how = ChildEnd::How::kHang;
  else if (stopping && !(exited && info.si_status == 0)) end.how = ChildEnd::How::kInterrupted;
  else end.how = exited ? ChildEnd::How::kExited : ChildEnd::How::kSignal;
  return end;
}

}  // namespace

std::string describe(const ChildEnd& end) {
  switch (end.how) {
    case ChildEnd::How::kExited: return fmt::format("exit status {}", end.code);
    case ChildEnd::How::kSignal: return fmt::format("killed by signal {} ({})", end.code, ::strsignal(end.code));
    case ChildEnd::How::kHang: return fmt::format("hang: killed after {:.0f} s", end.seconds);
    case ChildEnd::How::kInterrupted: return "interrupted";
    case ChildEnd::How::kNotStarted: return fmt::format("could not be started: {}", std::strerror(end.code));
  }
  return "?";
}

void run_children(const std::vector<ChildJob>& jobs, int at_once, double grace_seconds,
                  const std::function<void(size_t job, const ChildEnd& end)>& done) {
  std::vector<Running> running;
  size_t next = 0;
  bool stopping = false, killed = false;
  Clock::time_point stop_begin;
  while (true) {
    if (interrupted() && !stopping) {
      stopping = true;
      stop_begin = Clock::now();
      for (const auto& child : running) ::kill(child.pid, SIGINT);
    }
    while (!stopping && next < jobs.size() && running.size() < static_cast<size_t>(at_once)) {
      const pid_t pid = spawn(jobs[next]);
      if (pid < 0) done(next, {ChildEnd::How::kNotStarted, -pid, 0});
      else running.push_back({next, pid, Clock::now()});
      ++next;
    }
    if (running.empty() && (stopping || next >= jobs.size())) return;
    if (stopping && !killed && since(stop_begin) > grace_seconds) {
      killed = true;
      for (const auto& child : running) ::kill(-child.pid, SIGKILL);
    }
    for (size_t i = 0; i < running.size();) {
      auto& child = running[i];
      siginfo_t info;
      if (ended(child, info)) {
        const auto end = end_of(child, info, stopping);
        const size_t job = child.job;
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
        done(job, end);
        continue;
      }
      if (!child.hang && since(child.begin) > jobs[child.job].limit_seconds) {
        child.hang = true;
        ::kill(-child.pid, SIGKILL);
      }
      ++i;
    }
    // Once interrupted, the descriptor stays readable and would not wait.
    pollfd wake{stopping ? -1 : interrupt_fd(), POLLIN, 0};
    ::poll(&wake, 1, 50);
  }
}

}  // namespace kernelopt
