// Challenges to convolutions as Triton kernels (plan/convolution.h): narrow x, narrow w, multiply with what follows, safe
// rows.
#pragma once

#include "kernelopt/codegen/candidate.h"
#include "kernelopt/plan/convolution.h"
#include "kernelopt/plan/kernel_plan.h"

namespace kernelopt::triton {

// kUnsupported where an op of the step that follows cannot be spelled. `plan.convolution` must be set.
Result<Candidate> print_convolution(const Program& program, const Group& group, const Convolution& convolution, const KernelPlan& plan);

}  // namespace kernelopt::triton
