#include "bench.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>

#include "bench_children.h"
#include "bench_table.h"
#include "commands.h"
#include "kernelopt/base/digest.h"
#include "kernelopt/worker/interrupt.h"
#include "report.h"

namespace kernelopt {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int kMostAttempts = 2;
constexpr double kLimitWithoutMinutes = 3600;

// "2_x" before "10_x".
bool natural_less(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t ie = i, je = j;
      while (ie < a.size() && digit(a[ie])) ++ie;
      while (je < b.size() && digit(b[je])) ++je;
      while (i + 1 < ie && a[i] == '0') ++i;
      while (j + 1 < je && b[j] == '0') ++j;
      const auto left = a.substr(i, ie - i), right = b.substr(j, je - j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
      i = ie;
      j = je;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j || (a.size() - i == b.size() - j && a < b);
}

bool is_problem(const fs::path& path) {
  const auto name = path.filename().string();
  std::error_code error;
  if (path.extension() != ".py" || name[0] == '_' || name[0] == '.' || !fs::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return text.find("class Model") != std::string::npos || text.find("get_inputs") != std::string::npos;
}

std::vector<BenchFile> files_of(const fs::path& folder, const std::string& level) {
  std::vector<BenchFile> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (is_problem(entry.path())) files.push_back({level, entry.path().stem().string(), entry.path().string()});
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return natural_less(a.name, b.name); });
  return files;
}

bool selected(const std::string& name, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return true;
  for (const auto& pattern : patterns) {
    if (pattern.find_first_of("*?[") == std::string::npos) {
      if ((name + ".py").find(pattern) != std::string::npos) return true;
    } else if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0 || ::fnmatch(pattern.c_str(), (name + ".py").c_str(), 0) == 0) {
      return true;
    }
  }
  return false;
}

// Nothing where there is no such file.
std::optional<std::string> file_digest(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return sha256_hex(std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

Status make_out(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Error(ErrorCode::kBadInput, fmt::format("cannot make {}: {}", folder, error.message()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return Error(ErrorCode::kBadInput, fmt::format("cannot write to {}", folder));
  return ok_status();
}

json settings_of(const Options& options, const std::string& dir) {
  return {{"format", "kernelopt.bench.settings"},
          {"version", 1},
          {"name", fs::path(dir).filename().string()},
          {"dir", dir},
          {"device", options.model.device},
          {"dtype", options.model.dtype ? json(*options.model.dtype) : json(nullptr)},
          {"precision", precision_name(options.precision)},
          {"seed", options.model.seed},
          {"rounds", options.sizes.rounds},
          {"plans", options.sizes.plans},
          {"chains", options.sizes.chains},
          {"beam", options.sizes.beam},
          {"minutes_per_problem", options.minutes ? json(*options.minutes) : json(nullptr)}};
}

// One benchmark at a time in a folder; the lock goes with the process.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {}
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  bool take() { return fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) == 0; }

 private:
  int fd_;
};

class Bench {
 public:
  Bench(const Options& options, const BenchHooks& hooks, fs::path out) : options_(options), hooks_(hooks), out_(std::move(out)) {}

  // Reads or starts the settings file; the problems ever chosen for this folder are kept in it.
  Status open(const std::string& dir, const std::vector<BenchFile>& files) {
    const auto path = (out_ / "settings.json").string();
    json wanted = settings_of(options_, dir);
    settings_ = wanted;
    problems_ = json::array();
    if (fs::exists(path)) {
      KO_RETURN_IF_ERROR(read_settings());
      for (const auto& [key, value] : wanted.items())
        if (settings_.value(key, json()) != value)
          return Error(ErrorCode::kBadInput, fmt::format("{} holds a benchmark with other settings: {} is {} there and {} here; "
                                                         "choose another --out", out_.string(), key,
                                                         settings_.value(key, json()).dump(), value.dump()));
    }
    for (const auto& file : files) {
      const json entry = {{"level", file.level}, {"name", file.name}};
      if (std::find(problems_.begin(), problems_.end(), entry) == problems_.end()) problems_.push_back(entry);
    }
    std::sort(problems_.begin(), problems_.end(), [](const json& a, const json& b) {
      const auto left = a.at("level").get<std::string>(), right = b.at("level").get<std::string>();
      if (left != right) return natural_less(left, right);
      return natural_less(a.at("name").get<std::string>(), b.at("name").get<std::string>());
    });
    json document = settings_;
    document["problems"] = problems_;
    auto status = write_text(path, document.dump(1) + "\n");
    if (!status.ok()) return Error(ErrorCode::kBadInput, status.error().to_string());
    return ok_status();
  }

  Status read_settings() {
    KO_TRY(json document, read_json((out_ / "settings.json").string()));
    if (!document.is_object() || document.value("format", json()) != "kernelopt.bench.settings" ||
        document.value("version", json()) != 1 || !document.value("problems", json()).is_array())
      return Error(ErrorCode::kBadInput, (out_ / "settings.json").string() + " is not the settings file of a benchmark");
    for (const auto& entry : document["problems"])
      if (!entry.is_object() || !entry.value("level", json()).is_string() || !entry.value("name", json()).is_string())
        return Error(ErrorCode::kBadInput, (out_ / "settings.json").string() + " is not the settings file of a benchmark");
    problems_ = document["problems"];
    document.erase("problems");
    settings_ = document;
    return ok_status();
  }

  Result<int> run(const std::vector<BenchFile>& files, int at_once) {
    std::vector<ChildJob> jobs;
    std::vector<size_t> file_of;
    std::vector<std::string> command_of;
    size_t finished = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      const auto folder = out_ / files[i].level / files[i].name;
      const auto known = problem(files[i].level, files[i].name);
      const auto digest = file_digest(files[i].path).value_or("");
      const auto made_of = problem_digest(folder);
      const bool changed = made_of && *made_of != digest;
      if (changed) {
        fmt::print(stderr, "{}/{} was changed since it was run; it is run again\n", files[i].level, files[i].name);
        KO_RETURN_IF_ERROR(drop_result(folder));
      }
      if (!changed && (!known.report.is_null() || attempts(folder) >= kMostAttempts)) {
        ++finished;
        continue;
      }
      KO_RETURN_IF_ERROR(make_out(folder.string()));
      KO_RETURN_IF_ERROR(write_problem(folder, digest));
      // A resumed run that failed is started anew: its journal may be what made it fail.
      const bool resume = fs::exists(folder / "journal.sqlite") && failure(folder).value("command", "") != "resume";
      command_of.push_back(resume ? "resume" : "optimize");
      jobs.push_back(job(files[i], folder, resume));
      file_of.push_back(i);
    }
    if (finished) fmt::print(stderr, "{} of {} problems are finished from before\n", finished, files.size());
    Status trouble = ok_status();
    run_children(jobs, at_once, hooks_.grace_seconds, [&](size_t number, const ChildEnd& end) {
      const auto& file = files[file_of[number]];
      const auto folder = out_ / file.level / file.name;
      if (end.how == ChildEnd::How::kInterrupted && problem(file.level, file.name).report.is_null()) return;
      if (auto status = record(folder, end, command_of[number]); !status.ok()) trouble = status;
      const json row = bench_row(problem(file.level, file.name));
      std::ofstream(out_ / "results.jsonl", std::ios::app) << row.dump() << "\n";
      fmt::print(stderr, "[{}/{}] {}/{}: {}, {:.0f} s\n", ++finished, files.size(), file.level, file.name, bench_row_text(row),
                 row.at("seconds").get<double>());
      std::fflush(stderr);
    });
    KO_RETURN_IF_ERROR(std::move(trouble));
    if (!interrupted()) return 0;
    fmt::print(stderr, "interrupted; {} of {} problems are finished and kept in {}; go on with the same command\n", finished,
               files.size(), out_.string());
    return exit_status(ErrorCode::kInterrupted);
  }

  Status table() const {
    std::vector<BenchProblem> list;
    for (const auto& entry : problems_) list.push_back(problem(entry.at("level"), entry.at("name")));
    const json document = bench_table(list, settings_, options_.bench.leave_out_degenerate);
    const auto text = bench_markdown(document);
    KO_RETURN_IF_ERROR(write_text((out_ / "bench.json").string(), document.dump(1) + "\n"));
    KO_RETURN_IF_ERROR(write_text((out_ / "bench.md").string(), text));
    fmt::print("{}\n", options_.json ? document.dump(1) : text);
    std::fflush(stdout);
    return ok_status();
  }

 private:
  // Of the problem file that the folder's result was made of; nothing where that is not known.
  static std::optional<std::string> problem_digest(const fs::path& folder) {
    if (fs::exists(folder / "problem.json")) {
      auto document = read_json((folder / "problem.json").string());
      if (document.ok() && document->is_object() && document->value("digest", json()).is_string())
        return document->at("digest").get<std::string>();
    }
    return file_digest(folder / "model.py");  // folders of earlier versions have the copy alone
  }
  static Status write_problem(const fs::path& folder, const std::string& digest) {
    return write_text((folder / "problem.json").string(), json{{"digest", digest}, {"kernelopt", KERNELOPT_VERSION}}.dump(1) + "\n");
  }
  // The journal, which holds what was measured, is kept under another name. problem.json goes on to say the old digest until
  // all of this is done.
  static Status drop_result(const fs::path& folder) {
    int number = 1;
    while (fs::exists(folder / fmt::format("journal-{}.sqlite", number))) ++number;
    std::error_code error;
    for (const char* suffix : {"-wal", "-shm", ""}) {
      const auto journal = folder / (std::string("journal.sqlite") + suffix);
      if (fs::exists(journal)) fs::rename(journal, folder / (fmt::format("journal-{}.sqlite", number) + suffix), error);
      if (error) return Error(ErrorCode::kBadInput, fmt::format("cannot move {}: {}", journal.string(), error.message()));
    }
    for (const char* name : {"report.json", "optimized.py", "failure.json", "model.py"}) {
      fs::remove(folder / name, error);  // no error where there is none
      if (error) return Error(ErrorCode::kBadInput, fmt::format("cannot remove {}: {}", (folder / name).string(), error.message()));
    }
    return ok_status();
  }

  static json failure(const fs::path& folder) {
    if (!fs::exists(folder / "failure.json")) return json::object();
    auto document = read_json((folder / "failure.json").string());
    return document.ok() && document->is_object() ? *document : json::object();
  }
  static int attempts(const fs::path& folder) {
    const auto count = failure(folder).value("attempts", json());
    return count.is_number_integer() ? count.get<int>() : 0;
  }

  BenchProblem problem(const std::string& level, const std::string& name) const {
    const auto folder = out_ / level / name;
    BenchProblem result{level, name, nullptr, "", 0};
    if (fs::exists(folder / "report.json")) {
      auto report = read_json((folder / "report.json").string());
      if (report.ok() && is_finished_report(*report)) {
        result.report = *report;
        return result;
      }
    }
    const auto why = failure(folder);
    if (why.contains("reason") && why["reason"].is_string()) {
      result.failure = why["reason"].get<std::string>();
      if (why.value("seconds", json()).is_number()) result.failure_seconds = why["seconds"].get<double>();
    }
    return result;
  }

  ChildJob job(const BenchFile& file, const fs::path& folder, bool resume) const {
    ChildJob job;
    auto& arguments = job.arguments;
    arguments.push_back(hooks_.executable);
    if (resume) {
      arguments.insert(arguments.end(), {"resume", folder.string()});
    } else {
      const auto& sizes = options_.sizes;
      arguments.insert(arguments.end(),
                       {"optimize", file.path, "--out", folder.string(), "--device", options_.model.device, "--seed",
                        fmt::format("{}", options_.model.seed), "--precision", precision_name(options_.precision), "--rounds",
                        fmt::format("{}", sizes.rounds), "--plans", fmt::format("{}", sizes.plans), "--chains",
                        fmt::format("{}", sizes.chains), "--beam", fmt::format("{}", sizes.beam)});
      if (options_.memory) arguments.insert(arguments.end(), {"--memory", *options_.memory});
      else arguments.push_back("--no-memory");
      if (options_.model.dtype) arguments.insert(arguments.end(), {"--dtype", *options_.model.dtype});
      if (options_.minutes) arguments.insert(arguments.end(), {"--minutes", fmt::format("{}", *options_.minutes)});
    }
    if (options_.python) arguments.insert(arguments.end(), {"--python", *options_.python});
    job.log = (folder / "run.log").string();
    job.limit_seconds = hooks_.limit_seconds ? *hooks_.limit_seconds
                        : options_.minutes   ? *options_.minutes * 120 + 600
                                             : kLimitWithoutMinutes;
    return job;
  }

  // Keeps a failure in the run folder; a run that came to its outcome clears it.
  Status record(const fs::path& folder, const ChildEnd& end, const std::string& command) const {
    // The file may have changed between the listing and the start of the run.
    if (const auto used = file_digest(folder / "model.py")) KO_RETURN_IF_ERROR(write_problem(folder, *used));
    auto report = read_json((folder / "report.json").string());
    std::error_code error;
    if (report.ok() && is_finished_report(*report)) {
      fs::remove(folder / "failure.json", error);
      return ok_status();
    }
    std::string reason = describe(end);
    if (end.how == ChildEnd::How::kExited) {
      std::ifstream log(folder / "run.log");
      std::string said;
      for (std::string text; std::getline(log, text);)
        if (text.starts_with("kernelopt: ")) said = text.substr(11, 300);
      reason += said.empty() ? " without a finished report" : ": " + said;
    }
    const json why = {{"attempts", attempts(folder) + 1}, {"command", command}, {"reason", reason}, {"seconds", end.seconds}};
    return write_text((folder / "failure.json").string(),
                      why.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  }

  const Options& options_;
  const BenchHooks& hooks_;
  fs::path out_;
  json settings_, problems_;
};

}  // namespace

Result<std::vector<BenchFile>> find_problems(const std::string& dir, const std::vector<std::string>& levels,
                                             const std::vector<std::string>& select) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) return Error(ErrorCode::kBadInput, "no such folder: " + dir);
  const auto root = fs::canonical(dir, error);
  if (error) return Error(ErrorCode::kBadInput, fmt::format("cannot read {}: {}", dir, error.message()));
  std::vector<std::pair<std::string, std::vector<BenchFile>>> found;
  if (auto direct = files_of(root, root.filename().string()); !direct.empty()) {
    found.emplace_back(root.filename().string(), std::move(direct));
  } else {
    for (const auto& entry : fs::directory_iterator(root, error)) {
      const auto name = entry.path().filename().string();
      if (name[0] == '.' || !entry.is_directory(error)) continue;
      if (auto files = files_of(entry.path(), name); !files.empty()) found.emplace_back(name, std::move(files));
    }
  }
  if (found.empty()) return Error(ErrorCode::kBadInput, "no problem (a .py file with Model and get_inputs) in " + dir);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return natural_less(a.first, b.first); });
  std::set<std::string> wanted;
  for (const auto& level : levels) {
    const auto match = std::find_if(found.begin(), found.end(), [&](const auto& entry) {
      return entry.first == level || entry.first == "level" + level;
    });
    if (match == found.end()) return Error(ErrorCode::kBadInput, fmt::format("no level {} in {}", level, dir));
    wanted.insert(match->first);
  }
  std::vector<BenchFile> result;
  for (const auto& [level, files] : found)
    for (const auto& file : files)
      if ((wanted.empty() || wanted.count(level)) && selected(file.name, select)) result.push_back(file);
  if (result.empty()) return Error(ErrorCode::kBadInput, "--select matches no problem in " + dir);
  return result;
}

Result<int> run_bench(const Options& options, const BenchHooks& hooks) {
  const auto& bench = options.bench;
  std::string out = options.folder;
  std::error_code error;
  if (!options.folder_given) {
    if (bench.dir.empty()) return Error(ErrorCode::kBadInput, "bench needs a folder of problems, or --table with --out");
    out = "runs/bench-" + fs::weakly_canonical(bench.dir, error).filename().string();
  }
  out = fs::absolute(out, error).lexically_normal().string();
  Bench work(options, hooks, out);
  if (bench.table_only) {
    if (!fs::exists(fs::path(out) / "settings.json"))
      return Error(ErrorCode::kBadInput, "no benchmark in " + out);
    KO_RETURN_IF_ERROR(work.read_settings());
    KO_RETURN_IF_ERROR(work.table());
    return 0;
  }
  if (bench.dir.empty()) return Error(ErrorCode::kBadInput, "bench needs a folder of problems, or --table with --out");
  KO_TRY(auto files, find_problems(bench.dir, bench.levels, bench.select));
  KO_RETURN_IF_ERROR(make_out(out));
  FolderLock lock((fs::path(out) / "bench.lock").string());
  if (!lock.take()) return Error(ErrorCode::kBadInput, "another benchmark runs in " + out);
  KO_RETURN_IF_ERROR(work.open(fs::canonical(bench.dir, error).string(), files));
  const int at_once = bench.jobs ? *bench.jobs : options.model.device == "cuda" ? 2 : 1;
  // Each problem has two processes, and each of these as many compilers as there are cores.
  if (at_once > 1)
    ::setenv("TORCHINDUCTOR_COMPILE_THREADS",
             std::to_string(std::max(1u, std::thread::hardware_concurrency() / (2u * static_cast<unsigned>(at_once)))).c_str(),
             0);
  KO_TRY(const int status, work.run(files, at_once));
  if (status != 0) return status;
  KO_RETURN_IF_ERROR(work.table());
  return 0;
}

Result<int> run_bench(const Options& options) { return run_bench(options, BenchHooks{}); }

}  // namespace kernelopt
