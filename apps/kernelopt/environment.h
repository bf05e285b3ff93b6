// Where things are on this machine: the Python interpreter, our Python package, the exchange folder; and the two processes
// made from them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "kernelopt/worker/remote.h"

namespace kernelopt {

// The folder of this executable; empty when it cannot be read.
std::string executable_folder();

// --python, else $KERNELOPT_PYTHON, else .venv/bin/python in the executable's folder or one above it, else python3.
std::string find_python(const std::optional<std::string>& option);
// The folder that holds our `kernelopt` package, searched upwards from the executable; nothing when it must be installed.
std::optional<std::string> find_package();

// A new folder in /dev/shm or the temporary folder, removed with the object. Folders that killed engines left are removed
// first.
class ExchangeFolder {
 public:
  static Result<std::unique_ptr<ExchangeFolder>> create();
  ~ExchangeFolder();
  const std::string& path() const { return path_; }

 private:
  explicit ExchangeFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

struct Processes {
  std::unique_ptr<ExchangeFolder> exchange;
  std::string python;
  std::map<std::string, std::string> environment;  // of each process: package, device, exchange folder
  std::unique_ptr<Worker> worker;
  std::unique_ptr<Judge> judge;
};

struct ProcessOptions {
  std::optional<std::string> python;
  bool judge = true;
  std::function<void(const Progress&)> on_progress;
  std::string device = "cpu";  // which the processes serve: cpu or cuda
};

// Starts both (their imports overlap) and waits for neither; the first call on each says whether it came up.
Result<Processes> start_processes(const ProcessOptions& options);

}  // namespace kernelopt
