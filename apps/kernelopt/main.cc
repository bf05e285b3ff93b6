#include <cstdio>
#include <exception>

#include <fmt/format.h>
#include <spdlog/cfg/env.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "commands.h"
#include "kernelopt/worker/interrupt.h"

namespace {

using namespace kernelopt;

Result<int> dispatch(const Options& options) {
  switch (options.command) {
    case Command::kInspect: return run_inspect(options);
    case Command::kOptimize: return run_optimize(options);
    case Command::kVerify: return run_verify(options);
    case Command::kResume: return run_resume(options);
    case Command::kReport: return run_report(options);
    case Command::kDoctor: return run_doctor(options);
    case Command::kAsk: return run_ask(options);
    case Command::kTell: return run_tell(options);
    case Command::kMemory: return run_memory(options);
    case Command::kBench: return run_bench(options);
  }
  return Error(ErrorCode::kInternal, "unknown command");
}

int run(int argc, char** argv) {
  auto parsed = parse_arguments(argc, argv);
  if (!parsed.ok()) {
    fmt::print(stderr, "kernelopt: {}\n", parsed.error().to_string());
    return exit_status(parsed.error().code());
  }
  if (const auto* text = std::get_if<std::string>(&*parsed)) {
    fmt::print("{}", *text);
    return 0;
  }
  install_interrupt_handlers();
  auto status = dispatch(std::get<Options>(*parsed));
  if (status.ok()) return *status;
  const auto& error = status.error();
  fmt::print(stderr, "kernelopt: {}\n", error.to_string());
  return exit_status(error.code());
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("kernelopt"));
  spdlog::set_pattern("kernelopt %l: %v");
  spdlog::set_level(spdlog::level::warn);
  spdlog::cfg::load_env_levels();  // SPDLOG_LEVEL=debug shows every request with its seconds
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernelopt: our own fault: {}\n", error.what());
    return 4;
  }
}
