// Starts Nsight Compute over `python -m kernelopt.worker.profile` and brings back what it printed. Reads nothing of it
// (analyst/kernel_metrics.h does), decides nothing.
#pragma once

#include "kernelopt/worker/child_process.h"

namespace kernelopt {

struct NcuStart {
  std::string ncu = "ncu";                         // a path, or looked up in PATH
  std::vector<std::string> sections, metrics;      // what to count
  std::vector<std::string> program;                // the command that launches the kernels
  std::map<std::string, std::string> environment;  // added to ours
  std::string log;                                 // a file for the report; replaced
};

// The report, followed by the last lines of the program's own output. kEnvironment without ncu, kTimeout when the deadline
// passes (the program holds the device's lock, and waiting for it counts), kInterrupted after a signal. Whatever happens,
// ncu and the program have ended when this returns. That the report holds what was asked for is the reader's to see.
Result<std::string> run_ncu(const NcuStart& start, Deadline deadline);

}  // namespace kernelopt
