// Target: what the engine knows of one device. Filled from the worker's `hello` and `measure_peaks`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "kernelopt/base/result.h"
#include "kernelopt/target/gpu_limits.h"

namespace kernelopt {

enum class DeviceKind { kCpu, kCuda };

struct Target {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;          // marketing name
  std::string isa;           // "avx512", "avx2", "sm_90"
  int threads = 1;           // CPU: OpenMP threads of the user's process; GPU: number of multiprocessors
  int vector_bits = 128;     // CPU: width of one vector register
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 8 << 20;
  double copy_bytes_per_second = 0;   // read + write, measured
  double flops_per_second = 0;        // fp32, measured or computed
  double launch_seconds = 0;          // an empty kernel call through the stitched program's own launcher
  std::optional<GpuLimits> gpu;       // of a GPU
  std::string fingerprint;   // opaque: device, torch, compiler, flags, threads; part of every digest and of every pass

  int vector_lanes(int64_t element_bytes) const { return static_cast<int>(vector_bits / 8 / element_bytes); }
};

// From the worker's `hello` result (docs/protocol.md).
Result<Target> read_target(const nlohmann::json& hello);

}  // namespace kernelopt
