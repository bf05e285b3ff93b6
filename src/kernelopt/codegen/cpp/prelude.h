// The run-time text that every generated C++ source starts with: lanes, memory access, reductions across lanes, math.
#pragma once

#include <string>

namespace kernelopt {

struct PreludeNeeds {
  bool math = false;      // exponential family, own formulations
  bool vec = false;       // functions of torch's ATen/cpu/vec headers (costs about two seconds of compile time)
  bool transpose = false;  // square transposes in registers
  bool wide = false;       // totals wider than what they add up
};

// `lanes`: 16, 8 or 4 lanes of every vector, whatever the element type.
std::string cpp_prelude(int lanes, const PreludeNeeds& needs);

}  // namespace kernelopt
