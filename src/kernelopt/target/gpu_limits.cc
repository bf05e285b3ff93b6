#include "kernelopt/target/gpu_limits.h"

#include <algorithm>
#include <limits>

namespace kernelopt {
namespace {

constexpr int64_t kWarp = 32, kPartitions = 4;
constexpr int64_t kRegisterUnit = 256, kSharedUnit = 128;  // allocation granularity, since sm_80 alike
constexpr int64_t kSystemShared = 1024;                    // of every program, since sm_80

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

GpuLimits architecture(int multiprocessors, int64_t shared_kib, int threads, int programs) {
  GpuLimits limits;
  limits.multiprocessors = multiprocessors;
  limits.shared_per_multiprocessor = shared_kib << 10;
  limits.shared_per_program = limits.shared_per_multiprocessor - kSystemShared;
  limits.threads_per_multiprocessor = threads;
  limits.programs_per_multiprocessor = programs;
  return limits;
}

}  // namespace

GpuLimits gpu_limits(std::string_view isa) {
  if (isa == "sm_80") return architecture(108, 164, 2048, 32);
  if (isa == "sm_90") return architecture(132, 228, 2048, 32);
  if (isa == "sm_100") return architecture(148, 228, 2048, 32);
  return architecture(1, 100, 1536, 16);  // sm_86
}

Residency resident_programs(const GpuLimits& limits, int64_t registers, int64_t shared_bytes, int64_t threads) {
  const int64_t warps = std::max<int64_t>((threads + kWarp - 1) / kWarp, 1);
  const int64_t warp_registers = round_up(registers * kWarp, kRegisterUnit);
  const int64_t by_registers =
      registers <= 0 ? std::numeric_limits<int64_t>::max()
                     : limits.registers_per_multiprocessor / kPartitions / warp_registers * kPartitions / warps;
  const int64_t by_shared = limits.shared_per_multiprocessor / round_up(shared_bytes + kSystemShared, kSharedUnit);
  const int64_t by_threads = limits.threads_per_multiprocessor / kWarp / warps;
  Residency result{limits.programs_per_multiprocessor, "programs"};
  const auto bound = [&](int64_t programs, const char* by) {
    if (programs < result.programs) result = {programs, by};
  };
  bound(by_threads, "threads");
  bound(by_shared, "shared memory");
  bound(by_registers, "registers");
  return result;
}

}  // namespace kernelopt
