// Interrupt: Ctrl-C (SIGINT) and SIGTERM as a flag and as a file descriptor that poll() can wait on (DESIGN.md section 9:
// Ctrl-C keeps the best so far). Process-wide, async-signal-safe.
#pragma once

namespace kernelopt {

// Installs handlers for SIGINT and SIGTERM and ignores SIGPIPE. Idempotent. A second signal ends the process at once;
// children end with it (PR_SET_PDEATHSIG).
void install_interrupt_handlers();

bool interrupted();

// Readable once interrupted; -1 before install_interrupt_handlers().
int interrupt_fd();

// For tests: as if a signal had come, and as if none had.
void raise_interrupt_for_test();
void clear_interrupt_for_test();

}  // namespace kernelopt
