// Which steps of a program must stay in order. Internal to fusion/.
#pragma once

#include <string>
#include <vector>

#include "kernelopt/ir/program.h"

namespace kernelopt {

// Direct dependences between steps: true, anti and output, through shared memory too (`base`, `mutates`). Stores to
// disjoint pieces of one storage are independent; everything else about one storage is ordered.
class StepOrder {
 public:
  explicit StepOrder(const Program& program);

  // Steps before `step` on which it depends directly, ascending.
  const std::vector<int>& before(int step) const { return before_.at(static_cast<size_t>(step)); }

 private:
  std::vector<std::vector<int>> before_;
};

// Names that a step reads or writes: its own lists and what its bodies say.
std::vector<std::string> step_reads(const Step& step);
std::vector<std::string> step_writes(const Step& step);

}  // namespace kernelopt
