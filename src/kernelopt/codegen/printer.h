// Printers turn a plan into a Candidate; they only print. One per language.
#pragma once

#include "kernelopt/codegen/candidate.h"
#include "kernelopt/fusion/group.h"
#include "kernelopt/plan/kernel_plan.h"
#include "kernelopt/target/target.h"

namespace kernelopt {

// C++ with OpenMP and vectors (codegen/cpp/). kUnsupported with the reason where the plan cannot be printed.
Result<Candidate> print_cpp(const Program& program, const Group& group, const KernelPlan& plan, const Target& target);

// Triton (codegen/triton/): one kernel and one launch a nest. Reads the plans' ProgramPlan.
Result<Candidate> print_triton(const Program& program, const Group& group, const KernelPlan& plan, const Target& target);

}  // namespace kernelopt
