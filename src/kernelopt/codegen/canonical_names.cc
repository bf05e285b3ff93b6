#include "kernelopt/codegen/canonical_names.h"

#include <vector>

namespace kernelopt {

std::map<std::string, std::string> canonical_names(const Group& group) {
  std::map<std::string, std::string> result;
  std::vector<std::string> order = group.names;
  for (const auto* list : {&group.inputs, &group.outputs, &group.internals}) order.insert(order.end(), list->begin(), list->end());
  for (const auto& name : order) {
    const std::string canonical = "b" + std::to_string(result.size());
    result.emplace(name, canonical);
  }
  return result;
}

}  // namespace kernelopt
