#include "kernelopt/target/floor.h"

#include <algorithm>

namespace kernelopt {

Seconds memory_floor(int64_t bytes, const Target& target) {
  if (target.copy_bytes_per_second <= 0) return Seconds(0);
  return Seconds(static_cast<double>(bytes) / target.copy_bytes_per_second);
}

Seconds compute_floor(double operations, const Target& target) {
  if (target.flops_per_second <= 0) return Seconds(0);
  return Seconds(operations / target.flops_per_second);
}

Seconds floor_seconds(int64_t bytes, double operations, const Target& target) {
  return std::max({memory_floor(bytes, target), compute_floor(operations, target), Seconds(target.launch_seconds)});
}

}  // namespace kernelopt
