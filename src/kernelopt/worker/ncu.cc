#include "kernelopt/worker/ncu.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace kernelopt {

Result<std::string> run_ncu(const NcuStart& start, Deadline deadline) {
  std::error_code ignored;
  std::filesystem::remove(start.log, ignored);  // an old report must not pass for a new one
  ProcessSpec spec;
  spec.name = "profiler";
  spec.environment = start.environment;
  spec.environment["LC_ALL"] = "C";  // points and commas of numbers
  // Clocks are left alone; compilers and helpers that the program starts are not looked at; the program says where to count.
  spec.command = {start.ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--target-processes",
                  "application-only", "--profile-from-start", "off", "--log-file", start.log};
  for (const auto& section : start.sections) spec.command.insert(spec.command.end(), {"--section", section});
  std::string metrics;
  for (const auto& metric : start.metrics) metrics += (metrics.empty() ? "" : ",") + metric;
  if (!metrics.empty()) spec.command.insert(spec.command.end(), {"--metrics", metrics});
  spec.command.insert(spec.command.end(), start.program.begin(), start.program.end());

  KO_TRY(auto child, ChildProcess::spawn(spec));
  // It sends no frames: the end of its pipe is the end of its work.
  const auto end = child->receive(deadline);
  if (end.ok()) return Error(ErrorCode::kInternal, "the profiler sent a frame");
  if (end.error().code() != ErrorCode::kWorkerDied) return end.error();
  child->finish(std::chrono::milliseconds(5000));
  std::ostringstream text;
  if (std::ifstream log(start.log); log) text << log.rdbuf();
  text << '\n' << child->tail();
  return text.str();
}

}  // namespace kernelopt
