// Analyst, the deterministic part (DESIGN.md section 7): how far a group's time is from the device's speed of light, and
// what holds it back. Pure functions.
#pragma once

#include "kernelopt/fusion/group.h"
#include "kernelopt/plan/product.h"
#include "kernelopt/target/floor.h"

namespace kernelopt {

// Fraction of the speed of light at which a resource counts as saturated.
inline constexpr double kSpeedOfLight = 0.8;

struct Floor {
  Seconds memory{0}, compute{0}, launch{0};
  Seconds total() const;
};
Floor group_floor(const Work& work, const Target& target);
// Of a challenge to a library's product, which may use the matrix units at half precision.
Floor challenge_floor(const ProductWork& work, const Target& target);

enum class Diagnosis {
  kUnknown,         // the device's peaks are not known
  kNearOptimal,     // at 80 % of the floor or better: nothing left to gain
  kMemoryBound,     // memory is the slower resource, and used at half of that limit or more
  kComputeBound,    // arithmetic is, likewise
  kUnderutilized,   // neither resource is used at half of the limit: latency, parallelism or launches
};
const char* diagnosis_name(Diagnosis diagnosis);

struct Roofline {
  Floor floor;
  double memory_use = 0, compute_use = 0;  // fraction of each peak that the measured time amounts to, in [0, 1]
  double headroom = 1;                     // measured / floor, at least 1: the largest speed-up still possible
  Diagnosis diagnosis = Diagnosis::kUnknown;
};
// `measured` must be positive.
Roofline analyze(const Work& work, Seconds measured, const Target& target);

}  // namespace kernelopt
