#include "kernelopt/plan/rewrite_loops.h"

#include <algorithm>
#include <set>

namespace kernelopt {
namespace {

Error unsupported(const std::string& what) { return Error(ErrorCode::kUnsupported, what); }

FlatBody* body_named(WorkGroup& work, const std::string& name) {
  const auto at = std::find_if(work.bodies.begin(), work.bodies.end(), [&](const FlatBody& b) { return b.name == name; });
  return at == work.bodies.end() ? nullptr : &*at;
}

const FlatOp* single_reduction(const FlatBody& body) {
  const FlatOp* found = nullptr;
  for (const auto& f : body.ops) {
    if (f.op.code == OpCode::kScan) return nullptr;
    if (f.op.code != OpCode::kReduction) continue;
    if (found != nullptr) return nullptr;
    found = &f;
  }
  return found;
}

const LoopVar* single_reduce_var(const FlatBody& body) {
  const LoopVar* found = nullptr;
  for (const auto& v : body.vars) {
    if (v.kind != VarKind::kReduce) continue;
    if (found != nullptr) return nullptr;
    found = &v;
  }
  return found;
}

// The value under the assumption that `condition` holds or not, where that makes it a constant.
std::optional<double> constant_if(const FlatBody& body, ValueId id, ValueId condition, bool holds) {
  const FlatOp* f = body.definition(id);
  if (f == nullptr) return std::nullopt;
  if (f->op.code == OpCode::kConstant) return scalar_as_double(f->op.value);
  if (f->op.code == OpCode::kWhere && f->op.args[0] == condition) return constant_if(body, f->op.args[holds ? 1 : 2], condition, holds);
  return std::nullopt;
}

// A divisor of the variable in some index.
int64_t divisor_of(const Expr& expr, const std::string& name) {
  if ((expr.kind() == Expr::Kind::kMod || expr.kind() == Expr::Kind::kFloorDiv) && expr.args()[1].is_const() &&
      expr.args()[0].kind() == Expr::Kind::kVar && expr.args()[0].var_name() == name)
    return expr.args()[1].const_value();
  if (expr.kind() == Expr::Kind::kConst || expr.kind() == Expr::Kind::kVar) return 0;
  for (const auto& arg : expr.args())
    if (const int64_t found = divisor_of(arg, name)) return found;
  return 0;
}

}  // namespace

Status flip_scan(WorkGroup& work, const std::string& target) {
  FlatBody* body = body_named(work, target);
  if (body == nullptr) return unsupported("flip: no body " + target);
  if (!body->has_scan() || body->has_reduction()) return unsupported("flip: " + target + " is no scan");
  const LoopVar* v = single_reduce_var(*body);
  if (v == nullptr) return unsupported("flip: " + target + " scans along several loops");
  bool backwards = false;
  for (const auto& f : body->ops) {
    if (f.op.code != OpCode::kLoad) continue;
    const auto affine = affine_in(f.op.index, v->name);
    backwards = backwards || (affine && affine->coefficient < 0);
  }
  if (!backwards) return unsupported("flip: " + target + " reads nothing backwards");
  const std::string name = v->name;
  substitute_vars(*body, {{name, Expr(v->extent - 1) - Expr::var(name)}});
  for (auto& f : body->ops)
    if (f.op.code == OpCode::kScan) f.reverse = !f.reverse;
  return ok_status();
}

Status join_parts(WorkGroup& work, const std::string& target) {
  FlatBody* found = body_named(work, target);
  if (found == nullptr) return unsupported("join: no body " + target);
  FlatBody whole = *found;
  const FlatOp* reduction = single_reduction(whole);
  const LoopVar* parts = single_reduce_var(whole);
  if (reduction == nullptr || parts == nullptr) return unsupported("join: " + target + " is no plain reduction");
  const bool welford = reduction->op.reduction == ReductionKind::kWelfordCombine;
  if (!welford && reduction->op.reduction != ReductionKind::kSum) return unsupported(std::string("join: ") + reduction_name(reduction->op.reduction));
  // Every argument is one result of the same partial reduction.
  const FlatBody* partial = nullptr;
  const FlatOp* partial_reduction = nullptr;
  std::string text;
  Expr loaded;
  std::set<ValueId> loads;
  for (size_t i = 0; i < reduction->op.args.size(); ++i) {
    const FlatOp* load = whole.definition(reduction->op.args[i]);
    if (load == nullptr || load->op.code != OpCode::kLoad || load->predicate != kNoValue) return unsupported("join: parts that are not plainly loaded");
    const auto writer = work.writer(load->op.buffer);
    if (!writer || work.buffers.at(load->op.buffer).external) return unsupported("join: parts that others see");
    const FlatBody& body = work.bodies[*writer];
    const FlatOp* inner = single_reduction(body);
    const auto store = std::find_if(body.ops.begin(), body.ops.end(), [&](const FlatOp& f) { return f.op.code == OpCode::kStoreReduction; });
    if (inner == nullptr || store == body.ops.end() || store->op.buffer != load->op.buffer || inner->op.dtype != reduction->op.dtype)
      return unsupported("join: parts that are not stored as they are reduced");
    const FlatOp* result = body.definition(store->op.args[0]);
    const bool direct = result != nullptr && result->op.id == inner->op.id && i == 0 && !welford;
    const bool got = result != nullptr && result->op.code == OpCode::kGet && result->op.args[0] == inner->op.id && result->op.which == static_cast<int>(i);
    if (!direct && !got) return unsupported("join: parts that are not stored as they are reduced");
    const std::string here = value_text(body, inner->op.id) + "[" + store->op.index.to_string();
    if (i == 0) {
      partial = &body;
      partial_reduction = inner;
      text = here;
      loaded = load->op.index;
    } else if (here != text || !(load->op.index == loaded)) {
      return unsupported("join: parts of different reductions");
    }
    loads.insert(load->op.id);
  }
  const bool combines = partial_reduction->op.reduction == ReductionKind::kWelfordCombine;
  if (welford ? !combines && partial_reduction->op.reduction != ReductionKind::kWelford : partial_reduction->op.reduction != ReductionKind::kSum)
    return unsupported("join: parts of another kind");
  const LoopVar* along = single_reduce_var(*partial);
  if (along == nullptr) return unsupported("join: parts over several loops");
  for (const auto& f : whole.ops)  // what is loaded must serve the reduction alone
    if (f.op.id != reduction->op.id && std::any_of(f.op.args.begin(), f.op.args.end(), [&](ValueId a) { return loads.count(a) > 0; }))
      return unsupported("join: a part is used alone");

  // The partial body's loops in terms of the whole one's.
  FlatBody inner = *partial;
  const int64_t length = along->extent, total = length * parts->extent;
  const std::string part = parts->name, element = whole.name + "_j";
  for (auto& v : inner.vars) rename_var(inner, std::string(v.name), "j_" + v.name);
  std::vector<LoopVar> iterations;
  std::string reduced;
  for (const auto& v : inner.vars) {
    if (v.kind == VarKind::kIter) iterations.push_back(v);
    else reduced = v.name;
  }
  const auto store = std::find_if(inner.ops.begin(), inner.ops.end(), [](const FlatOp& f) { return f.op.code == OpCode::kStoreReduction; });
  auto solution = solve_index(store->op.index, iterations, loaded, whole.extents());
  if (!solution) return unsupported("join: parts in an order of their own");
  (*solution)[reduced] = Expr::var(element) - Expr(length) * Expr::var(part);
  auto extents = whole.extents();
  extents[element] = total;
  for (auto& f : inner.ops) {
    if (&f == &*store) continue;
    if (f.op.code == OpCode::kIndirect || f.op.code == OpCode::kCheckBounds || f.op.code == OpCode::kScan) return unsupported("join: indirect parts");
    f.op.index = simplify(f.op.index.substitute(*solution), extents);
    if (f.op.index.depends_on(part)) return unsupported("join: parts that are not consecutive pieces");
  }
  inner.ops.erase(store);
  // A bound on the element cuts the last part short.
  ValueId bound = kNoValue;
  int64_t extent = total;
  for (const auto& f : inner.ops) {
    if (f.op.code != OpCode::kLt) continue;
    const FlatOp *left = inner.definition(f.op.args[0]), *right = inner.definition(f.op.args[1]);
    if (left->op.code != OpCode::kIndexExpr || !(left->op.index == Expr::var(element)) || right->op.code != OpCode::kConstant) continue;
    bound = f.op.id;
    extent = static_cast<int64_t>(scalar_as_double(right->op.value));
  }
  const FlatOp combined = *std::find_if(inner.ops.begin(), inner.ops.end(), [](const FlatOp& f) { return f.op.code == OpCode::kReduction; });
  if (combines && (constant_if(inner, combined.op.args[1], bound, true) != 0.0 || constant_if(inner, combined.op.args[2], bound, true) != 1.0))
    return unsupported("join: parts of parts");
  if (bound != kNoValue) {
    if (extent <= 0 || extent > total) return unsupported("join: a bound outside the loops");
    const bool neutral = welford ? combines && constant_if(inner, combined.op.args[2], bound, false) == 0.0
                                 : constant_if(inner, combined.op.args[0], bound, false) == 0.0;
    if (!neutral) return unsupported("join: elements past the bound count");
    std::vector<std::pair<ValueId, ValueId>> chosen;
    for (auto& f : inner.ops) {
      if (f.predicate == bound) f.predicate = kNoValue;
      if (f.op.code == OpCode::kWhere && f.op.args[0] == bound) chosen.emplace_back(f.op.id, f.op.args[1]);
    }
    for (const auto& [from, to] : chosen) replace_value(inner, from, to);
  }
  FlatOp last = *std::find_if(inner.ops.begin(), inner.ops.end(), [](const FlatOp& f) { return f.op.code == OpCode::kReduction; });
  inner.ops.erase(std::find_if(inner.ops.begin(), inner.ops.end(), [](const FlatOp& f) { return f.op.code == OpCode::kReduction; }),
                  inner.ops.end());
  extents[element] = extent;
  for (auto& f : inner.ops) f.op.index = simplify(f.op.index, extents);

  // The whole reduction: the partial one's values, then what the combining body did with the result.
  std::vector<FlatOp> rest;
  for (const auto& f : whole.ops)
    if (!loads.count(f.op.id)) rest.push_back(f);
  whole.ops.clear();
  const auto ids = append_ops(whole, inner.ops, whole.name + "_j");
  for (auto& f : rest) {
    if (f.op.code == OpCode::kReduction) {
      f.op.reduction = welford ? ReductionKind::kWelford : ReductionKind::kSum;
      f.op.args = {ids.at(last.op.args[0])};
      f.op.src_dtype = last.op.src_dtype;
    }
    whole.ops.push_back(std::move(f));
  }
  for (auto& v : whole.vars)
    if (v.name == part) v = {element, extent, VarKind::kReduce};
  // Loops as the index has them.
  for (bool cut = true; cut;) {
    cut = false;
    for (const auto& f : whole.ops) {
      int64_t divisor = 0;
      std::string name;
      for (const auto& v : whole.vars)
        if (v.kind == VarKind::kReduce && divisor == 0 && (divisor = divisor_of(f.op.index, v.name)) != 0) name = v.name;
      if (divisor <= 1 || whole.find_var(name)->extent % divisor != 0 || whole.find_var(name)->extent == divisor) continue;
      cut = split_var(whole, name, divisor);
      if (cut) break;
    }
  }
  eliminate_dead(whole);
  eliminate_common(whole);
  *found = std::move(whole);
  eliminate_dead_stores(work);
  return ok_status();
}

}  // namespace kernelopt
