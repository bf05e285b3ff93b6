// Fills Op::dtype and Op::dtypes of a body from the op table's type rules (op_table.h). Run by read_program, and by
// whoever builds or rewrites bodies.
#pragma once

#include <map>
#include <string>

#include "kernelopt/ir/program.h"

namespace kernelopt {

// Ops whose rule is kGiven must hold the declared type in `dtype` when this is called (reductions: `dtype`; scans and
// sorts: `dtypes`); half types become the type in which they are computed, except for a to_dtype that rounds
// (use_compute_types false), which keeps the half type. kInternal when an argument has no type or a buffer is unknown.
Status infer_types(Body& body, const std::map<std::string, Buffer>& buffers);

}  // namespace kernelopt
