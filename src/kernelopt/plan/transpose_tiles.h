// Tiles between two memory orders, for GPUs: a pointwise nest that reads along one loop and writes along another moves whole
// lines both ways when a program covers a tile of both loops and turns it around on chip.
#pragma once

#include <optional>

#include "kernelopt/plan/kernel_plan.h"
#include "kernelopt/plan/rewrite.h"

namespace kernelopt {

// The plan with every nest to which this applies tiled so: one of the two loops (a piece of it, where it is long) is left to the
// program's columns, the other comes last among the shared ones. Nothing where it applies to no nest. `work` is the group
// after the plan's rewrites.
std::optional<KernelPlan> with_transpose_tiles(const WorkGroup& work, const KernelPlan& plan);

}  // namespace kernelopt
