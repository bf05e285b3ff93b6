#include "kernelopt/analyst/kernel_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "kernelopt/base/check.h"

namespace kernelopt {
namespace {

constexpr const char* kDuration = "gpu__time_duration.sum";
constexpr const char* kCompute = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr const char* kMemory = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed";
constexpr const char* kDramUse = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
constexpr const char* kL2Use = "lts__throughput.avg.pct_of_peak_sustained_elapsed";
constexpr const char* kL1Use = "l1tex__throughput.avg.pct_of_peak_sustained_active";
constexpr const char* kDramRead = "dram__bytes_read.sum";
constexpr const char* kDramWritten = "dram__bytes_write.sum";
constexpr const char* kL2Hits = "lts__t_sector_hit_rate.pct";
constexpr const char* kSectors = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio";
constexpr const char* kWaitMemory = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio";
constexpr const char* kWaitBarrier = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio";

constexpr std::pair<const char*, std::optional<double> KernelMetrics::*> kNumbers[] = {
    {"compute_use", &KernelMetrics::compute_use},
    {"memory_use", &KernelMetrics::memory_use},
    {"dram_use", &KernelMetrics::dram_use},
    {"l2_use", &KernelMetrics::l2_use},
    {"l1_use", &KernelMetrics::l1_use},
    {"achieved_occupancy", &KernelMetrics::achieved_occupancy},
    {"theoretical_occupancy", &KernelMetrics::theoretical_occupancy},
    {"waves", &KernelMetrics::waves},
    {"dram_bytes", &KernelMetrics::dram_bytes},
    {"l2_hit_rate", &KernelMetrics::l2_hit_rate},
    {"sectors_per_load", &KernelMetrics::sectors_per_load},
    {"stalled_on_memory", &KernelMetrics::stalled_on_memory},
    {"stalled_on_barrier", &KernelMetrics::stalled_on_barrier}};
constexpr std::pair<const char*, std::optional<int64_t> KernelMetrics::*> kCounts[] = {
    {"registers", &KernelMetrics::registers},
    {"shared_bytes", &KernelMetrics::shared_bytes},
    {"threads", &KernelMetrics::threads},
    {"blocks", &KernelMetrics::blocks}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// The cells of one line; a quoted cell may hold commas and doubled quotes.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') cells.back() += line[++i];
    else if (c == '"') quoted = !quoted;
    else if (c == ',' && !quoted) cells.emplace_back();
    else cells.back() += c;
  }
  return cells;
}

// "1,234.5" -> 1234.5. Nothing for n/a, nan and whatever is not a number.
std::optional<double> number_of(std::string_view cell) {
  std::string digits;
  for (char c : trimmed(cell))
    if (c != ',') digits += c;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// What a unit is worth in seconds, bytes or as a fraction; 1 for what has none (and for "register/thread", "block", …).
double unit_scale(std::string_view unit) {
  unit = trimmed(unit).substr(0, trimmed(unit).find('/'));
  static const std::map<std::string, double, std::less<>> scales = {
      {"s", 1},        {"second", 1},      {"ms", 1e-3},    {"msecond", 1e-3}, {"us", 1e-6},   {"usecond", 1e-6},
      {"ns", 1e-9},    {"nsecond", 1e-9},  {"nsec", 1e-9},  {"usec", 1e-6},    {"msec", 1e-3},  {"byte", 1},     {"Kbyte", 1e3},    {"Mbyte", 1e6}, {"Gbyte", 1e9},
      {"Tbyte", 1e12}, {"KiB", 1024},      {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"%", 0.01}};
  const auto found = scales.find(unit);
  return found == scales.end() ? 1 : found->second;
}

struct Reading {
  std::string unit, value;
};
// A launch as the report names its numbers.
struct Launch {
  std::string kernel;
  std::map<std::string, Reading> readings;
};

std::optional<double> reading(const Launch& launch, const std::string& name) {
  const auto found = launch.readings.find(name);
  if (found == launch.readings.end()) return std::nullopt;
  const auto value = number_of(found->second.value);
  return value ? std::optional<double>(*value * unit_scale(found->second.unit)) : std::nullopt;
}

// Percentages, also from a version that leaves their unit out.
std::optional<double> share(const Launch& launch, const std::string& name) {
  const auto found = launch.readings.find(name);
  if (found == launch.readings.end()) return std::nullopt;
  const auto value = number_of(found->second.value);
  return value ? std::optional<double>(*value / 100) : std::nullopt;
}

std::optional<int64_t> whole(std::optional<double> value) {
  return value ? std::optional<int64_t>(std::llround(*value)) : std::nullopt;
}

std::optional<double> sum(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::optional<double>(*a + *b) : std::nullopt;
}

OccupancyLimit limit_of(const Launch& launch) {
  // In this order: of equal limits the one that a kernel's text can change.
  const std::pair<OccupancyLimit, const char*> limits[] = {
      {OccupancyLimit::kRegisters, "launch__occupancy_limit_registers"},
      {OccupancyLimit::kSharedMemory, "launch__occupancy_limit_shared_mem"},
      {OccupancyLimit::kWarps, "launch__occupancy_limit_warps"},
      {OccupancyLimit::kBlocks, "launch__occupancy_limit_blocks"},
      {OccupancyLimit::kBarriers, "launch__occupancy_limit_barriers"}};
  OccupancyLimit smallest = OccupancyLimit::kUnknown;
  double blocks = INFINITY;
  for (const auto& [limit, name] : limits)
    if (const auto value = reading(launch, name); value && *value < blocks) {
      blocks = *value;
      smallest = limit;
    }
  return smallest;
}

KernelMetrics metrics_of(const Launch& launch) {
  KernelMetrics metrics;
  metrics.kernel = launch.kernel;
  if (const auto seconds = reading(launch, kDuration); seconds && *seconds > 0) metrics.duration = Seconds(*seconds);
  metrics.compute_use = share(launch, kCompute);
  metrics.memory_use = share(launch, kMemory);
  metrics.dram_use = share(launch, kDramUse);
  metrics.l2_use = share(launch, kL2Use);
  metrics.l1_use = share(launch, kL1Use);
  metrics.achieved_occupancy = share(launch, "sm__warps_active.avg.pct_of_peak_sustained_active");
  metrics.theoretical_occupancy = share(launch, "sm__maximum_warps_per_active_cycle_pct");
  metrics.occupancy_limit = limit_of(launch);
  metrics.waves = reading(launch, "launch__waves_per_multiprocessor");
  metrics.registers = whole(reading(launch, "launch__registers_per_thread"));
  // The total of newer versions counts what the driver takes as well.
  auto shared = sum(reading(launch, "launch__shared_mem_per_block_static"), reading(launch, "launch__shared_mem_per_block_dynamic"));
  if (!shared) shared = reading(launch, "launch__shared_mem_per_block");
  metrics.shared_bytes = whole(shared);
  metrics.threads = whole(reading(launch, "launch__block_size"));
  metrics.blocks = whole(reading(launch, "launch__grid_size"));
  metrics.dram_bytes = sum(reading(launch, kDramRead), reading(launch, kDramWritten));
  metrics.l2_hit_rate = share(launch, kL2Hits);
  metrics.sectors_per_load = reading(launch, kSectors);
  metrics.stalled_on_memory = reading(launch, kWaitMemory);
  metrics.stalled_on_barrier = reading(launch, kWaitBarrier);
  return metrics;
}

std::optional<size_t> column(const std::vector<std::string>& header, std::string_view name) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) return std::nullopt;
  return static_cast<size_t>(found - header.begin());
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::vector<Launch> launches_of(std::string_view text) {
  std::vector<Launch> launches;
  std::vector<std::string> header, units;
  std::string last_id;
  for (const auto line : lines_of(text)) {
    const auto cells = cells_of(line);
    if (cells.size() > 2 && cells[0] == "ID" && column(cells, "Kernel Name")) {
      header = cells;
      units.clear();
      last_id.clear();
      continue;
    }
    if (header.empty() || cells.size() < header.size()) continue;
    if (const auto name = column(header, "Metric Name"), value = column(header, "Metric Value"); name && value) {
      // One line a metric; the launch changes with its ID.
      if (cells[0].empty()) continue;
      if (launches.empty() || cells[0] != last_id) {
        launches.push_back({cells[*column(header, "Kernel Name")], {}});
        last_id = cells[0];
      }
      const auto unit = column(header, "Metric Unit");
      launches.back().readings[cells[*name]] = {unit ? cells[*unit] : "", cells[*value]};
      continue;
    }
    if (!number_of(cells[0])) {
      if (trimmed(cells[0]).empty()) units = cells;  // the line below the header
      continue;
    }
    Launch launch{cells[*column(header, "Kernel Name")], {}};
    for (size_t i = 0; i < header.size(); ++i)
      launch.readings[header[i]] = {i < units.size() ? units[i] : std::string(), cells[i]};
    launches.push_back(std::move(launch));
  }
  return launches;
}

// Why ncu counted nothing, in its own words; empty where it does not say.
std::string refusal_in(std::string_view text) {
  if (text.find("ERR_NVGPUCTRPERM") != std::string_view::npos)
    return "this user may not read the device's performance counters (ERR_NVGPUCTRPERM)";
  std::string warning;
  for (const auto line : lines_of(text)) {
    for (const std::string_view mark : {"==ERROR==", "==WARNING=="}) {
      const auto at = line.find(mark);
      if (at == std::string_view::npos) continue;
      auto said = std::string(trimmed(line.substr(at + mark.size())));
      if (mark == "==ERROR==") return said;
      if (said.find("No kernels were profiled") != std::string::npos) warning = "ncu profiled no kernel";
    }
  }
  return warning;
}

}  // namespace

const char* occupancy_limit_name(OccupancyLimit limit) {
  switch (limit) {
    case OccupancyLimit::kUnknown: return "unknown";
    case OccupancyLimit::kRegisters: return "registers";
    case OccupancyLimit::kSharedMemory: return "shared memory";
    case OccupancyLimit::kWarps: return "warps";
    case OccupancyLimit::kBlocks: return "blocks";
    case OccupancyLimit::kBarriers: return "barriers";
  }
  check_failed(__FILE__, __LINE__, "OccupancyLimit", "value outside the enum");
}

std::vector<std::string> ncu_sections() { return {"SpeedOfLight", "LaunchStats", "Occupancy"}; }

std::vector<std::string> ncu_metrics() { return {kDramRead, kDramWritten, kL2Hits, kSectors, kWaitMemory, kWaitBarrier}; }

Result<std::vector<KernelMetrics>> parse_ncu(std::string_view text) {
  const auto launches = launches_of(text);
  std::vector<KernelMetrics> result;
  bool counted = false;
  for (const auto& launch : launches) {
    result.push_back(metrics_of(launch));
    counted |= result.back().compute_use.has_value() || result.back().memory_use.has_value();
  }
  if (counted) return result;
  // A refusal may stand beside a table of launches without a single counter.
  if (const auto refusal = refusal_in(text); !refusal.empty()) return Error(ErrorCode::kEnvironment, refusal);
  if (!launches.empty()) return Error(ErrorCode::kEnvironment, "ncu reports kernels without throughputs");
  return Error(ErrorCode::kInternal, "this is no report of ncu --csv --page raw");
}

std::vector<std::vector<KernelMetrics>> between_marks(const std::vector<KernelMetrics>& launches, std::string_view mark) {
  std::vector<std::vector<KernelMetrics>> result;
  for (const auto& launch : launches) {
    if (launch.kernel.substr(0, launch.kernel.find('(')) == mark) result.emplace_back();
    else if (!result.empty()) result.back().push_back(launch);
  }
  return result;
}

Diagnosis diagnose(const KernelMetrics& metrics) {
  if (!metrics.compute_use || !metrics.memory_use) return Diagnosis::kUnknown;
  const bool compute = *metrics.compute_use >= kSpeedOfLight, memory = *metrics.memory_use >= kSpeedOfLight;
  if (compute && memory) return Diagnosis::kNearOptimal;
  if (memory) return Diagnosis::kMemoryBound;
  if (compute) return Diagnosis::kComputeBound;
  return Diagnosis::kUnderutilized;
}

KernelMetrics combined(const std::vector<KernelMetrics>& launches) {
  KO_CHECK(!launches.empty(), "no launches to combine");
  const auto seconds = [](const KernelMetrics& launch) { return launch.duration.value_or(Seconds(0)); };
  KernelMetrics result = *std::max_element(launches.begin(), launches.end(), [&](const auto& a, const auto& b) {
    return seconds(a) < seconds(b);
  });
  if (launches.size() == 1) return result;
  Seconds total{0};
  for (const auto& launch : launches) total += seconds(launch);
  if (total.count() <= 0) return result;
  result.duration = total;
  // Absent as soon as one launch that took time lacks it: a mean over the others would claim too much.
  const auto mean = [&](std::optional<double> KernelMetrics::*field) -> std::optional<double> {
    double weighted = 0;
    for (const auto& launch : launches) {
      if (seconds(launch).count() <= 0) continue;
      if (!(launch.*field)) return std::nullopt;
      weighted += *(launch.*field) * (seconds(launch) / total);
    }
    return weighted;
  };
  for (const auto field : {&KernelMetrics::compute_use, &KernelMetrics::memory_use, &KernelMetrics::dram_use,
                           &KernelMetrics::l2_use, &KernelMetrics::l1_use, &KernelMetrics::achieved_occupancy})
    result.*field = mean(field);
  result.dram_bytes = 0;
  for (const auto& launch : launches) result.dram_bytes = sum(result.dram_bytes, launch.dram_bytes);
  return result;
}

Diagnosis diagnose(const Roofline& roofline, const KernelMetrics& metrics) {
  if (roofline.diagnosis == Diagnosis::kNearOptimal) return roofline.diagnosis;
  const auto counted = diagnose(metrics);
  return counted == Diagnosis::kUnknown ? roofline.diagnosis : counted;
}

nlohmann::json metrics_to_json(const KernelMetrics& metrics) {
  nlohmann::json document = {{"kernel", metrics.kernel}, {"occupancy_limit", occupancy_limit_name(metrics.occupancy_limit)}};
  if (metrics.duration) document["duration_seconds"] = metrics.duration->count();
  for (const auto& [name, field] : kNumbers)
    if (metrics.*field) document[name] = *(metrics.*field);
  for (const auto& [name, field] : kCounts)
    if (metrics.*field) document[name] = *(metrics.*field);
  return document;
}

KernelMetrics metrics_of_json(const nlohmann::json& document) {
  KernelMetrics metrics;
  metrics.kernel = document.value("kernel", "");
  const auto limit = document.value("occupancy_limit", "");
  for (const auto known : {OccupancyLimit::kRegisters, OccupancyLimit::kSharedMemory, OccupancyLimit::kWarps, OccupancyLimit::kBlocks,
                           OccupancyLimit::kBarriers})
    if (limit == occupancy_limit_name(known)) metrics.occupancy_limit = known;
  if (document.contains("duration_seconds")) metrics.duration = Seconds(document["duration_seconds"].get<double>());
  for (const auto& [name, field] : kNumbers)
    if (document.contains(name)) metrics.*field = document[name].get<double>();
  for (const auto& [name, field] : kCounts)
    if (document.contains(name)) metrics.*field = document[name].get<int64_t>();
  return metrics;
}

std::string metrics_text(const KernelMetrics& metrics) {
  std::string text;
  const auto say = [&](const char* what, std::optional<double> fraction) {
    if (fraction) text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", what, *fraction * 100);
  };
  say("compute", metrics.compute_use);
  say("memory", metrics.memory_use);
  say("DRAM", metrics.dram_use);
  say("L2", metrics.l2_use);
  say("occupancy", metrics.achieved_occupancy);
  if (metrics.registers) text += fmt::format("{}{} registers", text.empty() ? "" : ", ", *metrics.registers);
  return text;
}

}  // namespace kernelopt
