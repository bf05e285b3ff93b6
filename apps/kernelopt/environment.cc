#include "environment.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>

namespace kernelopt {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPrefix = "kernelopt-exchange-";

std::optional<fs::path> upwards(const std::string& relative) {
  std::error_code ignored;
  for (fs::path folder = executable_folder(); !folder.empty(); folder = folder.parent_path()) {
    if (fs::exists(folder / relative, ignored)) return folder / relative;
    if (folder == folder.parent_path()) break;
  }
  return std::nullopt;
}

void remove_abandoned(const fs::path& root) {
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const auto name = it->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const int pid = std::atoi(name.c_str() + std::string(kPrefix).size());
    std::error_code ignored;
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) fs::remove_all(it->path(), ignored);
  }
}

}  // namespace

std::string executable_folder() {
  std::error_code error;
  const auto path = fs::read_symlink("/proc/self/exe", error);
  return error ? std::string() : path.parent_path().string();
}

std::string find_python(const std::optional<std::string>& option) {
  if (option) return *option;
  if (const char* given = std::getenv("KERNELOPT_PYTHON"); given && *given) return given;
  if (const auto found = upwards(".venv/bin/python")) return found->string();
  return "python3";
}

std::optional<std::string> find_package() {
  for (const char* place : {"python/kernelopt/protocol.py", "kernelopt/protocol.py"})
    if (const auto found = upwards(place)) return found->parent_path().parent_path().string();
  return std::nullopt;
}

Result<std::unique_ptr<ExchangeFolder>> ExchangeFolder::create() {
  std::error_code error;
  const auto fallback = fs::temp_directory_path(error);
  for (const fs::path& root : {fs::path("/dev/shm"), error ? fs::path("/tmp") : fallback}) {
    remove_abandoned(root);
    std::string pattern = (root / fmt::format("{}{}-XXXXXX", kPrefix, ::getpid())).string();
    if (::mkdtemp(pattern.data())) return std::unique_ptr<ExchangeFolder>(new ExchangeFolder(pattern));
  }
  return Error(ErrorCode::kEnvironment, "neither /dev/shm nor the temporary folder can be written");
}

ExchangeFolder::~ExchangeFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Result<Processes> start_processes(const ProcessOptions& options) {
  Processes processes;
  KO_TRY(processes.exchange, ExchangeFolder::create());
  std::map<std::string, std::string> environment = {{"KERNELOPT_EXCHANGE", processes.exchange->path()},
                                                    {"KERNELOPT_DEVICE", options.device},
                                                    {"PYTHONUNBUFFERED", "1"}};
  if (const auto package = find_package()) {
    const char* present = std::getenv("PYTHONPATH");
    environment["PYTHONPATH"] = present && *present ? *package + ":" + present : *package;
  }
  const auto python = find_python(options.python);
  processes.python = python;
  processes.environment = environment;
  const auto make = [&](const std::string& role) {
    auto variables = environment;
    // Huge pages for what the judge compares; the worker's memory stays what a user's process has.
    // It is never timed and works beside the worker: its idle threads leave the cores instead of spinning on them.
    if (role == "judge") {
      variables["THP_MEM_ALLOC_ENABLE"] = "1";
      variables["OMP_WAIT_POLICY"] = "passive";
    }
    return std::make_unique<ProcessRpc>(
        ProcessSpec{{python, "-m", "kernelopt." + role}, variables, role}, options.on_progress);
  };
  auto worker = make("worker");
  KO_RETURN_IF_ERROR(worker->start());
  if (options.judge) {
    auto judge = make("judge");
    KO_RETURN_IF_ERROR(judge->start());
    processes.judge = std::make_unique<RemoteJudge>(std::move(judge));
  }
  processes.worker = std::make_unique<RemoteWorker>(std::move(worker));
  return processes;
}

}  // namespace kernelopt
