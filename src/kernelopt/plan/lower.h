// Lowering: a plan applied to a group. Bodies are rewritten, aligned on shared loops, merged into phases, and every buffer
// gets its place. What comes out is what a printer prints; all decisions are already taken (DESIGN.md section 5).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernelopt/plan/rewrite.h"

namespace kernelopt {

enum class Place {
  kMemory,    // a parameter of the kernel
  kScratch,   // memory of the kernel's own, shared by all threads; lives between nests
  kLocal,     // array per thread, one shared iteration's part of the buffer
  kRegister,  // one value per shared iteration
};

// Digit of a linear index that a shared loop owns: (index / stride) mod extent == the loop's variable.
struct Slot {
  int64_t stride = 0, extent = 0;
};

struct LoweredBuffer {
  DType dtype = DType::kFloat32;
  Place place = Place::kMemory;
  int64_t elements = 0;      // of the place: whole buffer, or one shared iteration's part
  bool read = false, written = false;  // by the kernel
  bool aliased = false;      // shares storage with another buffer of the kernel
  size_t nest = 0;           // kLocal, kRegister
};

struct LoweredPhase {
  FlatBody body;                   // loads and stores already use the places' own indices
  std::vector<std::string> loops;  // loops of the phase, outermost first; shared loops are not among them
  std::string vector_loop;         // the loop that lanes run along: one of `loops`, the nest's last shared loop, or empty
  int unroll = 1;
};

struct LoweredNest {
  std::vector<LoopVar> shared;     // outermost first
  VectorAxis axis = VectorAxis::kInner;
  int unroll = 1;
  std::vector<LoweredPhase> phases;
  NestPlan plan;
};

struct LoweredKernel {
  std::vector<LoweredNest> nests;
  std::map<std::string, LoweredBuffer> buffers;
  int threads = 1;
  int lanes = 16;
  MathVariant math = MathVariant::kPrecise;
};

// kUnsupported, with the reason, where the plan is not legal for the group.
Result<LoweredKernel> lower(const Program& program, const Group& group, const KernelPlan& plan);
Result<LoweredKernel> lower_work(WorkGroup work, const KernelPlan& plan);

// Whether the bodies that `nest` names can share its loops at all; the rest of the group does not matter.
Status check_nest(const WorkGroup& work, const NestPlan& nest);

// Renames (splitting where needed) variables of `body` so that they match `names`, loops of `other`, by the buffers both
// touch. Unmatched is set to the first name without a counterpart.
struct AlignResult {
  bool ok = false;
  std::string unmatched;
};
AlignResult align(const FlatBody& other, const std::vector<LoopVar>& names, FlatBody& body, bool any_kind);

// The slot of variable `v` in a buffer index, if it owns a digit there.
std::optional<Slot> slot_of(const Expr& index, const LoopVar& v, const std::map<std::string, int64_t>& extents);

// Cost in vector instructions per vector of accessing memory with this index along `loop`: 1 for contiguous.
double access_cost(const Expr& index, const std::string& loop, int lanes, bool store);
// The loop of `candidates` along which the body's accesses are cheapest; empty if there is none.
std::string best_vector_loop(const FlatBody& body, const std::vector<std::string>& candidates, int lanes);

}  // namespace kernelopt
