// What limits a group, as far as planners use it.
#pragma once

#include "kernelopt/analyst/roofline.h"

namespace kernelopt {

enum class Bottleneck { kUnknown, kMemory, kCompute, kUnderutilized };

inline const char* bottleneck_name(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::kUnknown: return "unknown";
    case Bottleneck::kMemory: return "memory";
    case Bottleneck::kCompute: return "compute";
    case Bottleneck::kUnderutilized: return "underutilized";
  }
  return "?";
}

inline Bottleneck bottleneck_of(Diagnosis diagnosis) {
  switch (diagnosis) {
    case Diagnosis::kMemoryBound:
    case Diagnosis::kNearOptimal:
      return Bottleneck::kMemory;
    case Diagnosis::kComputeBound: return Bottleneck::kCompute;
    case Diagnosis::kUnderutilized: return Bottleneck::kUnderutilized;
    case Diagnosis::kUnknown: return Bottleneck::kUnknown;
  }
  return Bottleneck::kUnknown;
}

}  // namespace kernelopt
