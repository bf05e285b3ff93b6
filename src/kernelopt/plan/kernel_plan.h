// KernelPlan: everything a printer needs to know beyond the loop bodies themselves (DESIGN.md section 5). One plan
// language for all printers; a plan is a value, changed only by the transformations of plan_space.h.
//
// A plan is (1) rewrites of the group's bodies, applied in order, and (2) a partition of the rewritten bodies into nests.
// The bodies of a nest share its outer loops, which are distributed over threads; inside, every body is a phase. Between
// nests there is a barrier. A buffer that only one nest touches never reaches memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernelopt/plan/convolution_plan.h"
#include "kernelopt/plan/product_plan.h"

namespace kernelopt {

// X(enumerator, name)
#define KERNELOPT_TRANSFORMS(X)              \
  X(kSeed, "seed")                           \
  X(kTileSize, "tile size")                  \
  X(kLoopOrder, "loop order")                \
  X(kVectorAxis, "vector axis")              \
  X(kUnroll, "unroll")                       \
  X(kReductionStrategy, "reduction strategy") \
  X(kSplitReduction, "split reduction")      \
  X(kFuseSteps, "fuse steps")                \
  X(kCutSteps, "cut steps")                  \
  X(kSharedLoops, "shared loops")            \
  X(kRecompute, "recompute")                 \
  X(kStore, "store")                         \
  X(kWindowReuse, "window reuse")            \
  X(kStreamStores, "stream stores")          \
  X(kPrefetch, "prefetch")                   \
  X(kMath, "math variant")                   \
  X(kTranspose, "transpose in registers")    \
  X(kParallel, "threads")                    \
  X(kNumberFormat, "number format")          \
  X(kKeepRows, "rows kept on chip")

enum class TransformKind {
#define KO_X(name, text) name,
  KERNELOPT_TRANSFORMS(KO_X)
#undef KO_X
};
const char* transform_name(TransformKind kind);

// X(enumerator, name)
#define KERNELOPT_REWRITES(X)                                                                              \
  X(kInline, "inline")              /* target: buffer; its producer is recomputed in every reader */       \
  X(kTwoPass, "two pass")           /* target: body with welford_reduce; mean first, then squared distances */ \
  X(kSplit, "split")                /* target: body with a reduction; amount: parts, combined by a new body */ \
  X(kSplitInner, "split inner")     /* as kSplit, but parts are interleaved pieces next to each other */   \
  X(kUnrollWindow, "unroll window")  /* target: body with a short reduction, which becomes a chain of ops */ \
  X(kWalkRows, "walk rows")          /* target: body over windows; amount: rows of results computed together */ \
  X(kTileLoop, "tile loop")           /* target: body/loop; amount: iterations of the inner of the two that replace it */ \
  X(kFlipScan, "flip scan")           /* target: body with a scan, whose loop then runs the other way */ \
  X(kJoinParts, "join parts")         /* target: body that combines partial reductions, which becomes the whole reduction */ \
  X(kOnlineSoftmax, "online softmax") /* target: body with max, whose exp-sum reader joins it in one pass */

enum class RewriteKind {
#define KO_X(name, text) name,
  KERNELOPT_REWRITES(KO_X)
#undef KO_X
};
const char* rewrite_name(RewriteKind kind);

struct Rewrite {
  RewriteKind kind = RewriteKind::kInline;
  std::string target;  // real buffer name or body name, as the kind says
  int64_t amount = 0;
  bool wide = false;  // kSplit, kSplitInner of Welford: partial results in float64, for CPUs, where the mean may be large
};

// Where the lanes of a vector lie.
enum class VectorAxis {
  kInner,   // along a loop inside each phase; each phase has its own
  kShared,  // along the last shared loop: every lane is another iteration of the shared loops
  kScalar,  // no vectors
};

enum class MathVariant {
  kPrecise,  // as the compiler computes: at most 1 unit in the last place
  kFast,     // a few units in the last place
};

// GPUs: how programs cover a nest.
struct ProgramPlan {
  int64_t block = 1;        // shared iterations of one program, a power of two
  int64_t inner_block = 0;  // points of a phase's inner loops at once, a power of two; 0: all, kept in registers
  int warps = 4;
  int stages = 1;           // software pipelining depth of the loops
  // Above 0: a program holds its part of a row in registers, in pieces of `inner_block`, so that every phase after the first
  // finds it there. Above 1: so many programs share a row and meet at a barrier in memory after each phase with a reduction.
  int64_t team = 0;
  int64_t programs = 0;     // with a team: programs launched at most, all of which must be resident at once
};

struct NestPlan {
  std::vector<std::string> bodies;  // names of rewritten bodies, consecutive in program order
  // Shared loops, outermost first, as names of iteration variables of the anchor body.
  std::string anchor;
  std::vector<std::string> shared;
  VectorAxis axis = VectorAxis::kInner;
  int unroll = 1;            // vectors side by side along the vector axis
  bool merge = true;         // phases over the same loops become one loop
  bool split_interior = true;  // a copy of the loop without masks where masks are known to hold
  bool transpose = false;    // square tiles transposed in registers where loads and stores run along different loops
  bool stream = false;       // non-temporal stores for results that the kernel does not read again
  int prefetch = 0;          // distance of software prefetch in cache lines; 0: none
  bool keep_reduced_in_registers = true;
  ProgramPlan program;       // GPUs only
};

struct KernelPlan {
  std::vector<Rewrite> rewrites;
  std::vector<NestPlan> nests;
  int lanes = 16;       // vector lanes of every value, whatever its type
  int threads = 1;      // 1: no parallel region at all
  MathVariant math = MathVariant::kPrecise;
  // Challenges to library calls; with one of these nothing else counts.
  std::optional<ProductPlan> product;
  std::optional<ConvolutionPlan> convolution;
};

}  // namespace kernelopt
