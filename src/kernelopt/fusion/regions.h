// Which outer loops bodies can share (DESIGN.md section 4: "one kernel plan can express it").
//
// Bodies that share outer loops run one after the other inside each outer iteration. That is legal when, for every buffer
// that one of them writes and another touches, all accesses to one element fall into the same outer iteration. Loops need
// not be equal: a flattened loop is split (p0 < 32768 beside p0 < 128, p1 < 256 becomes o0 < 128 around p0_in < 256 and
// p1 < 256), and the iteration loops of a body may be taken in another order, since its iterations are independent.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernelopt/ir/program.h"

namespace kernelopt {

// One body under shared outer loops.
struct LoopView {
  // What remains inside, iteration loops first. A split loop keeps its inner part under the name `<var>_in`.
  std::vector<LoopVar> inner;
  // Every original loop variable over the outer and the inner names, for Expr::substitute; simplify afterwards with the
  // extents of `outer` and `inner`.
  std::map<std::string, Expr> vars;
};

struct AlignedLoops {
  std::vector<LoopVar> outer;   // o0, o1, …, outermost first; never empty
  std::vector<LoopView> views;  // one a body, in the order given

  // Extents of the outer loops and of the inner loops of body `at`, as simplify() wants them.
  std::map<std::string, int64_t> extents(size_t at) const;
};

// The most outer loops that all bodies, run in this order, can share; nullopt when they can share none, with the cause in
// `reason` when it is not null ("regions of buf3 do not align", …). At least one body.
std::optional<AlignedLoops> align_loops(const Program& program, const std::vector<const Body*>& bodies,
                                        std::string* reason = nullptr);

// `aligned` with its outermost `count` loops only (1 <= count <= outer.size()); the others move into the views. Always
// legal when `aligned` is.
AlignedLoops with_outer(const AlignedLoops& aligned, size_t count);

// The part of `buffer` that one body touches in one outer iteration: `base` (over the outer loops) plus 0 … span - 1.
// nullopt when the body does not touch it or the span does not follow from the ranges (indirect indices).
struct LocalRegion {
  Expr base;
  int64_t span;
};
std::optional<LocalRegion> local_region(const Body& body, const AlignedLoops& aligned, size_t at, const std::string& buffer);

// Whether two bodies under shared loops read the same part of some buffer in each outer iteration (one reads all that the
// other does), or parts at a fixed distance from each other, so that they walk through its memory together. A buffer that
// every iteration reads whole, as a vector of weights, does not count.
bool shares_reads(const Program& program, const Body& first, const Body& second, const AlignedLoops& aligned, size_t at_first,
                  size_t at_second);

// Whether `second` must run after `first`: they touch common memory and one of them stores.
bool conflicts(const Program& program, const Body& first, const Body& second);

// Bodies cut into phases: the bodies of a phase share outer loops, and a phase starts when every earlier one has finished.
// A body joins the phase of the last body that it must follow, or a later one, if the loops align; where it has no data
// in common with the phase it joins only when that costs no shared loop. Else it opens a phase. A body that has no loops
// to share (a reduction to one number) is a phase without `loops`.
struct Phase {
  std::vector<size_t> bodies;         // indices into the list given
  std::optional<AlignedLoops> loops;  // views in the order of `bodies`
};
std::vector<Phase> split_into_phases(const Program& program, const std::vector<const Body*>& bodies);

// Buffers that a body loads and stores, in order of first use.
std::vector<std::string> loaded_buffers(const Body& body);
std::vector<std::string> stored_buffers(const Body& body);

// The buffer that owns the memory: follows `mutates` and `base`.
const std::string& storage_of(const Program& program, const std::string& buffer);

}  // namespace kernelopt
