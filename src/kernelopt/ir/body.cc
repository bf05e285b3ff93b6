#include "kernelopt/ir/body.h"

#include <type_traits>

namespace kernelopt {

double scalar_as_double(const Scalar& value) {
  return std::visit([](auto number) { return static_cast<double>(number); }, value);
}

int64_t Body::iter_elements() const {
  int64_t count = 1;
  for (const auto& var : vars)
    if (var.kind == VarKind::kIter) count *= var.extent;
  return count;
}

int64_t Body::reduce_elements() const {
  int64_t count = 1;
  for (const auto& var : vars)
    if (var.kind == VarKind::kReduce) count *= var.extent;
  return count;
}

bool Body::has_reduction_vars() const {
  for (const auto& var : vars)
    if (var.kind == VarKind::kReduce) return true;
  return false;
}

}  // namespace kernelopt
