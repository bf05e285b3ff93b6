#include "kernelopt/search/profiler.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include <fmt/format.h>

#include "kernelopt/worker/ncu.h"

namespace kernelopt {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr double kShareOfMinutes = 0.05, kShareOfRest = 0.1;
constexpr double kLeastSeconds = 10;     // torch is imported and the kernels are warmed up before anything is counted
constexpr double kWithoutLimit = 60;     // auto, in a run without --minutes
constexpr double kAskedFor = 300;        // --profiler ncu
constexpr size_t kMostGroups = 8;        // of the most promising
constexpr int64_t kMostBytes = int64_t{8} << 30;  // of inputs and outputs that lie on the device side by side

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number behind "name:" in a line of its own; nothing without it.
std::optional<uint64_t> field(const std::string& text, const std::string& name, int base) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(name + ":", 0) == 0) return std::strtoull(line.c_str() + name.size() + 1, nullptr, base);
  return std::nullopt;
}

// The last line that says something, for people.
std::string last_line(const std::string& text) {
  constexpr size_t kMost = 200;
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  return last.substr(0, kMost);
}

// What the program under ncu complained of, in parentheses; empty where it did not.
std::string complaint(const std::string& text) {
  const std::string prefix = "kernelopt.worker.profile: ";
  std::istringstream lines(text);
  std::string said;
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(prefix, 0) == 0) said = " (" + line.substr(prefix.size()) + ")";
  return said;
}

// What the report says of each job. Jobs that it does not reach stay without.
Status read_counts(const std::string& text, std::vector<GroupProfile*>& jobs, std::string& reason) {
  const auto launches = parse_ncu(text);
  if (!launches.ok()) {
    if (launches.error().code() != ErrorCode::kInternal)
      return Error(launches.error().code(), launches.error().message() + complaint(text));
    const auto said = last_line(text);
    return Error(ErrorCode::kInternal, "ncu gave no report" + (said.empty() ? said : ": " + said));
  }
  const auto parts = between_marks(*launches);
  // The last part of a report that was cut off may lack launches.
  const size_t whole = parts.size() == jobs.size() ? parts.size() : parts.size() - std::min<size_t>(parts.size(), 1);
  size_t counted = 0;
  for (size_t i = 0; i < std::min(whole, jobs.size()); ++i) {
    if (parts[i].empty()) continue;
    jobs[i]->metrics = combined(parts[i]);
    ++counted;
  }
  if (counted < jobs.size()) reason = fmt::format("ncu counted {} of {} groups", counted, jobs.size()) + complaint(text);
  return ok_status();
}

// Starts ncu over the jobs. An error is the reason for the substitute, except kInterrupted.
Status count(const std::vector<ProfileJob>& jobs, const ProfilerSettings& settings, double seconds, uint64_t seed,
             Judge& judge, Profile& profile) {
  if (jobs.empty()) return Error(ErrorCode::kEnvironment, "there is nothing to count");
  if (seconds <= 0)
    return Error(ErrorCode::kEnvironment, fmt::format("ncu needs {:.0f} s at least, more than {:.0f} % of the minutes", kLeastSeconds,
                                                      kShareOfMinutes * 100));
  KO_TRY(const auto ncu, find_ncu());
  if (settings.choice == ProfilerChoice::kAuto)
    if (const auto refused = counters_refused(text_of("/proc/driver/nvidia/params"), text_of("/proc/self/status")); !refused.empty())
      return Error(ErrorCode::kEnvironment, refused);

  const auto deadline = Monotonic::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  json groups = json::array(), drawn = json::array();
  std::vector<GroupProfile*> places;
  int64_t bytes = 0;
  Status failed = ok_status();
  const int restarts = judge.restarts();
  for (size_t i = 0; i < jobs.size() && groups.size() < kMostGroups && Monotonic::now() < deadline; ++i) {
    if (bytes + jobs[i].bytes > kMostBytes) continue;
    auto inputs = judge.group_inputs(jobs[i].group, seed, "ordinary");
    if (!inputs.ok()) {
      if (inputs.error().code() == ErrorCode::kInterrupted) failed = inputs.error();
      if (!failed.ok()) break;
      continue;
    }
    bytes += jobs[i].bytes;
    groups.push_back({{"program", jobs[i].group.program},
                      {"group", jobs[i].group.steps},
                      {"names", jobs[i].group.names},
                      {"candidates", json::array({jobs[i].candidate})},
                      {"inputs", *inputs}});
    drawn.push_back(*inputs);
    places.push_back(&profile.groups[i]);
  }
  std::string report;
  if (failed.ok() && groups.empty()) failed = Error(ErrorCode::kEnvironment, "no group's inputs could be made for ncu");
  if (failed.ok()) {
    NcuStart start;
    start.ncu = ncu;
    start.sections = ncu_sections();
    start.metrics = ncu_metrics();
    start.program = settings.program;
    const auto request = (fs::path(settings.folder) / "profile.json").string();
    start.program.push_back(request);
    start.environment = settings.environment;
    start.log = (fs::path(settings.folder) / "profile.csv").string();
    std::ofstream(request) << json{{"groups", groups}}.dump();
    auto ran = run_ncu(start, deadline);
    std::error_code ignored;
    fs::remove(request, ignored);
    if (ran.ok()) report = std::move(ran).value();
    else if (ran.error().code() == ErrorCode::kTimeout)
      failed = Error(ErrorCode::kTimeout, fmt::format("ncu did not finish in {:.0f} s", seconds));
    else failed = std::move(ran).error();
  }
  // Whatever happened: nobody else knows of these files. A judge that was replaced has taken its own along.
  for (const auto& inputs : drawn) {
    if (judge.restarts() != restarts) break;
    auto dropped = judge.drop_files(inputs);
    if (!dropped.ok() && dropped.error().code() == ErrorCode::kInterrupted) failed = std::move(dropped);
  }
  KO_RETURN_IF_ERROR(std::move(failed));
  return read_counts(report, places, profile.reason);
}

// What the compiler says of each kernel that it made. Silence is no failure: the time over the floor is there.
Status add_resources(const std::vector<ProfileJob>& jobs, Worker& worker, Profile& profile) {
  std::vector<json> candidates;
  std::vector<size_t> places;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (profile.groups[i].metrics) continue;
    candidates.push_back(jobs[i].candidate);
    places.push_back(i);
  }
  if (candidates.empty()) return ok_status();
  const auto compiled = worker.compile(candidates);
  if (!compiled.ok()) return compiled.error().code() == ErrorCode::kInterrupted ? Status(compiled.error()) : ok_status();
  for (size_t i = 0; i < places.size() && i < compiled->size(); ++i)
    if (const auto& entry = (*compiled)[i].entry; entry.is_object() && entry.contains("kernels"))
      profile.groups[places[i]].resources = entry["kernels"];
  return ok_status();
}

}  // namespace

const char* profiler_choice_name(ProfilerChoice choice) {
  switch (choice) {
    case ProfilerChoice::kAuto: return "auto";
    case ProfilerChoice::kNcu: return "ncu";
    case ProfilerChoice::kOff: return "off";
  }
  check_failed(__FILE__, __LINE__, "ProfilerChoice", "value outside the enum");
}

std::optional<ProfilerChoice> parse_profiler_choice(const std::string& name) {
  for (const auto choice : {ProfilerChoice::kAuto, ProfilerChoice::kNcu, ProfilerChoice::kOff})
    if (name == profiler_choice_name(choice)) return choice;
  return std::nullopt;
}

double ncu_seconds(ProfilerChoice choice, std::optional<double> minutes, std::optional<double> left) {
  if (choice == ProfilerChoice::kOff) return 0;
  if (choice == ProfilerChoice::kNcu) return left ? std::clamp(*left / 2, 1.0, kAskedFor) : kAskedFor;
  double seconds = kWithoutLimit;
  if (minutes) seconds = std::min(seconds, kShareOfMinutes * 60 * *minutes);
  if (left) seconds = std::min(seconds, kShareOfRest * *left);
  return seconds < kLeastSeconds ? 0 : seconds;
}

Result<std::string> find_ncu() {
  const char* path = std::getenv("PATH");
  std::istringstream listed(path ? path : "");
  std::vector<fs::path> folders;
  for (std::string folder; std::getline(listed, folder, ':');) folders.emplace_back(folder.empty() ? "." : folder);
  folders.emplace_back("/usr/local/cuda/bin");
  // One folder a version.
  std::vector<fs::path> versions;
  std::error_code ignored;
  for (fs::directory_iterator it("/opt/nvidia/nsight-compute", ignored), end; !ignored && it != end; it.increment(ignored))
    versions.push_back(it->path());
  std::sort(versions.rbegin(), versions.rend());
  folders.insert(folders.end(), versions.begin(), versions.end());
  for (const auto& folder : folders)
    if (const auto file = folder / "ncu"; fs::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0) return file.string();
  return Error(ErrorCode::kEnvironment, "there is no ncu in PATH, /usr/local/cuda/bin or /opt/nvidia/nsight-compute");
}

std::string counters_refused(const std::string& driver_parameters, const std::string& process_status) {
  constexpr uint64_t kSysAdmin = 1ull << 21, kPerfmon = 1ull << 38;
  const auto admin_only = field(driver_parameters, "RmProfilingAdminOnly", 10);
  const auto capabilities = field(process_status, "CapEff", 16);
  if (!admin_only || *admin_only == 0 || !capabilities || (*capabilities & (kSysAdmin | kPerfmon)) != 0) return "";
  return "the driver lets administrators alone read performance counters (RmProfilingAdminOnly)";
}

Result<Profile> profile_groups(const std::vector<ProfileJob>& jobs, const ProfilerSettings& settings, bool cuda,
                               double seconds, uint64_t seed, Worker& worker, Judge& judge) {
  Profile profile;
  profile.groups.resize(jobs.size());
  if (settings.choice == ProfilerChoice::kOff) {
    profile.reason = "--profiler off";
    return profile;
  }
  if (!cuda) {
    profile.reason = "ncu counts on NVIDIA GPUs alone";
    return profile;
  }
  const auto begin = Monotonic::now();
  if (auto status = count(jobs, settings, seconds, seed, judge, profile); !status.ok()) {
    if (status.error().code() == ErrorCode::kInterrupted) return std::move(status).error();
    profile.reason = status.error().to_string();
  }
  KO_RETURN_IF_ERROR(add_resources(jobs, worker, profile));
  profile.counted = std::any_of(profile.groups.begin(), profile.groups.end(), [](const auto& group) { return group.metrics.has_value(); });
  profile.seconds = std::chrono::duration<double>(Monotonic::now() - begin).count();
  return profile;
}

json profile_to_json(const Profile& profile) {
  json groups = json::array();
  for (const auto& group : profile.groups)
    groups.push_back({{"metrics", group.metrics ? metrics_to_json(*group.metrics) : json(nullptr)}, {"resources", group.resources}});
  return {{"counted", profile.counted}, {"reason", profile.reason}, {"seconds", profile.seconds}, {"groups", groups}};
}

Profile profile_of_json(const json& document) {
  Profile profile;
  profile.counted = document.at("counted");
  profile.reason = document.at("reason");
  profile.seconds = document.at("seconds");
  for (const auto& item : document.at("groups")) {
    GroupProfile group;
    if (!item.at("metrics").is_null()) group.metrics = metrics_of_json(item["metrics"]);
    group.resources = item.at("resources");
    profile.groups.push_back(std::move(group));
  }
  return profile;
}

}  // namespace kernelopt
