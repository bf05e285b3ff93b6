#include "kernelopt/fusion/dependences.h"

#include <algorithm>
#include <map>
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
  causes_.resize(count);
  reach_.assign(count, std::vector<bool>(count, false));
  for (size_t i = 0; i < count; ++i) {
    const int step = static_cast<int>(i);
    std::map<int, std::string> found;
    std::vector<Touch> mine;
    for (const auto& name : step_reads(program.steps[i])) mine.push_back({step, name, false});
    for (const auto& name : step_writes(program.steps[i])) mine.push_back({step, name, true});
    for (const auto& touch : mine)
      for (const auto& earlier : of_storage[storage_of(program, touch.buffer)]) {
        if (!touch.write && !earlier.write) continue;
        if (touch.buffer != earlier.buffer && disjoint_views(program.buffer(touch.buffer), program.buffer(earlier.buffer))) continue;
        found.emplace(earlier.step, earlier.buffer);
      }
    for (auto& touch : mine) of_storage[storage_of(program, touch.buffer)].push_back(std::move(touch));
    for (const auto& [earlier, buffer] : found) {
      before_[i].push_back(earlier);
      causes_[i].push_back(buffer);
      reach_[i][static_cast<size_t>(earlier)] = true;
      for (size_t k = 0; k < i; ++k)
        if (reach_[static_cast<size_t>(earlier)][k]) reach_[i][k] = true;
    }
  }
}

bool StepOrder::depends(int later, int earlier) const {
  return std::binary_search(before(later).begin(), before(later).end(), earlier);
}

const std::string& StepOrder::cause(int later, int earlier) const {
  const auto& list = before(later);
  const auto at = std::lower_bound(list.begin(), list.end(), earlier);
  KO_CHECK(at != list.end() && *at == earlier, "cause of an order that is not there");
  return causes_[static_cast<size_t>(later)][static_cast<size_t>(at - list.begin())];
}

}  // namespace kernelopt
