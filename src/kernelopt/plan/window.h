// Sliding windows: short reduction loops unrolled into ops, and neighbouring rows of results computed together so that
// what their windows share is computed once (DESIGN.md section 5; "row walking").
#pragma once

#include "kernelopt/plan/rewrite.h"

namespace kernelopt {

// Longest window that is unrolled, in points.
inline constexpr int64_t kMaxWindow = 64;
// Longest body whose rows are walked, in ops.
inline constexpr size_t kMaxWalkedOps = 800;

// Replaces a sum, maximum or minimum over at most kMaxWindow points by a chain of ops; the body becomes pointwise.
Status unroll_window(WorkGroup& work, const std::string& target);

// Computes `rows` consecutive results along the walked loop in one iteration. Chains of an associative op over a
// rectangular window are re-associated row by row first, so that equal rows of neighbouring results are one value. The
// rows left over become a body of their own. kUnsupported where nothing would be shared.
Status walk_rows(WorkGroup& work, const std::string& target, int64_t rows);

}  // namespace kernelopt
