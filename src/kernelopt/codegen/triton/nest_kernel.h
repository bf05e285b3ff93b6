// One nest of a lowered kernel as one Triton function (DESIGN.md section 5).
//
// A program covers `block` consecutive iterations of the flattened shared loops (dim 0 of every tensor). The loops inside
// a phase are flattened as well and lie along dim 1: all at once (persistent), or `inner_block` points at a time in a loop.
// Buffers that live in one shared iteration stay in registers; a plan that would read one back along other loops, or
// across the passes of a loop, is refused.
//
// A team (ProgramPlan::team) splits the columns of a row: each program keeps its slice in registers, folds it, leaves the
// partial result in scratch and waits on a zeroed counter of that row and phase until all of its team have come. Programs walk
// over rows, so that no more are launched than are resident. A slice is cut into pieces, each a tensor of its own, so that it
// need not be a power of two.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernelopt/codegen/triton/ops.h"
#include "kernelopt/plan/lower.h"

namespace kernelopt::triton {

// Scratch that the function needs beside the kernel's own buffers; its parameters follow those.
struct TeamScratch {
  std::string parameter;
  DType dtype;
  int64_t elements;
  bool zeroed;
};

struct NestSource {
  std::string source;             // the function and its decorator, without helpers
  std::vector<std::string> helpers;
  std::vector<std::string> combines;  // sources of scan combine functions
  std::vector<std::string> buffers;   // parameters in order: names of LoweredKernel::buffers
  std::vector<TeamScratch> team_scratch;
  int64_t programs = 1;
  bool cooperative = false;
  bool uses_libdevice = false;
};

// `names`: parameter name of each buffer in memory or scratch. kUnsupported with the reason where it cannot be printed.
Result<NestSource> print_nest(const LoweredKernel& kernel, size_t nest, const std::map<std::string, std::string>& names,
                              const std::string& function);

}  // namespace kernelopt::triton
