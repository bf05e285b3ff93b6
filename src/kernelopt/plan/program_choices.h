// How GPU programs can cover a nest (ProgramPlan): which sizes are worth trying, by shape alone.
#pragma once

#include <vector>

#include "kernelopt/plan/lower.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt {

// Sensible coverings of a lowered nest, best guess first, all different; never empty. Rows whose inner loops fit into the
// registers of one program are taken at once, longer ones in a loop; where memory runs along the last shared loop, a
// program takes enough of it for whole cache lines.
// Ways to keep rows on chip that a nest reads in several phases (ProgramPlan::team), best guess first: held by one program where they
// fit, else by a team. Empty where that saves nothing or the rows do not fit into the device's registers.
std::vector<ProgramPlan> team_choices(const LoweredNest& nest, const Target& target);
std::vector<ProgramPlan> program_choices(const LoweredNest& nest, const Target& target);

// Starting points and moves of a plan space on a GPU, made from those that know nothing of programs.
std::vector<Move> with_programs(const WorkGroup& work, const std::vector<Move>& moves, const Target& target, size_t choices_each);
// The plan with rows kept on chip by teams in every nest that has team_choices, in up to `most` ways; sizes of other nests are the
// first of program_choices.
std::vector<Move> with_teams(const WorkGroup& work, const Move& move, const Target& target, size_t most);
std::vector<Move> program_moves(const WorkGroup& work, const KernelPlan& plan, const Target& target);

}  // namespace kernelopt
