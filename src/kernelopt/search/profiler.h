// The profiler of DESIGN.md section 7: what the device counted while the compiler's kernels of the groups ran. One start of
// Nsight Compute a model, before its search, since a start costs more than the counting. Where ncu is missing, not permitted, late
// or makes no sense, the substitute: the time over the floor, which the groups have anyway, and the compiler's resource report.
#pragma once

#include <map>

#include "kernelopt/analyst/kernel_metrics.h"
#include "kernelopt/worker/worker.h"

namespace kernelopt {

enum class ProfilerChoice {
  kAuto,  // ncu, unless it costs more than its share of the minutes
  kNcu,   // ncu, with a longer deadline
  kOff,   // neither ncu nor a resource report
};
const char* profiler_choice_name(ProfilerChoice choice);
std::optional<ProfilerChoice> parse_profiler_choice(const std::string& name);

struct ProfilerSettings {
  ProfilerChoice choice = ProfilerChoice::kAuto;
  std::vector<std::string> program;                // what ncu starts; the request's path is added
  std::map<std::string, std::string> environment;  // of that program
  std::string folder;                              // for the request and the report
};

// The compiler's kernels of one group.
struct ProfileJob {
  GroupRef group;
  nlohmann::json candidate;
  int64_t bytes = 0;  // that it reads and writes
};

struct GroupProfile {
  std::optional<KernelMetrics> metrics;                      // of all its launches together; absent without ncu
  nlohmann::json resources = nlohmann::json::array();        // {name, warps, registers, stack_bytes, shared_bytes} a kernel
};

struct Profile {
  bool counted = false;  // ncu, for one group at least
  std::string reason;    // why not, or not for all; empty otherwise
  double seconds = 0;
  std::vector<GroupProfile> groups;  // as the jobs
};

// Seconds that ncu may take; 0: it is not worth a start, 5 % of the minutes being less than it needs. `left`: until the end.
double ncu_seconds(ProfilerChoice choice, std::optional<double> minutes, std::optional<double> left);

// The ncu in PATH, else in /usr/local/cuda/bin, else the newest in /opt/nvidia/nsight-compute. kEnvironment where there is none.
Result<std::string> find_ncu();

// Why counting is bound to be refused, from the driver's parameters and this process's status as /proc shows them; empty where
// it may work. A start costs seconds, this does not.
std::string counters_refused(const std::string& driver_parameters, const std::string& process_status);

// Never fails for what ncu, worker or judge do: that is a reason. The only error is kInterrupted. On a device that is no
// NVIDIA GPU (`cuda` false) nothing is started.
Result<Profile> profile_groups(const std::vector<ProfileJob>& jobs, const ProfilerSettings& settings, bool cuda,
                               double seconds, uint64_t seed, Worker& worker, Judge& judge);

// For the journal: a resumed run goes on with the numbers that it began with.
nlohmann::json profile_to_json(const Profile& profile);
Profile profile_of_json(const nlohmann::json& document);

}  // namespace kernelopt
