#include "kernelopt/analyst/roofline.h"

#include <algorithm>

namespace kernelopt {

Seconds Floor::total() const { return std::max({memory, compute, launch}); }

Floor group_floor(const Work& work, const Target& target) {
  return {memory_floor(work.bytes_read + work.bytes_written, target), compute_floor(work.operations, target),
          Seconds(target.launch_seconds)};
}

Floor challenge_floor(const ProductWork& work, const Target& target) {
  // Data-centre GPUs have 15 or 16 times fp32's rate on their matrix units; a floor may be too low, never too high.
  constexpr double kMatrixUnits = 16;
  constexpr Seconds kLeastLaunch{2.5e-6};  // a kernel that does nothing, and the gap before the next
  Floor floor;
  floor.memory = memory_floor(work.bytes, target);
  floor.compute = compute_floor(work.half_operations, target) / kMatrixUnits;
  floor.launch = work.launches * kLeastLaunch;
  return floor;
}

const char* diagnosis_name(Diagnosis diagnosis) {
  switch (diagnosis) {
    case Diagnosis::kUnknown: return "unknown";
    case Diagnosis::kNearOptimal: return "near-optimal";
    case Diagnosis::kMemoryBound: return "memory-bound";
    case Diagnosis::kComputeBound: return "compute-bound";
    case Diagnosis::kUnderutilized: return "underutilized";
  }
  check_failed(__FILE__, __LINE__, "Diagnosis", "value outside the enum");
}

Roofline analyze(const Work& work, Seconds measured, const Target& target) {
  KO_CHECK(measured.count() > 0, "measured time that is not positive");
  Roofline result;
  result.floor = group_floor(work, target);
  result.memory_use = std::min(1.0, result.floor.memory / measured);
  result.compute_use = std::min(1.0, result.floor.compute / measured);
  const Seconds floor = result.floor.total();
  if (floor.count() <= 0) return result;
  result.headroom = std::max(1.0, measured / floor);
  const double use = std::max(result.memory_use, result.compute_use);
  if (floor / measured >= kSpeedOfLight) result.diagnosis = Diagnosis::kNearOptimal;
  else if (use < kSpeedOfLight / 2) result.diagnosis = Diagnosis::kUnderutilized;
  else if (result.memory_use >= result.compute_use) result.diagnosis = Diagnosis::kMemoryBound;
  else result.diagnosis = Diagnosis::kComputeBound;
  return result;
}

}  // namespace kernelopt
