// What Nsight Compute measured of kernels, as numbers with types, and the diagnosis that follows from them (DESIGN.md section
// 7). Pure: who starts ncu, and what happens where it may not count, is not decided here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/analyst/roofline.h"
#include "kernelopt/base/result.h"

namespace kernelopt {

// What keeps more warps from a multiprocessor: the smallest of the limits that the launch has.
enum class OccupancyLimit { kUnknown, kRegisters, kSharedMemory, kWarps, kBlocks, kBarriers };
const char* occupancy_limit_name(OccupancyLimit limit);

// One launch. A number that the report lacks, or shows as n/a, is absent. Shares are fractions, 1 the speed of light.
struct KernelMetrics {
  std::string kernel;
  std::optional<Seconds> duration;
  std::optional<double> compute_use, memory_use;       // of the busiest pipe, and of the busiest part of the memory system
  std::optional<double> dram_use, l2_use, l1_use;      // the parts of memory_use
  std::optional<double> achieved_occupancy, theoretical_occupancy;
  OccupancyLimit occupancy_limit = OccupancyLimit::kUnknown;
  std::optional<double> waves;                         // of blocks a multiprocessor; below 1 part of the device idles
  std::optional<int64_t> registers;                    // a thread
  std::optional<int64_t> shared_bytes;                 // a block, static and dynamic
  std::optional<int64_t> threads, blocks;              // of a block; of the launch
  std::optional<double> dram_bytes;                    // read and written: over the floor's bytes, what is moved twice
  std::optional<double> l2_hit_rate;                   // fraction
  std::optional<double> sectors_per_load;              // 32-byte sectors a request of a warp: 4 for float, 32 at worst
  std::optional<double> stalled_on_memory, stalled_on_barrier;  // warps that wait for that, for each instruction issued
};

// The section identifiers and further metrics that ncu is asked for: what KernelMetrics holds, nothing more.
std::vector<std::string> ncu_sections();
std::vector<std::string> ncu_metrics();

// Reads what `ncu --csv --page raw` prints: a header line, a line of units, one line a launch, among lines of the program and
// of ncu itself; the form with one line a metric (older versions with --metrics) as well. Launches in the order of the report.
// kEnvironment where ncu says why it counted nothing (counters not permitted, no kernel, no such metric), one line; kInternal
// where the text is no such report.
Result<std::vector<KernelMetrics>> parse_ncu(std::string_view text);

// The launches behind each mark, a kernel of that name that `python -m kernelopt.worker.profile` launches before each candidate;
// in the order of the candidates. What stands before the first mark is left out.
std::vector<std::vector<KernelMetrics>> between_marks(const std::vector<KernelMetrics>& launches, std::string_view mark = "kernelopt_mark");

// At 80 % of the speed of light a resource counts as saturated: both near-optimal, one of them memory-bound or compute-bound,
// neither underutilized. Counters cannot tell needed traffic from wasted traffic; `analyze` with the floor can.
Diagnosis diagnose(const KernelMetrics& metrics);

// Several launches as one: shares weighted by time, bytes and time added up, the rest that of the longest launch.
// `launches` must not be empty.
KernelMetrics combined(const std::vector<KernelMetrics>& launches);

// The group's diagnosis where both are known: near its floor there is nothing to gain, whatever the counters say; else the
// counters, which see how the time is spent, before the roofline, which only sees how much.
Diagnosis diagnose(const Roofline& roofline, const KernelMetrics& metrics);

// For journal and report: numbers by the names above, seconds as duration_seconds, what is absent left out.
nlohmann::json metrics_to_json(const KernelMetrics& metrics);
KernelMetrics metrics_of_json(const nlohmann::json& document);

// The shares in one line, for people and prompts.
std::string metrics_text(const KernelMetrics& metrics);

}  // namespace kernelopt
