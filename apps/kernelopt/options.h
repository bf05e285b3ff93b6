// Options of the command line (docs/cli.md).
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernelopt/base/result.h"
#include "kernelopt/llm/client.h"
#include "kernelopt/gates/policy.h"
#include "kernelopt/search/profiler.h"
#include "kernelopt/search/records.h"
#include "kernelopt/worker/worker.h"

namespace kernelopt {

enum class Command { kInspect, kOptimize, kVerify, kResume, kReport, kDoctor, kBench, kMemory, kAsk, kTell };

// Options of `bench` alone; the others of a run are in Options.
struct BenchOptions {
  std::string dir;                          // empty with --table --out alone
  std::vector<std::string> levels, select;  // empty: all
  std::optional<int> jobs;                  // problems at once; default 1 on cpu, 3 on cuda
  bool table_only = false;
  bool leave_out_degenerate = false;
};

// Language models; without `planner` and `executor` there are none.
struct ModelOptions {
  std::optional<std::string> planner, executor, url;  // as make_provider takes them
  ModelLimits limits;
  double timeout_seconds = 300;
};

struct Options {
  Command command = Command::kDoctor;
  ModelSpec model;                     // inspect, optimize
  std::string folder;                  // the run folder; --out, or DIR
  bool folder_given = false;
  SearchSizes sizes;
  std::optional<double> minutes;       // per model; wins over sizes
  std::optional<std::string> memory;   // folder of what earlier runs learned; nothing: none is read or kept
  ModelOptions llm;
  ProfilerChoice profiler = ProfilerChoice::kOff;  // nothing of it has run on a card yet
  Precision precision = Precision::kAccurate;
  std::optional<std::string> python;   // --python
  bool json = false;
  std::string prompt_id;               // tell
  BenchOptions bench;
};

// What the arguments ask for. Text (help, version) when that is all they ask for. kBadInput with one line otherwise.
using ParsedArguments = std::variant<Options, std::string>;
Result<ParsedArguments> parse_arguments(int argc, const char* const* argv);

// DESIGN.md section 9 and docs/cli.md.
int exit_status(ErrorCode code);

}  // namespace kernelopt
