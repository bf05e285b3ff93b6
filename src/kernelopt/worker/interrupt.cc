#include "kernelopt/worker/interrupt.h"

#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>

namespace kernelopt {
namespace {

std::atomic<int> signals{0};
int pipe_read = -1;
int pipe_write = -1;

void on_signal(int) {
  if (signals.fetch_add(1) > 0) _exit(130);
  const char byte = 1;
  if (pipe_write >= 0) [[maybe_unused]] auto written = ::write(pipe_write, &byte, 1);
}

}  // namespace

void install_interrupt_handlers() {
  if (pipe_read >= 0) return;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
    pipe_read = ends[0];
    pipe_write = ends[1];
  }
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return signals.load() > 0; }
int interrupt_fd() { return pipe_read; }

void raise_interrupt_for_test() { on_signal(SIGINT); }

void clear_interrupt_for_test() {
  signals = 0;
  char byte;
  while (pipe_read >= 0 && ::read(pipe_read, &byte, 1) > 0) {
  }
}

}  // namespace kernelopt
