// Nests for a rewritten group: which bodies share which loops, and where vectors lie, by a simple estimate of cost.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernelopt/plan/lower.h"
#include "kernelopt/target/target.h"

namespace kernelopt {

struct NestOptions {
  bool fuse = true;     // join bodies into nests as far as legal
  int axis_rank = 0;    // 0: cheapest estimate, 1: second cheapest, …
  int unroll = 4;
  bool stream = false;
  bool long_tiles = false;  // kLongTile vectors side by side where lanes lie across a reduction
  int64_t wanted_parallel = 1;  // shared iterations below which joining more bodies is not worth it
};

// Columns that are reduced side by side touch memory in pieces of this many vectors. More accumulators than there are
// registers cost less than the short pieces of memory that fewer would touch.
inline constexpr int kLongTile = 32;

// Whether lanes of the nest lie across a reduction (or scan), so that long tiles can pay.
bool reduces_across_lanes(const WorkGroup& work, const NestPlan& nest);

// Answers of join_bodies for one rewritten group.
using JoinMemory = std::map<std::pair<std::vector<std::string>, int64_t>, std::optional<NestPlan>>;

// Always succeeds: a body alone with all its iteration loops shared is legal unless the body itself is not. `memory`, if
// there is one, must belong to the same rewritten group.
std::vector<NestPlan> build_nests(const WorkGroup& work, const NestOptions& options, int lanes, JoinMemory* memory = nullptr);

// The nest of exactly these bodies with the most shared iterations; nullopt where they cannot share a loop.
std::optional<NestPlan> join_bodies(const WorkGroup& work, const std::vector<std::string>& bodies, int64_t wanted_parallel);

// Vector axes for a nest, cheapest first; each is the nest with its axis and order of shared loops set. Those estimated at
// more than `worst` times the cheapest are left out.
std::vector<NestPlan> axis_choices(const WorkGroup& work, const NestPlan& nest, int lanes, double worst);

// Iterations of the shared loops that can run in parallel.
int64_t parallel_iterations(const WorkGroup& work, const NestPlan& nest, int lanes);

}  // namespace kernelopt
