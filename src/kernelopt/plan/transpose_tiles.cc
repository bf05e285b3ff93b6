#include "kernelopt/plan/transpose_tiles.h"

#include <algorithm>
#include <map>

namespace kernelopt {
namespace {

constexpr int64_t kWidest = 128;   // columns of a tile
constexpr int64_t kNarrowest = 8;  // a shorter run of 4-byte elements is less than a sector of memory
constexpr int64_t kWorthTiling = 1 << 14;  // points; a smaller nest lives in the caches

bool plain(const FlatBody& body) {
  if (body.has_reduction() || body.has_scan()) return false;
  return std::none_of(body.vars.begin(), body.vars.end(), [](const LoopVar& v) { return v.kind == VarKind::kReduce; });
}

// Elements that run along each loop: accesses whose index has coefficient 1 in it, large buffers only. Nothing for indirect ones.
struct Runs {
  std::map<std::string, int64_t> loads, stores;
};
Runs runs_of(const WorkGroup& work, const FlatBody& body) {
  int64_t points = 1;
  for (const auto& v : body.vars) points *= v.extent;
  Runs runs;
  for (const auto& f : body.ops) {
    if (f.op.code != OpCode::kLoad && f.op.code != OpCode::kStore) continue;
    const auto buffer = work.buffers.find(f.op.buffer);
    if (buffer == work.buffers.end() || buffer->second.elements < points / 4) continue;
    for (const auto& v : body.vars) {
      const auto in = affine_in(f.op.index, v.name);
      if (v.extent >= kNarrowest && in && in->coefficient == 1) {
        auto& side = f.op.code == OpCode::kLoad ? runs.loads : runs.stores;
        side[v.name] += points * dtype_bytes(f.op.dtype);
      }
    }
  }
  return runs;
}

std::string heaviest(const std::map<std::string, int64_t>& runs) {
  std::string best;
  for (const auto& [name, weight] : runs)
    if (best.empty() || weight > runs.at(best)) best = name;
  return best;
}

// Columns into which a loop of this extent can be cut: the loop itself where it is short. 0 where it cannot.
int64_t columns_of(int64_t extent) {
  if (extent <= kWidest) return extent;
  for (const int64_t columns : {64, 32})
    if (extent % columns == 0) return columns;
  return 0;
}

}  // namespace

std::optional<KernelPlan> with_transpose_tiles(const WorkGroup& work, const KernelPlan& plan) {
  KernelPlan result = plan;
  bool changed = false;
  for (auto& nest : result.nests) {
    if (nest.bodies.size() != 1) continue;
    const FlatBody* body = work.find(nest.bodies[0]);
    if (body == nullptr || !plain(*body)) continue;
    int64_t points = 1;
    for (const auto& v : body->vars) points *= v.extent;
    if (points < kWorthTiling) continue;
    const Runs runs = runs_of(work, *body);
    const std::string read = heaviest(runs.loads), written = heaviest(runs.stores);
    if (read.empty() || written.empty() || read == written) continue;
    // A load that runs along the written loop as well would lose by the tiling what another gains; the heavier side decides.
    const auto also = runs.loads.find(written);
    if (also != runs.loads.end() && also->second > runs.loads.at(read)) continue;
    const int64_t along_written = body->find_var(written)->extent, along_read = body->find_var(read)->extent;
    std::string inner = written, last = read;
    if (columns_of(along_written) == 0 || (along_written > kWidest && along_read <= kWidest)) std::swap(inner, last);
    const int64_t extent = body->find_var(inner)->extent, columns = columns_of(extent);
    if (columns == 0) continue;
    nest.anchor = body->name;
    nest.shared.clear();
    for (const auto& v : body->vars)
      if (v.name != inner && v.name != last) nest.shared.push_back(v.name);
    if (columns < extent) {
      result.rewrites.push_back({RewriteKind::kTileLoop, body->name + "/" + inner, columns});
      nest.shared.push_back(inner + "h");
    }
    nest.shared.push_back(last);
    nest.axis = VectorAxis::kShared;
    nest.transpose = false;
    changed = true;
  }
  if (!changed) return std::nullopt;
  return result;
}

}  // namespace kernelopt
