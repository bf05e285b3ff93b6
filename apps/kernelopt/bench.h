// `kernelopt bench`: a folder of problems in KernelBench's layout, each optimized in a process of its own (docs/cli.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options.h"

namespace kernelopt {

struct BenchFile {
  std::string level, name;  // name: file name without .py
  std::string path;         // absolute
};

// Problem files of `dir`, level by level, numbers in names in their numeric order. Files that hold neither a class Model nor
// get_inputs are no problems. kBadInput: no such folder, no problem in it, an unknown level, a selection without a match.
Result<std::vector<BenchFile>> find_problems(const std::string& dir, const std::vector<std::string>& levels,
                                             const std::vector<std::string>& select);

// What tests replace.
struct BenchHooks {
  std::string executable = "/proc/self/exe";
  std::optional<double> limit_seconds;  // of one problem, instead of minutes * 2 + 10 min
  double grace_seconds = 30;            // between SIGINT and SIGKILL
};

// Exit status 0 with every problem run to its end (failures are results), 130 interrupted, 2 as errors.
Result<int> run_bench(const Options& options, const BenchHooks& hooks);

}  // namespace kernelopt
