#include "kernelopt/plan/nest_builder.h"

#include <algorithm>
#include <set>

#include "kernelopt/base/check.h"

namespace kernelopt {
namespace {

std::vector<std::string> iter_vars(const FlatBody& body) {
  std::vector<std::string> result;
  for (const auto& v : body.vars)
    if (v.kind == VarKind::kIter && v.extent > 1) result.push_back(v.name);
  if (result.empty())
    for (const auto& v : body.vars)
      if (v.kind == VarKind::kIter) result.push_back(v.name);
  return result;
}

int64_t product(const FlatBody& body, const std::vector<std::string>& names) {
  int64_t n = 1;
  for (const auto& name : names) n *= body.find_var(name)->extent;
  return n;
}

// Estimated vector instructions of the nest, by the lowered accesses.
double estimate(const WorkGroup& work, const NestPlan& nest, int lanes) {
  KernelPlan plan;
  plan.lanes = lanes;
  plan.nests = {nest};
  WorkGroup part;
  part.buffers = work.buffers;
  part.storage_root = work.storage_root;
  for (const auto& name : nest.bodies) part.bodies.push_back(*work.find(name));
  // Buffers that other nests read must not look dead here.
  for (auto& [name, buffer] : part.buffers) buffer.external = true;
  const auto lowered = lower_work(part, plan);
  if (!lowered.ok()) return 1e30;
  double total = 0;
  for (const auto& phase : lowered->nests[0].phases) {
    double points = 1;
    for (const auto& v : phase.body.vars) points *= static_cast<double>(v.extent);
    int64_t extent = 1;
    if (!phase.vector_loop.empty()) extent = phase.body.find_var(phase.vector_loop)->extent;
    const double filled = phase.vector_loop.empty() ? 1.0 / lanes : static_cast<double>(extent) / static_cast<double>((extent + lanes - 1) / lanes * lanes);
    double cost = 0.3 * static_cast<double>(phase.body.ops.size());
    for (const auto& f : phase.body.ops) {
      if (f.op.code != OpCode::kLoad && f.op.code != OpCode::kStore && f.op.code != OpCode::kStoreReduction) continue;
      if (lowered->buffers.at(f.op.buffer).place == Place::kRegister) continue;
      double weight = 1;
      if (f.op.code == OpCode::kStoreReduction) {
        int64_t reduce = 1;
        for (const auto& v : phase.body.vars)
          if (v.kind == VarKind::kReduce) reduce *= v.extent;
        weight = 1.0 / static_cast<double>(reduce);
      }
      double access = phase.vector_loop.empty() ? 1.0 : access_cost(f.op.index, phase.vector_loop, lanes, f.op.code == OpCode::kStore);
      if (nest.transpose && f.op.code == OpCode::kLoad) {
        const auto row = affine_in(f.op.index, lowered->nests[0].shared[lowered->nests[0].shared.size() - 2].name);
        if (row && row->coefficient == 1 && f.predicate == kNoValue) access = std::min(access, 6.0);
      }
      cost += weight * access;
    }
    // Joining lanes after each short reduction along the lanes.
    if (phase.body.has_reduction() && !phase.vector_loop.empty() && phase.body.find_var(phase.vector_loop)->kind == VarKind::kReduce) {
      int64_t reduce = 1;
      for (const auto& v : phase.body.vars)
        if (v.kind == VarKind::kReduce) reduce *= v.extent;
      cost += 12.0 * lanes / static_cast<double>(reduce);
    }
    // A scan along the lanes needs log2(lanes) steps.
    if (phase.body.has_scan() && !phase.vector_loop.empty() && phase.body.find_var(phase.vector_loop)->kind == VarKind::kReduce) cost *= 3;
    total += points / lanes / filled * cost;
  }
  return total;
}

}  // namespace

std::optional<NestPlan> join_bodies(const WorkGroup& work, const std::vector<std::string>& bodies, int64_t wanted) {
  std::optional<NestPlan> best;
  int64_t best_iterations = 0;
  std::set<std::vector<int64_t>> tried;  // bodies with equal loops make equal anchors
  for (const auto& anchor : bodies) {
    const FlatBody& body = *work.find(anchor);
    std::vector<std::string> shared = iter_vars(body);
    std::vector<int64_t> extents;
    for (const auto& name : shared) extents.push_back(body.find_var(name)->extent);
    if (!tried.insert(extents).second) continue;
    for (; !shared.empty(); shared.pop_back()) {
      const int64_t iterations = product(body, shared);
      if (iterations <= best_iterations) break;
      NestPlan nest;
      nest.bodies = bodies;
      nest.anchor = anchor;
      nest.shared = shared;
      if (!check_nest(work, nest).ok()) continue;
      best = nest;
      best_iterations = iterations;
      break;
    }
  }
  if (best && best_iterations < wanted && bodies.size() > 1) return std::nullopt;
  if (!best && bodies.size() == 1) {
    NestPlan nest;
    nest.bodies = bodies;
    nest.anchor = bodies[0];
    nest.shared = {};
    if (check_nest(work, nest).ok()) return nest;
  }
  return best;
}

std::vector<NestPlan> axis_choices(const WorkGroup& work, const NestPlan& nest, int lanes, double worst) {
  std::vector<std::pair<double, NestPlan>> choices;
  const auto add = [&](NestPlan choice) {
    const double cost = estimate(work, choice, lanes);
    if (cost < 1e29) choices.emplace_back(cost, std::move(choice));
  };
  NestPlan inner = nest;
  inner.axis = VectorAxis::kInner;
  add(inner);
  for (size_t k = 0; k < nest.shared.size(); ++k) {
    NestPlan shared = nest;
    shared.axis = VectorAxis::kShared;
    const std::string v = shared.shared[k];
    shared.shared.erase(shared.shared.begin() + static_cast<ptrdiff_t>(k));
    shared.shared.push_back(v);
    add(shared);
    // Square tiles, with each other shared loop as the rows.
    for (size_t r = 0; r + 1 < shared.shared.size(); ++r) {
      NestPlan square = shared;
      square.transpose = true;
      const std::string row = square.shared[r];
      square.shared.erase(square.shared.begin() + static_cast<ptrdiff_t>(r));
      square.shared.insert(square.shared.end() - 1, row);
      add(square);
    }
  }
  std::stable_sort(choices.begin(), choices.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NestPlan> result;
  for (auto& [cost, choice] : choices)
    if (cost <= worst * choices[0].first) result.push_back(std::move(choice));
  if (result.empty()) {
    NestPlan scalar = nest;
    scalar.axis = VectorAxis::kScalar;
    result.push_back(scalar);
  }
  return result;
}

bool reduces_across_lanes(const WorkGroup& work, const NestPlan& nest) {
  if (nest.axis != VectorAxis::kShared) return false;
  return std::any_of(nest.bodies.begin(), nest.bodies.end(), [&](const std::string& name) {
    const FlatBody* body = work.find(name);
    return body != nullptr && (body->has_reduction() || body->has_scan());
  });
}

int64_t parallel_iterations(const WorkGroup& work, const NestPlan& nest, int lanes) {
  const FlatBody* anchor = work.find(nest.anchor);
  KO_CHECK(anchor != nullptr, "anchor of a nest");
  int64_t n = 1;
  for (size_t k = 0; k < nest.shared.size(); ++k) {
    int64_t extent = anchor->find_var(nest.shared[k])->extent;
    if (nest.axis == VectorAxis::kShared && k + 1 == nest.shared.size()) extent = (extent + lanes * nest.unroll - 1) / (lanes * nest.unroll);
    n *= extent;
  }
  return n;
}

std::vector<NestPlan> build_nests(const WorkGroup& work, const NestOptions& options, int lanes, JoinMemory* memory) {
  const auto join = [&](const std::vector<std::string>& names, int64_t wanted) -> std::optional<NestPlan> {
    if (memory == nullptr) return join_bodies(work, names, wanted);
    const auto key = std::pair{names, wanted};
    const auto at = memory->find(key);
    if (at != memory->end()) return at->second;
    return (*memory)[key] = join_bodies(work, names, wanted);
  };
  std::vector<NestPlan> nests;
  size_t first = 0;
  while (first < work.bodies.size()) {
    std::vector<std::string> names{work.bodies[first].name};
    auto nest = join(names, 1);
    if (!nest) {
      NestPlan alone;
      alone.bodies = names;
      alone.anchor = names[0];
      nest = alone;
    }
    size_t last = first;
    while (options.fuse && last + 1 < work.bodies.size()) {
      names.push_back(work.bodies[last + 1].name);
      const auto joined = join(names, options.wanted_parallel);
      if (!joined) {
        names.pop_back();
        break;
      }
      nest = joined;
      ++last;
    }
    const auto choices = axis_choices(work, *nest, lanes, 2.0);
    NestPlan chosen = choices[std::min<size_t>(static_cast<size_t>(options.axis_rank), choices.size() - 1)];
    // Long bodies need no copies side by side: they would only spill.
    size_t longest = 1;
    for (const auto& name : names) {
      const FlatBody* body = work.find(name);
      if (body != nullptr) longest = std::max(longest, body->ops.size());
    }
    const bool long_tile = options.long_tiles && reduces_across_lanes(work, chosen);
    chosen.unroll = long_tile ? kLongTile : options.unroll;
    while (chosen.unroll > 1 && static_cast<size_t>(chosen.unroll) * longest > (long_tile ? 480 : 240)) chosen.unroll /= 2;
    chosen.stream = options.stream;
    nests.push_back(std::move(chosen));
    first = last + 1;
  }
  return nests;
}

}  // namespace kernelopt
