// Challenges to matrix products as Triton kernels (plan/product.h): split b, split a, product, safe rows.
#pragma once

#include "kernelopt/codegen/candidate.h"
#include "kernelopt/plan/kernel_plan.h"
#include "kernelopt/plan/product.h"

namespace kernelopt::triton {

// kUnsupported where an op after the sum cannot be spelled. `plan.product` must be set.
Result<Candidate> print_product(const Program& program, const Group& group, const Product& product, const KernelPlan& plan);

}  // namespace kernelopt::triton
