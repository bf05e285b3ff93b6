#include "kernelopt/plan/lower.h"

#include <algorithm>

#include "kernelopt/base/check.h"

namespace kernelopt {
namespace {

Error illegal(const std::string& what) { return Error(ErrorCode::kUnsupported, what); }

bool is_access(const Op& op) {
  return op.code == OpCode::kLoad || op.code == OpCode::kStore || op.code == OpCode::kStoreReduction;
}
bool is_store(const Op& op) { return op.code == OpCode::kStore || op.code == OpCode::kStoreReduction; }

std::vector<LoopVar> inner_vars(const FlatBody& body, const std::vector<LoopVar>& shared) {
  std::vector<LoopVar> result;
  for (const auto& v : body.vars)
    if (std::none_of(shared.begin(), shared.end(), [&](const LoopVar& s) { return s.name == v.name; })) result.push_back(v);
  return result;
}

class NestLowering {
 public:
  NestLowering(const WorkGroup& work, const NestPlan& plan, size_t number) : work_(work), plan_(plan), number_(number) {}

  // Bodies of the nest with the shared loops renamed s<k>; inner loops keep names unique to their body.
  Status align_shared(LoweredNest& nest, std::vector<FlatBody>& bodies) {
    size_t anchor = bodies.size();
    for (size_t i = 0; i < bodies.size(); ++i)
      if (bodies[i].name == plan_.anchor) anchor = i;
    if (anchor == bodies.size()) return illegal("anchor " + plan_.anchor + " is not in its nest");
    for (size_t k = 0; k < plan_.shared.size(); ++k) {
      const LoopVar* v = bodies[anchor].find_var(plan_.shared[k]);
      if (v == nullptr || v->kind != VarKind::kIter) return illegal("shared loop " + plan_.shared[k] + " is no iteration loop of " + plan_.anchor);
      nest.shared.push_back({"s" + std::to_string(number_) + "_" + std::to_string(k), v->extent, VarKind::kIter});
    }
    for (size_t k = 0; k < plan_.shared.size(); ++k) rename_var(bodies[anchor], plan_.shared[k], nest.shared[k].name);
    for (size_t i = 0; i < bodies.size(); ++i) {
      // Names of inner loops must not collide between bodies.
      for (auto& v : bodies[i].vars)
        if (std::none_of(nest.shared.begin(), nest.shared.end(), [&](const LoopVar& s) { return s.name == v.name; }))
          rename_var(bodies[i], std::string(v.name), "n" + std::to_string(number_) + "_" + std::to_string(i) + "_" + v.name);
    }
    std::vector<bool> done(bodies.size(), false);
    done[anchor] = true;
    std::string reason;
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t i = 0; i < bodies.size(); ++i) {
        if (done[i]) continue;
        for (size_t j = 0; j < bodies.size() && !done[i]; ++j) {
          if (!done[j]) continue;
          FlatBody trial = bodies[i];
          const auto result = align(bodies[j], nest.shared, trial, false);
          if (result.ok) {
            bodies[i] = std::move(trial);
            done[i] = progress = true;
          }
        }
      }
      if (progress) continue;
      // Bodies without common memory: loops with equal extents in the same order.
      for (size_t i = 0; i < bodies.size() && !progress; ++i) {
        if (done[i]) continue;
        FlatBody trial = bodies[i];
        size_t k = 0;
        for (size_t v = 0; v < trial.vars.size() && k < nest.shared.size(); ++v)
          if (trial.vars[v].kind == VarKind::kIter && trial.vars[v].extent == nest.shared[k].extent) {
            rename_var(trial, std::string(trial.vars[v].name), nest.shared[k].name);
            ++k;
          }
        if (k == nest.shared.size()) {
          bodies[i] = std::move(trial);
          done[i] = progress = true;
        }
      }
    }
    for (size_t i = 0; i < bodies.size(); ++i)
      if (!done[i]) return illegal("the loops of " + bodies[i].name + " do not match those of " + plan_.anchor);
    for (const auto& body : bodies)
      for (const auto& s : nest.shared) {
        const LoopVar* v = body.find_var(s.name);
        if (v == nullptr || v->kind != VarKind::kIter || v->extent != s.extent) return illegal("shared loop missing in " + body.name);
      }
    return ok_status();
  }

  // Every buffer that is written in the nest and touched by two bodies must be split by the shared loops alike.
  Status check_dependences(const LoweredNest& nest, const std::vector<FlatBody>& bodies) {
    std::map<std::string, std::vector<size_t>> touching;
    std::map<std::string, bool> written, read;
    for (size_t i = 0; i < bodies.size(); ++i)
      for (const auto& f : bodies[i].ops) {
        if (!is_access(f.op)) continue;
        auto& list = touching[f.op.buffer];
        if (list.empty() || list.back() != i) list.push_back(i);
        written[f.op.buffer] = written[f.op.buffer] || is_store(f.op);
        read[f.op.buffer] = read[f.op.buffer] || !is_store(f.op);
        if (f.op.code == OpCode::kStore && f.op.atomic_add && bodies.size() > 1)
          return illegal("an atomic addition shares a nest with other steps");
      }
    for (const auto& [name, list] : touching) {
      for (const auto& [other, other_list] : touching) {
        if (other == name || !written[name]) continue;
        const auto root = [&](const std::string& n) {
          const auto at = work_.storage_root.find(n);
          return at == work_.storage_root.end() ? n : at->second;
        };
        // Pieces of one storage that are all only written do not overlap.
        if (root(name) == root(other) && (read[name] || read[other])) return illegal(name + " and " + other + " share storage");
      }
      if (!written[name]) continue;
      // One body alone may still touch an element in two iterations (in-place reads elsewhere); so it is checked as well.
      if (list.size() < 2 && !read[name]) continue;
      std::vector<Slot> slots;
      const FlatBody* writer = nullptr;
      for (size_t i : list)
        for (const auto& f : bodies[i].ops) {
          if (writer != nullptr || !is_access(f.op) || f.op.buffer != name || !is_store(f.op)) continue;
          writer = &bodies[i];
          for (const auto& s : nest.shared) {
            if (s.extent == 1) {
              slots.push_back({1, 1});
              continue;
            }
            const auto slot = slot_of(f.op.index, s, writer->extents());
            if (!slot) return illegal(name + " is not divided by the shared loops");
            slots.push_back(*slot);
          }
        }
      for (size_t i : list) {
        const auto extents = bodies[i].extents();
        for (const auto& f : bodies[i].ops) {
          if (!is_access(f.op) || f.op.buffer != name) continue;
          for (const auto& variable : f.op.index.variables())
            if (!extents.count(variable)) return illegal(name + " is written and indexed indirectly in one nest");
          for (size_t k = 0; k < nest.shared.size(); ++k) {
            if (nest.shared[k].extent == 1) continue;
            const Expr digit = simplify(Expr::mod(Expr::floordiv(f.op.index, Expr(slots[k].stride)), Expr(slots[k].extent)), extents);
            if (!(digit == Expr::var(nest.shared[k].name)))
              return illegal(name + " is written and read in different iterations of the shared loops");
          }
        }
      }
      slots_[name] = slots;
    }
    return ok_status();
  }

  // Joins bodies that run over the same inner loops.
  void make_phases(LoweredNest& nest, std::vector<FlatBody> bodies) {
    for (auto& body : bodies) {
      bool joined = false;
      if (plan_.merge) {
        for (size_t back = nest.phases.size(); back-- > 0;) {
          FlatBody merged;
          if (try_merge(nest.phases[back].body, body, nest.shared, merged)) {
            nest.phases[back].body = std::move(merged);
            joined = true;
            break;
          }
          if (depends(nest.phases[back].body, body)) break;
        }
      }
      if (!joined) {
        LoweredPhase phase;
        phase.body = std::move(body);
        nest.phases.push_back(std::move(phase));
      }
    }
  }

  const std::map<std::string, std::vector<Slot>>& slots() const { return slots_; }

 private:
  bool depends(const FlatBody& a, const FlatBody& b) const {
    for (const auto& f : a.ops) {
      if (!is_access(f.op)) continue;
      for (const auto& g : b.ops)
        if (is_access(g.op) && g.op.buffer == f.op.buffer && (is_store(f.op) || is_store(g.op))) return true;
    }
    return false;
  }

  bool try_merge(const FlatBody& first, const FlatBody& second, const std::vector<LoopVar>& shared, FlatBody& merged) const {
    const bool scans = first.has_scan() || second.has_scan();
    if (scans && (first.has_reduction() || second.has_reduction())) return false;
    for (const auto* body : {&first, &second})
      for (const auto& f : body->ops)
        if (f.op.code == OpCode::kStore && f.op.atomic_add) return false;
    FlatBody a = first, b = second;
    const auto a_inner = inner_vars(a, shared), b_inner = inner_vars(b, shared);
    const auto count = [](const std::vector<LoopVar>& vars) {
      int64_t n = 1;
      for (const auto& v : vars) n *= v.extent;
      return n;
    };
    if (count(a_inner) != count(b_inner)) return false;
    const auto a_names = a_inner;
    bool aligned = align(a, a_names, b, true).ok && inner_vars(b, shared).size() == a_names.size();
    if (!aligned) {
      b = second;
      const auto b_names = b_inner;
      aligned = align(b, b_names, a, true).ok && inner_vars(a, shared).size() == b_names.size();
    }
    if (!aligned) {
      a = first;
      b = second;
      if (a_inner.size() != b_inner.size()) return false;
      for (size_t i = 0; i < a_inner.size(); ++i)
        if (a_inner[i].extent != b_inner[i].extent) return false;
      for (size_t i = 0; i < a_inner.size(); ++i) rename_var(b, b_inner[i].name, a_inner[i].name);
    }
    // A scan's loop must have stayed whole: what runs before or after it then sees its points in their order, one at a time.
    for (const auto* body : {&a, &b}) {
      const auto is_reduce = [](const LoopVar& v) { return v.kind == VarKind::kReduce; };
      if (body->has_scan() && std::count_if(body->vars.begin(), body->vars.end(), is_reduce) != 1) return false;
    }
    // Loops of a reduction must be the same where both reduce.
    const bool a_reduces = a.has_reduction() || a.has_scan(), b_reduces = b.has_reduction() || b.has_scan();
    for (auto& v : a.vars) {
      const LoopVar* other = b.find_var(v.name);
      if (other == nullptr || other->extent != v.extent) return false;
      if (a_reduces && b_reduces && other->kind != v.kind) return false;
      if (!a_reduces && b_reduces) v.kind = other->kind;
    }
    // A body without a reduction whose loops become reduction loops runs inside them: its stores are per point already.
    const auto late = after_reduction(a);
    std::map<std::string, std::vector<const FlatOp*>> stored;
    for (const auto& f : a.ops)
      if (is_store(f.op)) stored[f.op.buffer].push_back(&f);
    const auto extents = a.extents();
    const auto same = [&](const Expr& x, const Expr& y) { return simplify(x - y, extents).is_const(0); };
    for (const auto& g : b.ops) {
      if (!is_access(g.op)) continue;
      if (const auto at = stored.find(g.op.buffer); at != stored.end()) {
        for (const FlatOp* store : at->second) {
          if (store->op.code == OpCode::kStoreReduction) return false;
          if (!is_store(g.op) && late[static_cast<size_t>(store->op.args[0])]) return false;
          if (store->predicate != kNoValue || !same(store->op.index, g.op.index)) return false;
        }
        if (at->second.size() != 1) return false;
      }
      if (is_store(g.op))
        for (const auto& f : a.ops)
          if (f.op.code == OpCode::kLoad && f.op.buffer == g.op.buffer &&
              (g.op.code == OpCode::kStoreReduction || !same(f.op.index, g.op.index)))
            return false;
    }
    std::map<std::string, ValueId> value_of;
    for (const auto& [name, stores] : stored) value_of[name] = stores[0]->op.args[0];
    merged = a;
    // Loads of what the first body just stored take the value itself, rounded as memory would round integers.
    std::vector<FlatOp> ops = b.ops;
    merged.name = a.name + "+" + b.name;
    merged.vars = a.vars;
    std::map<ValueId, ValueId> forwarded;
    std::vector<FlatOp> rest;
    for (auto& g : ops) {
      if (g.op.code == OpCode::kLoad) {
        const auto at = value_of.find(g.op.buffer);
        if (at != value_of.end()) {
          ValueId value = at->second;
          const FlatOp* def = merged.definition(value);
          const DType wanted = g.op.dtype;
          if (def->op.dtype != wanted) {
            FlatOp convert;
            convert.op.code = OpCode::kToDType;
            convert.op.src_dtype = def->op.dtype;
            convert.op.dtype = wanted;
            convert.op.args = {value};
            value = convert.op.id = merged.fresh_id();
            merged.ops.push_back(convert);
          }
          forwarded[g.op.id] = value;
          continue;
        }
      }
      rest.push_back(std::move(g));
    }
    // append_ops needs ids of its own for forwarded values: give them placeholders.
    std::map<ValueId, ValueId> ids;
    std::map<std::string, Expr> symbols;
    for (FlatOp g : rest) {
      const auto map_id = [&](ValueId id) {
        if (const auto f = forwarded.find(id); f != forwarded.end()) return f->second;
        return ids.at(id);
      };
      for (auto& arg : g.op.args) arg = map_id(arg);
      if (g.predicate != kNoValue) g.predicate = map_id(g.predicate);
      if (g.op.code == OpCode::kIndirect) {
        const std::string fresh = g.op.symbol + "_" + std::to_string(merged.next_id);
        symbols[g.op.symbol] = Expr::var(fresh);
        g.op.symbol = fresh;
      }
      if (!symbols.empty()) {
        g.op.index = g.op.index.substitute(symbols);
        g.op.size = g.op.size.substitute(symbols);
      }
      if (g.op.id != kNoValue) {
        const ValueId id = merged.fresh_id();
        ids[g.op.id] = id;
        g.op.id = id;
      }
      merged.ops.push_back(std::move(g));
    }
    // A reduction's value must not feed the loop it comes from.
    return true;
  }

  const WorkGroup& work_;
  const NestPlan& plan_;
  size_t number_;
  std::map<std::string, std::vector<Slot>> slots_;
};

// The index within one shared iteration's part: the digits of the shared loops are taken out, largest stride first.
Expr local_index(const Expr& index, std::vector<Slot> slots, const std::map<std::string, int64_t>& extents) {
  std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) { return a.stride > b.stride; });
  Expr result = index;
  for (const auto& slot : slots) {
    if (slot.extent == 1) continue;
    const Expr low = Expr::mod(result, Expr(slot.stride));
    const Expr high = Expr::floordiv(result, Expr(slot.stride * slot.extent));
    result = simplify(high * Expr(slot.stride) + low, extents);
  }
  return result;
}

void choose_loops(LoweredNest& nest, LoweredPhase& phase, int lanes) {
  const auto inner = inner_vars(phase.body, nest.shared);
  std::vector<std::string> names;
  for (const auto& v : inner) names.push_back(v.name);
  phase.unroll = nest.unroll;
  switch (nest.axis) {
    case VectorAxis::kScalar: break;
    case VectorAxis::kShared: phase.vector_loop = nest.shared.back().name; break;
    case VectorAxis::kInner:
      if (!names.empty()) phase.vector_loop = best_vector_loop(phase.body, names, lanes);
      break;
  }
  // Iteration loops, then reduction loops; the vector loop innermost of its kind.
  const bool reduces = phase.body.has_reduction() || phase.body.has_scan();
  for (const bool reduce_round : {false, true}) {
    for (const auto& v : inner) {
      const bool is_reduce = reduces && v.kind == VarKind::kReduce;
      if (is_reduce == reduce_round && v.name != phase.vector_loop) phase.loops.push_back(v.name);
    }
    for (const auto& v : inner) {
      const bool is_reduce = reduces && v.kind == VarKind::kReduce;
      if (is_reduce == reduce_round && v.name == phase.vector_loop) phase.loops.push_back(v.name);
    }
  }
}

Status check_phase(const LoweredPhase& phase) {
  // Values of a reduction must not feed ops inside its loops (stores per point after a reduction need another phase).
  const auto late = after_reduction(phase.body);
  for (const auto& f : phase.body.ops) {
    const bool uses_late = std::any_of(f.op.args.begin(), f.op.args.end(), [&](ValueId a) { return late[static_cast<size_t>(a)]; });
    if (!uses_late) continue;
    if (f.op.code == OpCode::kReduction) return illegal("a reduction of a reduction in one loop");
    if (f.op.code == OpCode::kStore || f.op.code == OpCode::kLoad || f.op.code == OpCode::kIndirect)
      for (const auto& v : phase.body.vars)
        if (v.kind == VarKind::kReduce && f.op.index.depends_on(v.name)) return illegal("a reduction's result is stored per point");
  }
  return ok_status();
}

// Square tiles need one phase of plain ops over shared loops only.
Status check_square(const LoweredNest& nest, const LoweredPhase& phase) {
  if (nest.axis != VectorAxis::kShared || nest.shared.size() < 2 || nest.phases.size() != 1 || !phase.loops.empty())
    return illegal("square tiles need two shared loops and nothing inside them");
  bool crosswise = false;
  for (const auto& f : phase.body.ops) {
    if (f.op.code == OpCode::kIndirect || f.op.code == OpCode::kCheckBounds || f.op.atomic_add || f.op.code == OpCode::kReduction ||
        f.op.code == OpCode::kScan)
      return illegal("square tiles of other than plain ops");
    if (f.op.code != OpCode::kLoad || f.predicate != kNoValue) continue;
    const auto row = affine_in(f.op.index, nest.shared[nest.shared.size() - 2].name), lane = affine_in(f.op.index, nest.shared.back().name);
    crosswise = crosswise || (row && lane && row->coefficient == 1 && lane->coefficient > 1);
  }
  if (!crosswise) return illegal("square tiles without a load that runs across");
  return ok_status();
}

}  // namespace

Result<LoweredKernel> lower_work(WorkGroup work, const KernelPlan& plan) {
  LoweredKernel kernel;
  kernel.threads = plan.threads;
  kernel.lanes = plan.lanes;
  kernel.math = plan.math;
  // Nests partition the bodies in order.
  size_t next = 0;
  for (const auto& nest : plan.nests)
    for (const auto& name : nest.bodies) {
      if (next >= work.bodies.size() || work.bodies[next].name != name) return illegal("the nests do not list the bodies in order");
      ++next;
    }
  if (next != work.bodies.size()) return illegal("a body is in no nest");

  std::vector<std::map<std::string, std::vector<Slot>>> slots;
  size_t first = 0;
  for (size_t n = 0; n < plan.nests.size(); ++n) {
    const NestPlan& nest_plan = plan.nests[n];
    LoweredNest nest;
    nest.plan = nest_plan;
    nest.axis = nest_plan.axis;
    nest.unroll = nest_plan.unroll;
    std::vector<FlatBody> bodies(work.bodies.begin() + static_cast<ptrdiff_t>(first),
                                 work.bodies.begin() + static_cast<ptrdiff_t>(first + nest_plan.bodies.size()));
    first += nest_plan.bodies.size();
    NestLowering lowering(work, nest_plan, n);
    KO_RETURN_IF_ERROR(lowering.align_shared(nest, bodies));
    KO_RETURN_IF_ERROR(lowering.check_dependences(nest, bodies));
    if (nest.axis == VectorAxis::kShared && nest.shared.empty()) return illegal("no shared loop to vectorize");
    lowering.make_phases(nest, std::move(bodies));
    slots.push_back(lowering.slots());
    kernel.nests.push_back(std::move(nest));
  }

  // Stores that merging made superfluous.
  std::map<std::string, std::set<size_t>> touched_by;
  std::map<std::string, bool> is_read;
  for (size_t n = 0; n < kernel.nests.size(); ++n)
    for (const auto& phase : kernel.nests[n].phases)
      for (const auto& f : phase.body.ops) {
        if (f.op.code == OpCode::kLoadSeed) return illegal("op load_seed");
        if (!is_access(f.op)) continue;
        touched_by[f.op.buffer].insert(n);
        is_read[f.op.buffer] = is_read[f.op.buffer] || f.op.code == OpCode::kLoad;
      }
  for (auto& nest : kernel.nests)
    for (auto& phase : nest.phases) {
      auto& ops = phase.body.ops;
      ops.erase(std::remove_if(ops.begin(), ops.end(),
                               [&](const FlatOp& f) { return is_store(f.op) && !work.buffers.at(f.op.buffer).external && !is_read[f.op.buffer]; }),
                ops.end());
      eliminate_common(phase.body);
      eliminate_dead(phase.body);
    }
  for (auto& nest : kernel.nests)
    nest.phases.erase(std::remove_if(nest.phases.begin(), nest.phases.end(), [](const LoweredPhase& p) { return p.body.ops.empty(); }), nest.phases.end());

  // Places.
  for (const auto& [name, nests] : touched_by) {
    const WorkBuffer& info = work.buffers.at(name);
    LoweredBuffer buffer;
    buffer.dtype = info.dtype;
    buffer.elements = info.elements;
    buffer.aliased = work.storage_root.count(name) > 0;
    for (const auto& [other, root] : work.storage_root) buffer.aliased = buffer.aliased || root == name;
    for (const auto& nest : kernel.nests)
      for (const auto& phase : nest.phases) {
        buffer.read = buffer.read || phase.body.reads(name);
        buffer.written = buffer.written || phase.body.writes(name);
        for (const auto& f : phase.body.ops) buffer.read = buffer.read || (f.op.buffer == name && f.op.atomic_add);
      }
    if (!buffer.read && !buffer.written) continue;
    buffer.place = info.external ? Place::kMemory : Place::kScratch;
    const size_t n = *nests.begin();
    if (nests.size() == 1 && buffer.written && !info.external && slots[n].count(name)) {
      buffer.nest = n;
      int64_t divided = 1;
      for (const auto& slot : slots[n].at(name)) divided *= slot.extent;
      buffer.place = Place::kLocal;
      buffer.elements = (info.elements + divided - 1) / divided;
      int64_t reach = 0;
      bool bounded = true;
      for (auto& phase : kernel.nests[n].phases) {
        const auto extents = phase.body.extents();
        for (auto& f : phase.body.ops) {
          if (!is_access(f.op) || f.op.buffer != name) continue;
          f.op.index = local_index(f.op.index, slots[n].at(name), extents);
          const auto range = bounds(f.op.index, [&](const std::string& v) -> std::optional<Interval> {
            const auto at = extents.find(v);
            if (at == extents.end()) return std::nullopt;
            return Interval{0, at->second - 1};
          });
          if (!range || range->low < 0) bounded = false;
          else reach = std::max(reach, range->high + 1);
        }
      }
      if (!bounded) return illegal("the local part of " + name + " has no bounds");
      buffer.elements = reach;
      if (reach == 1) buffer.place = Place::kRegister;
    }
    kernel.buffers[name] = buffer;
  }

  // Values that leave the kernel and are read again in the same shared iteration stay in registers as well.
  for (size_t n = 0; n < kernel.nests.size(); ++n) {
    auto& nest = kernel.nests[n];
    if (!nest.plan.keep_reduced_in_registers) continue;
    for (const auto& [name, slot_list] : slots[n]) {
      const auto found = kernel.buffers.find(name);
      if (found == kernel.buffers.end() || found->second.place == Place::kLocal || found->second.place == Place::kRegister) continue;
      bool single = true, seen_write = false, write_first = true;
      for (auto& phase : nest.phases) {
        const auto extents = phase.body.extents();
        bool loads = false;
        for (auto& f : phase.body.ops) {
          if (!is_access(f.op) || f.op.buffer != name) continue;
          single = single && local_index(f.op.index, slot_list, extents).is_const();
          single = single && f.predicate == kNoValue;
          if (is_store(f.op)) seen_write = true;
          else if (!seen_write) write_first = false;
          loads = loads || !is_store(f.op);
        }
      }
      if (!single || !seen_write || !write_first) continue;
      const std::string copy = name + "@r";
      bool used = false;
      for (auto& phase : nest.phases) {
        std::vector<FlatOp> ops;
        for (auto& f : phase.body.ops) {
          if (is_access(f.op) && f.op.buffer == name) {
            FlatOp twin = f;
            twin.op.buffer = copy;
            twin.op.index = Expr(0);
            if (is_store(f.op)) ops.push_back(f);
            else used = true;
            ops.push_back(std::move(twin));
            continue;
          }
          ops.push_back(f);
        }
        phase.body.ops = std::move(ops);
      }
      LoweredBuffer twin;
      twin.dtype = compute_dtype(found->second.dtype);
      twin.place = Place::kRegister;
      twin.elements = 1;
      twin.read = used;
      twin.written = true;
      twin.nest = n;
      kernel.buffers[copy] = twin;
    }
  }

  for (auto& nest : kernel.nests)
    for (auto& phase : nest.phases) {
      choose_loops(nest, phase, plan.lanes);
      KO_RETURN_IF_ERROR(check_phase(phase));
      if (nest.plan.transpose) KO_RETURN_IF_ERROR(check_square(nest, phase));
    }
  return kernel;
}

Status check_nest(const WorkGroup& work, const NestPlan& plan) {
  std::vector<FlatBody> bodies;
  for (const auto& name : plan.bodies) {
    const FlatBody* body = work.find(name);
    if (body == nullptr) return illegal("no body " + name);
    // Only the different accesses matter, and there are few of them.
    FlatBody accesses;
    accesses.name = body->name;
    accesses.vars = body->vars;
    std::set<std::string> seen;
    for (const auto& f : body->ops)
      if (is_access(f.op) && seen.insert(std::to_string(static_cast<int>(f.op.code)) + f.op.buffer + "[" + f.op.index.to_string()).second)
        accesses.ops.push_back(f);
    bodies.push_back(std::move(accesses));
  }
  LoweredNest nest;
  NestLowering lowering(work, plan, 0);
  KO_RETURN_IF_ERROR(lowering.align_shared(nest, bodies));
  return lowering.check_dependences(nest, bodies);
}

Result<LoweredKernel> lower(const Program& program, const Group& group, const KernelPlan& plan) {
  KO_TRY(WorkGroup work, rewritten(program, group, plan.rewrites));
  return lower_work(std::move(work), plan);
}

}  // namespace kernelopt
