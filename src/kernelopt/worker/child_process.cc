#include "kernelopt/worker/child_process.h"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "kernelopt/worker/interrupt.h"

extern char** environ;

namespace kernelopt {
namespace {

constexpr uint32_t kMaxFrame = 1u << 30;
constexpr size_t kTailBytes = 16 << 10;

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

struct Pipe {
  int read = -1, write = -1;
  bool open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
};

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (!extra.count(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [key, value] : extra) result.push_back(key + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::spawn(const ProcessSpec& spec) {
  KO_CHECK(!spec.command.empty(), "empty command");
  Pipe request, reply, output, status;
  if (!request.open() || !reply.open() || !output.open() || !status.open())
    return Error(ErrorCode::kEnvironment, fmt::format("cannot make a pipe: {}", std::strerror(errno)));

  // Everything that allocates happens before fork().
  auto extra = spec.environment;
  extra["KERNELOPT_FD_IN"] = std::to_string(request.read);
  extra["KERNELOPT_FD_OUT"] = std::to_string(reply.write);
  auto command = spec.command;
  auto environment = merged_environment(extra);
  auto arguments = pointers(command);
  auto variables = pointers(environment);
  const pid_t parent = ::getpid();

  const pid_t pid = ::fork();
  if (pid < 0) return Error(ErrorCode::kEnvironment, fmt::format("cannot fork: {}", std::strerror(errno)));
  if (pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    for (int signal : {SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_DFL);
    const int null = ::open("/dev/null", O_RDONLY);
    if (null >= 0) ::dup2(null, 0);
    ::dup2(output.write, 1);
    ::dup2(output.write, 2);
    ::fcntl(request.read, F_SETFD, 0);
    ::fcntl(reply.write, F_SETFD, 0);
    ::execvpe(arguments[0], arguments.data(), variables.data());
    const int error = errno;
    [[maybe_unused]] auto written = ::write(status.write, &error, sizeof error);
    ::_exit(127);
  }
  ::setpgid(pid, pid);  // both sides, so that it holds whoever comes first
  for (int* fd : {&request.read, &reply.write, &output.write, &status.write}) close_fd(*fd);

  int error = 0;
  ssize_t got;
  do got = ::read(status.read, &error, sizeof error);
  while (got < 0 && errno == EINTR);
  close_fd(status.read);

  std::unique_ptr<ChildProcess> child(new ChildProcess);
  child->name_ = spec.name;
  child->pid_ = pid;
  child->to_child_ = request.write;
  child->from_child_ = reply.read;
  child->output_ = output.read;
  ::fcntl(child->to_child_, F_SETFL, O_NONBLOCK);
  ::fcntl(child->output_, F_SETFL, O_NONBLOCK);
  if (got > 0) {
    child->kill();
    return Error(ErrorCode::kEnvironment, fmt::format("cannot run {}: {}", spec.command[0], std::strerror(error)));
  }
  return child;
}

ChildProcess::~ChildProcess() { kill(); }

ChildProcess::Wait ChildProcess::wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    if (interrupted()) return Wait::kInterrupted;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Monotonic::now()).count();
    if (left <= 0) return Wait::kTimeout;
    pollfd fds[3] = {{fd, events, 0}, {output_, POLLIN, 0}, {interrupt_fd(), POLLIN, 0}};
    const int ready = ::poll(fds, 3, static_cast<int>(std::min<int64_t>(left, 1 << 30)));
    if (ready < 0 && errno != EINTR) return Wait::kReady;  // the next read or write says what is wrong
    if (ready <= 0) continue;
    if (fds[1].revents) drain_tail();
    if (fds[0].revents) return Wait::kReady;
  }
}

void ChildProcess::drain_tail() {
  char buffer[4096];
  for (;;) {
    const ssize_t got = ::read(output_, buffer, sizeof buffer);
    if (got > 0) {
      tail_.append(buffer, static_cast<size_t>(got));
      if (tail_.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || errno != EAGAIN) close_fd(output_);  // poll ignores a negative descriptor
    return;
  }
}

std::string ChildProcess::last_line() const {
  std::string text = tail_;
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  const auto start = text.find_last_of('\n');
  return start == std::string::npos ? text : text.substr(start + 1);
}

Error ChildProcess::died() {
  // The exit status says more than the closed pipe; the process is usually gone already.
  std::string how = "closed its pipe";
  for (int i = 0; pid_ > 0 && i < 50; ++i) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) {
      how = info.si_code == CLD_EXITED ? fmt::format("ended with status {}", info.si_status)
                                       : fmt::format("was killed by signal {} ({})", info.si_status,
                                                     strsignal(info.si_status));
      break;
    }
    ::usleep(4000);
  }
  if (output_ >= 0) drain_tail();
  const auto line = last_line();
  return Error(ErrorCode::kWorkerDied, fmt::format("the {} {}{}{}", name_, how, line.empty() ? "" : ": ", line));
}

Status ChildProcess::send(const std::string& payload, Deadline deadline) {
  KO_CHECK(payload.size() <= kMaxFrame, "frame too large");
  if (to_child_ < 0) return died();
  const auto size = static_cast<uint32_t>(payload.size());
  std::string frame(4, '\0');
  for (int i = 0; i < 4; ++i) frame[static_cast<size_t>(i)] = static_cast<char>(size >> (8 * i));
  frame += payload;
  size_t sent = 0;
  while (sent < frame.size()) {
    switch (wait_for(to_child_, POLLOUT, deadline)) {
      case Wait::kTimeout:
        return Error(ErrorCode::kTimeout, fmt::format("the {} does not read its requests", name_));
      case Wait::kInterrupted:
        return Error(ErrorCode::kInterrupted, "interrupted");
      case Wait::kReady:
        break;
    }
    const ssize_t put = ::write(to_child_, frame.data() + sent, frame.size() - sent);
    if (put > 0) sent += static_cast<size_t>(put);
    else if (put < 0 && errno != EINTR && errno != EAGAIN) return died();
  }
  return ok_status();
}

Status ChildProcess::read_exactly(char* into, size_t bytes, Deadline deadline) {
  size_t have = 0;
  while (have < bytes) {
    switch (wait_for(from_child_, POLLIN, deadline)) {
      case Wait::kTimeout:
        return Error(ErrorCode::kTimeout, fmt::format("the {} did not answer in time", name_));
      case Wait::kInterrupted:
        return Error(ErrorCode::kInterrupted, "interrupted");
      case Wait::kReady:
        break;
    }
    const ssize_t got = ::read(from_child_, into + have, bytes - have);
    if (got > 0) have += static_cast<size_t>(got);
    else if (got == 0 || (errno != EINTR && errno != EAGAIN)) return died();
  }
  return ok_status();
}

Result<std::string> ChildProcess::receive(Deadline deadline) {
  if (from_child_ < 0) return died();
  unsigned char header[4];
  KO_RETURN_IF_ERROR(read_exactly(reinterpret_cast<char*>(header), 4, deadline));
  const uint32_t size = header[0] | header[1] << 8 | header[2] << 16 | static_cast<uint32_t>(header[3]) << 24;
  if (size > kMaxFrame)
    return Error(ErrorCode::kWorkerDied, fmt::format("the {} sent a frame of {} bytes", name_, size));
  std::string payload(size, '\0');
  KO_RETURN_IF_ERROR(read_exactly(payload.data(), size, deadline));
  return payload;
}

void ChildProcess::finish(std::chrono::milliseconds grace) {
  close_fd(to_child_);
  const auto end = Monotonic::now() + grace;
  while (pid_ > 0 && Monotonic::now() < end) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid) break;
    if (output_ >= 0) drain_tail();
    ::usleep(5000);
  }
  kill();
}

void ChildProcess::kill() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    int status;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    // Grandchildren that joined the group after the first signal.
    ::kill(-pid_, SIGKILL);
    pid_ = -1;
  }
  if (output_ >= 0) drain_tail();
  for (int* fd : {&to_child_, &from_child_, &output_}) close_fd(*fd);
}

}  // namespace kernelopt
