// Which library calls of a program can be challenged, and with which neighbours (DESIGN.md section 4).
#pragma once

#include <vector>

#include "kernelopt/fusion/group.h"

namespace kernelopt {

// Sets of steps, each with one library call, ascending and disjoint: what decompose() makes groups of.
std::vector<std::vector<int>> challenge_sets(const Program& program);

}  // namespace kernelopt
