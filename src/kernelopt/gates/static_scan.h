// Gate 1's scan of C++ kernels: an allow-list over the tokens of one source (DESIGN.md sections 5 and 6). Pure text; the
// source is never preprocessed or compiled here.
//
// Admitted are a fixed set of includes, `#pragma` of OpenMP and of GCC's loop hints, conditionals, macros named KO_*, the
// language without assembly, exceptions, allocation, threads of its own and hidden state, and names that are the source's own, a vector
// intrinsic, or on the list of what a kernel may call. Everything else is a finding.
#pragma once

#include <optional>
#include <string>

#include "kernelopt/codegen/candidate.h"

namespace kernelopt {

// The only function with C linkage, in every C++ kernel (docs/formats.md).
inline constexpr const char* kEntryPoint = "kernel";

struct ScanFinding {
  int line;
  std::string token;
  std::string why;
  bool entry_point = false;  // about the declared kernel rather than about what the source holds
};

// Nothing: the source is admitted.
std::optional<ScanFinding> scan_cpp_kernel(const KernelSource& kernel);

// The same for Triton: only imports of triton, `@triton.jit` functions, and in them names that the source defines or that
// stand on a list of what tl and libdevice offer a kernel. The worker checks the syntax tree as well before it compiles.
std::optional<ScanFinding> scan_triton_kernel(const KernelSource& kernel);

}  // namespace kernelopt
