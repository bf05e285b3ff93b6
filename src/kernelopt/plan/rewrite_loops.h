// Rewrites that change the loops of a scan or a reduction; apply_rewrite calls them (rewrite.h).
#pragma once

#include <string>

#include "kernelopt/plan/rewrite.h"

namespace kernelopt {

// The loop of a scan runs the other way, so that memory that was read backwards is read forwards.
Status flip_scan(WorkGroup& work, const std::string& target);

// The compiler cuts long reductions into parts for the sake of parallelism and combines them in a second step; this takes the cut
// back: `target`, the combining body, becomes the reduction over all elements. Bounds that only cut the last part short go.
Status join_parts(WorkGroup& work, const std::string& target);

}  // namespace kernelopt
