// Speed-of-light floors: the least time in which a device can move given bytes and do given operations (DESIGN.md
// sections 1 and 7). Pure.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernelopt/target/target.h"

namespace kernelopt {

using Seconds = std::chrono::duration<double>;

// Bytes read and written together over the measured copy rate. Zero where the target's peak is not known.
Seconds memory_floor(int64_t bytes, const Target& target);
// fp32-equivalent operations over the peak. Zero where the peak is not known.
Seconds compute_floor(double operations, const Target& target);
// The larger of the two, and at least one launch.
Seconds floor_seconds(int64_t bytes, double operations, const Target& target);

}  // namespace kernelopt
