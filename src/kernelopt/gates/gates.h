// The four gates: pure deciders over observation records. Each takes the pass before it by rvalue and moves from it only
// when it passes; after a rejection or a fault the caller still holds it, to retry or to try another set.
//
// Handing a gate a record of another candidate, set or device is our own bug and aborts. No option switches a gate off.
#pragma once

#include <memory>

#include "kernelopt/gates/decision.h"
#include "kernelopt/gates/observation.h"
#include "kernelopt/gates/passes.h"

namespace kernelopt {

// Static: the source holds only what a kernel may hold, the number formats are admitted, it compiled, the library defines
// nothing beside the kernel, and on a GPU every launch fits: registers, shared memory, threads, spills, and all programs at once where
// they wait for one another.
class Gate1 {
 public:
  // Without the compile report, for refusing a source before anything compiles it.
  static std::optional<Rejected> scan(const Subject& subject);
  static Decision<Gate1Pass> decide(const Subject& subject, const Observed<CompileReport>& report);
};

// Functional, one group against the judge's reference.
class Gate2 {
 public:
  static Decision<Gate2Pass> decide(Gate1Pass&& pass, const GroupObservation& observation);
};

// The model with a set of candidates stitched in, against eager and float64. Passes or rejects the set as a whole; which
// members are at fault is found by trying smaller sets (release.h).
class Gate3 {
 public:
  static Decision<Gate3Set> decide(StitchedSet&& set, const BaselineSound& baseline, const ModelObservation& observation);
};

// The same set's wall time against the best mode's program. A pass says "within the margin"; whether it is a win is
// outcome.h's question.
class Gate4 {
 public:
  static Decision<Gate4Set> decide(Gate3Set&& set, const RaceObservation& observation);
};

}  // namespace kernelopt
