#include "kernelopt/fusion/dependences.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "kernelopt/fusion/accesses.h"
#include "kernelopt/fusion/regions.h"

namespace kernelopt {
namespace {

void add(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

}  // namespace

std::vector<std::string> step_reads(const Step& step) {
  std::vector<std::string> names;
  for (const auto& name : step.reads) add(names, name);
  for (const auto& body : step.bodies)
    for (const auto& name : loaded_buffers(body)) add(names, name);
  return names;
}

std::vector<std::string> step_writes(const Step& step) {
  std::vector<std::string> names;
  for (const auto& name : step.writes) add(names, name);
  for (const auto& body : step.bodies)
    for (const auto& name : stored_buffers(body)) add(names, name);
  return names;
}

StepOrder::StepOrder(const Program& program) {
  struct Touch {
    int step;
    std::string buffer;
    bool write;
  };
  std::map<std::string, std::vector<Touch>> of_storage;
  const size_t count = program.steps.size();
  before_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const int step = static_cast<int>(i);
    std::set<int> found;
    std::vector<Touch> mine;
    for (const auto& name : step_reads(program.steps[i])) mine.push_back({step, name, false});
    for (const auto& name : step_writes(program.steps[i])) mine.push_back({step, name, true});
    for (const auto& touch : mine)
      for (const auto& earlier : of_storage[storage_of(program, touch.buffer)]) {
        if (!touch.write && !earlier.write) continue;
        if (touch.buffer != earlier.buffer && disjoint_views(program.buffer(touch.buffer), program.buffer(earlier.buffer))) continue;
        found.insert(earlier.step);
      }
    for (auto& touch : mine) of_storage[storage_of(program, touch.buffer)].push_back(std::move(touch));
    before_[i].assign(found.begin(), found.end());
  }
}

}  // namespace kernelopt
