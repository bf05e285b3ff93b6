#include "kernelopt/plan/challenges.h"

#include <algorithm>
#include <set>

#include "kernelopt/plan/convolution.h"
#include "kernelopt/plan/product.h"

namespace kernelopt {

std::vector<std::vector<int>> challenge_sets(const Program& program) {
  std::vector<std::vector<int>> result;
  std::set<int> taken;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    if (step.kind != StepKind::kExtern || step.bodies.empty() || step.is_loops()) continue;
    const int number = static_cast<int>(i);
    std::vector<int> steps;
    if (step.extern_call.convolution) steps = convolution_steps(program, number);
    else if (match_product(program, step.bodies[0])) steps = {number};
    // A neighbour belongs to the call that comes first.
    std::erase_if(steps, [&](int member) { return member != number && taken.count(member) > 0; });
    if (steps.empty()) continue;
    taken.insert(steps.begin(), steps.end());
    result.push_back(std::move(steps));
  }
  return result;
}

}  // namespace kernelopt
