#include "kernelopt/fusion/accesses.h"

#include <algorithm>

namespace kernelopt {

std::vector<Access> accesses(const Body& body) {
  std::vector<Access> result;
  const auto symbols = symbol_extents(body);
  for_each_op(body.block, [&](const Op& op) {
    const bool store = op.code == OpCode::kStore || op.code == OpCode::kStoreReduction;
    if (!store && op.code != OpCode::kLoad && op.code != OpCode::kLoadSeed) return;
    Access access{op.buffer, op.code == OpCode::kLoadSeed ? Expr(std::get<int64_t>(op.value)) : op.index, store, op.atomic_add, false};
    for (const auto& name : access.index.variables())
      access.indirect |= std::none_of(body.vars.begin(), body.vars.end(), [&](const LoopVar& var) { return var.name == name; });
    result.push_back(std::move(access));
  });
  return result;
}

std::map<std::string, int64_t> symbol_extents(const Body& body) {
  std::map<std::string, int64_t> result;
  for_each_op(body.block, [&](const Op& op) {
    if (op.code == OpCode::kIndirect && op.size.is_const()) result[op.symbol] = op.size.const_value();
  });
  return result;
}

bool disjoint_views(const Buffer& a, const Buffer& b) {
  if (a.size.size() != b.size.size() || a.dtype != b.dtype) return false;
  const Buffer& low = a.offset <= b.offset ? a : b;
  const Buffer& high = a.offset <= b.offset ? b : a;
  int64_t distance = high.offset - low.offset;
  if (low.storage_elements() <= distance) return true;  // one ends before the other begins
  // Pieces along one dimension: equal strides wherever a stride means something, and a distance of whole strides of that
  // dimension that passes the lower piece without reaching the next outer stride.
  std::vector<size_t> order;
  for (size_t d = 0; d < a.size.size(); ++d) {
    const bool moves = a.size[d] > 1 || b.size[d] > 1;
    if (!moves) continue;
    if (a.size[d] > 1 && b.size[d] > 1 && a.stride[d] != b.stride[d]) return false;
    order.push_back(d);
  }
  const auto stride = [&](size_t d) { return a.size[d] > 1 ? a.stride[d] : b.stride[d]; };
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) { return stride(x) > stride(y); });
  int64_t outer_stride = 0;  // 0: none
  for (const size_t d : order) {
    const int64_t step = stride(d);
    if (step <= 0) return false;
    const int64_t digit = distance / step;
    if (digit > 0) {
      const bool passes = digit >= low.size[d];
      const bool fits = outer_stride == 0 || (digit + high.size[d]) * step <= outer_stride;
      // What is inside must stay inside one step, in both pieces.
      int64_t inner_reach = distance % step;
      for (const size_t e : order)
        if (stride(e) < step) inner_reach += (std::max(a.size[e], b.size[e]) - 1) * stride(e);
      return passes && fits && distance % step == 0 && inner_reach < step;
    }
    outer_stride = step;
  }
  return false;
}

}  // namespace kernelopt
