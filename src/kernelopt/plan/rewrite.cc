#include "kernelopt/plan/rewrite.h"

#include <algorithm>
#include <numeric>

#include "kernelopt/base/check.h"
#include "kernelopt/plan/rewrite_loops.h"
#include "kernelopt/plan/window.h"

namespace kernelopt {

const FlatBody* WorkGroup::find(const std::string& name) const {
  for (const auto& body : bodies)
    if (body.name == name) return &body;
  return nullptr;
}
std::optional<size_t> WorkGroup::writer(const std::string& buffer) const {
  std::optional<size_t> result;
  for (size_t i = 0; i < bodies.size(); ++i) {
    if (!bodies[i].writes(buffer)) continue;
    if (result) return std::nullopt;
    result = i;
  }
  return result;
}
std::vector<size_t> WorkGroup::readers(const std::string& buffer) const {
  std::vector<size_t> result;
  for (size_t i = 0; i < bodies.size(); ++i)
    if (bodies[i].reads(buffer)) result.push_back(i);
  return result;
}

WorkGroup make_work_group(const Program& program, const Group& group) {
  WorkGroup work;
  std::set<std::string> names;
  for (const Body* body : group_bodies(program, group)) {
    FlatBody flat = flatten(*body);
    for (int n = 1; !names.insert(flat.name).second; ++n) flat.name = body->name + "_" + std::to_string(n);
    drop_unit_vars(flat);
    eliminate_common(flat);
    eliminate_dead(flat);
    work.bodies.push_back(std::move(flat));
  }
  const std::set<std::string> internals(group.internals.begin(), group.internals.end());
  for (const auto& body : work.bodies)
    for (const auto& f : body.ops) {
      if (f.op.buffer.empty() || work.buffers.count(f.op.buffer)) continue;
      const Buffer& buffer = program.buffer(f.op.buffer);
      work.buffers[f.op.buffer] = {buffer.dtype, buffer.storage_elements(), internals.count(f.op.buffer) == 0, false};
      std::string root = f.op.buffer;
      for (int hops = 0; hops < 16 && program.buffer(root).base; ++hops) root = *program.buffer(root).base;
      if (root != f.op.buffer) work.storage_root[f.op.buffer] = root;
    }
  return work;
}

std::string value_text(const FlatBody& body, ValueId id) {
  const FlatOp* f = body.definition(id);
  if (f == nullptr) return "?" + std::to_string(id);
  const Op& op = f->op;
  std::string text = std::string(op_name(op.code)) + ":" + dtype_name(op.dtype) + "(";
  for (ValueId arg : op.args) text += value_text(body, arg) + ",";
  if (!op.buffer.empty()) text += op.buffer + "[" + op.index.to_string() + "]";
  if (op.code == OpCode::kIndexExpr) text += op.index.to_string();
  if (op.code == OpCode::kConstant) text += std::to_string(scalar_as_double(op.value));
  if (op.code == OpCode::kLoad && f->predicate != kNoValue) text += " if " + value_text(body, f->predicate);
  if (op.code == OpCode::kReduction) text += reduction_name(op.reduction);
  if (op.code == OpCode::kGet) text += std::to_string(op.which);
  return text + ")";
}

std::optional<std::map<std::string, Expr>> solve_index(const Expr& stored, const std::vector<LoopVar>& vars, const Expr& loaded,
                                                       const std::map<std::string, int64_t>& extents) {
  struct Digit {
    std::string var;
    int64_t stride, extent;
  };
  std::vector<Digit> digits;
  std::map<std::string, Expr> solution;
  Expr rest = stored;
  for (const auto& v : vars) {
    if (v.extent == 1) {
      solution[v.name] = Expr(0);
      rest = rest.substitute({{v.name, Expr(0)}});
      continue;
    }
    const auto affine = affine_in(rest, v.name);
    if (!affine || affine->coefficient <= 0) return std::nullopt;
    digits.push_back({v.name, affine->coefficient, v.extent});
    rest = affine->rest;
  }
  if (!rest.is_const()) return std::nullopt;
  std::sort(digits.begin(), digits.end(), [](const Digit& a, const Digit& b) { return a.stride > b.stride; });
  for (size_t i = 0; i + 1 < digits.size(); ++i) {
    int64_t below = 0;
    for (size_t j = i + 1; j < digits.size(); ++j) below += digits[j].stride * (digits[j].extent - 1);
    if (below >= digits[i].stride) return std::nullopt;
  }
  const Expr offset_free = simplify(loaded - rest, extents);
  for (size_t i = 0; i < digits.size(); ++i) {
    // Everything below the previous digit, divided by this one's stride.
    Expr value = i == 0 ? offset_free : Expr::mod(offset_free, Expr(digits[i - 1].stride));
    value = Expr::floordiv(value, Expr(digits[i].stride));
    solution[digits[i].var] = simplify(value, extents);
  }
  return solution;
}

namespace {

Error unsupported(const std::string& what) { return Error(ErrorCode::kUnsupported, what); }

// Ops of `body` that `roots` need, in order.
std::vector<FlatOp> slice(const FlatBody& body, const std::vector<ValueId>& roots) {
  std::set<ValueId> needed(roots.begin(), roots.end());
  std::set<std::string> symbols;
  std::vector<FlatOp> result;
  for (auto at = body.ops.rbegin(); at != body.ops.rend(); ++at) {
    const Op& op = at->op;
    if (op.code == OpCode::kStore || op.code == OpCode::kStoreReduction) continue;
    const bool wanted = (op.id != kNoValue && needed.count(op.id)) || (op.code == OpCode::kIndirect && symbols.count(op.symbol));
    if (!wanted) continue;
    needed.insert(op.args.begin(), op.args.end());
    if (at->predicate != kNoValue) needed.insert(at->predicate);
    for (const auto& name : op.index.variables()) symbols.insert(name);
    for (const auto& name : op.size.variables()) symbols.insert(name);
    result.push_back(*at);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

ValueId add_op(FlatBody& body, OpCode code, DType dtype, std::vector<ValueId> args) {
  FlatOp f;
  f.op.code = code;
  f.op.dtype = f.op.src_dtype = dtype;
  f.op.args = std::move(args);
  f.op.id = body.fresh_id();
  body.ops.push_back(f);
  return f.op.id;
}
ValueId add_constant(FlatBody& body, DType dtype, Scalar value) {
  const ValueId id = add_op(body, OpCode::kConstant, dtype, {});
  body.ops.back().op.value = value;
  return id;
}
ValueId add_load(FlatBody& body, DType dtype, const std::string& buffer, Expr index) {
  const ValueId id = add_op(body, OpCode::kLoad, dtype, {});
  body.ops.back().op.buffer = buffer;
  body.ops.back().op.index = std::move(index);
  return id;
}
ValueId add_reduction(FlatBody& body, ReductionKind kind, DType dtype, std::vector<ValueId> args) {
  const ValueId id = add_op(body, OpCode::kReduction, dtype, std::move(args));
  body.ops.back().op.reduction = kind;
  body.ops.back().op.dtypes.assign(static_cast<size_t>(reduction_results(kind)), dtype);
  return id;
}
ValueId add_get(FlatBody& body, DType dtype, ValueId from, int which) {
  const ValueId id = add_op(body, OpCode::kGet, dtype, {from});
  body.ops.back().op.which = which;
  return id;
}
void add_store_reduction(FlatBody& body, DType dtype, const std::string& buffer, Expr index, ValueId value) {
  FlatOp f;
  f.op.code = OpCode::kStoreReduction;
  f.op.dtype = dtype;
  f.op.buffer = buffer;
  f.op.index = std::move(index);
  f.op.args = {value};
  body.ops.push_back(f);
}

// Row-major index over the iteration variables, and the number of elements.
std::pair<Expr, int64_t> iter_index(const FlatBody& body) {
  Expr index(0);
  int64_t elements = 1;
  for (const auto& v : body.vars)
    if (v.kind == VarKind::kIter) {
      index = index * Expr(v.extent) + Expr::var(v.name);
      elements *= v.extent;
    }
  return {index, elements};
}

std::string fresh_buffer(WorkGroup& work, const std::string& stem, DType dtype, int64_t elements) {
  std::string name = stem;
  for (int n = 1; work.buffers.count(name); ++n) name = stem + std::to_string(n);
  work.buffers[name] = {dtype, elements, false, true};
  return name;
}

Status inline_buffer(WorkGroup& work, const std::string& target) {
  const auto buffer = work.buffers.find(target);
  if (buffer == work.buffers.end()) return unsupported("inline: no buffer " + target);
  if (buffer->second.external) return unsupported("inline: " + target + " is needed outside the group");
  const auto at = work.writer(target);
  if (!at) return unsupported("inline: " + target + " has no single writer");
  const FlatBody producer = work.bodies[*at];
  const FlatOp* store = nullptr;
  for (const auto& f : producer.ops)
    if (f.op.buffer == target && f.op.code == OpCode::kStore) {
      if (store != nullptr) return unsupported("inline: " + target + " is stored twice");
      store = &f;
    } else if (f.op.buffer == target && f.op.code == OpCode::kStoreReduction) {
      return unsupported("inline: " + target + " is a reduction");
    }
  if (store == nullptr || store->op.atomic_add || store->predicate != kNoValue) return unsupported("inline: " + target + " is not stored plainly");
  const auto ops = slice(producer, {store->op.args[0]});
  for (const auto& f : ops) {
    if (f.op.code == OpCode::kReduction || f.op.code == OpCode::kScan || f.op.code == OpCode::kRand || f.op.code == OpCode::kRandn)
      return unsupported("inline: " + target + " holds the result of a reduction, scan or random op");
    if (f.op.code != OpCode::kLoad) continue;
    for (size_t later = *at + 1; later < work.bodies.size(); ++later)
      if (work.bodies[later].writes(f.op.buffer)) return unsupported("inline: an input of " + target + " is overwritten later");
  }
  int clones = 0;
  size_t grown = 0;
  for (size_t reader : work.readers(target))
    for (const auto& f : work.bodies[reader].ops) grown += f.op.code == OpCode::kLoad && f.op.buffer == target ? ops.size() : 0;
  if (grown > kMaxInlinedOps) return unsupported("inline: " + target + " would be computed too often");
  for (size_t reader : work.readers(target)) {
    if (reader == *at) return unsupported("inline: " + target + " is read by its own writer");
    FlatBody& body = work.bodies[reader];
    const auto extents = body.extents();
    std::vector<FlatOp> old = std::move(body.ops);
    body.ops.clear();
    for (auto& f : old) {
      if (f.op.code != OpCode::kLoad || f.op.buffer != target) {
        body.ops.push_back(std::move(f));
        continue;
      }
      const auto solution = solve_index(store->op.index, producer.vars, f.op.index, extents);
      if (!solution) return unsupported("inline: the index of " + target + " cannot be inverted");
      for (const auto& name : f.op.index.variables())
        if (!extents.count(name)) return unsupported("inline: " + target + " is indexed indirectly");
      std::vector<FlatOp> copy = ops;
      for (auto& c : copy) {
        c.op.index = simplify(c.op.index.substitute(*solution), extents);
        c.op.size = simplify(c.op.size.substitute(*solution), extents);
      }
      const ValueId predicate = f.predicate;
      const auto ids = append_ops(body, copy, "_" + target + std::to_string(clones++));
      if (predicate != kNoValue) {
        for (size_t i = body.ops.size() - copy.size(); i < body.ops.size(); ++i) {
          FlatOp& c = body.ops[i];
          if (c.op.code != OpCode::kLoad && c.op.code != OpCode::kIndirect) continue;
          if (c.predicate == kNoValue) {
            c.predicate = predicate;
            continue;
          }
          FlatOp both;
          both.op.code = OpCode::kLogicalAnd;
          both.op.dtype = DType::kBool;
          both.op.id = body.fresh_id();
          both.op.args = {predicate, c.predicate};
          c.predicate = both.op.id;
          body.ops.insert(body.ops.begin() + static_cast<ptrdiff_t>(i), both);
          ++i;
        }
      }
      // The value keeps its id, so that users need no renaming; narrower integer types are rounded as memory would.
      ValueId value = ids.at(store->op.args[0]);
      FlatOp alias;
      const DType stored = compute_dtype(store->op.dtype);
      const FlatOp* def = body.definition(value);
      if (def != nullptr && def->op.dtype != stored) {
        alias.op.code = OpCode::kToDType;
        alias.op.src_dtype = def->op.dtype;
      } else {
        alias.op.code = OpCode::kIdentity;
      }
      alias.op.dtype = stored;
      alias.op.args = {value};
      alias.op.id = f.op.id;
      body.ops.push_back(alias);
    }
    // Identities vanish.
    for (auto& f : body.ops)
      if (f.op.code == OpCode::kIdentity) replace_value(body, f.op.id, f.op.args[0]);
    eliminate_common(body);
    eliminate_dead(body);
  }
  eliminate_dead_stores(work);
  return ok_status();
}

// The body's only reduction, or null.
const FlatOp* only_reduction(const FlatBody& body) {
  const FlatOp* result = nullptr;
  for (const auto& f : body.ops) {
    if (f.op.code != OpCode::kReduction) continue;
    if (result != nullptr) return nullptr;
    result = &f;
  }
  return result;
}

// Where the results of a reduction go: ops after it (get, conversions, store_reduction), in order.
std::vector<FlatOp> ops_after(const FlatBody& body) {
  const auto after = after_reduction(body);
  std::vector<FlatOp> result;
  for (const auto& f : body.ops) {
    if (f.op.code == OpCode::kReduction) continue;
    const bool late = f.op.id != kNoValue ? after[static_cast<size_t>(f.op.id)]
                                          : !f.op.args.empty() && after[static_cast<size_t>(f.op.args[0])];
    if (late) result.push_back(f);
  }
  return result;
}

// The types are copied: adding ops moves the body's own.
std::vector<ValueId> results_of(FlatBody& body, ValueId reduction) {
  const std::vector<DType> dtypes = body.definition(reduction)->op.dtypes;
  if (dtypes.size() <= 1) return {reduction};
  std::vector<ValueId> gets;
  for (size_t i = 0; i < dtypes.size(); ++i) gets.push_back(add_get(body, dtypes[i], reduction, static_cast<int>(i)));
  return gets;
}

// Appends the original ops after the reduction, reading the given values in place of its results.
Status append_after(FlatBody& body, const FlatBody& original, const FlatOp& reduction, const std::vector<ValueId>& values, bool last = true) {
  std::map<ValueId, ValueId> ids;
  const bool single = reduction.op.dtypes.size() <= 1;
  if (single) ids[reduction.op.id] = values[0];
  const auto late = ops_after(original);
  std::vector<ValueId> early;  // inputs of the late ops that come from before the reduction
  std::set<ValueId> defined;
  for (const auto& f : late) {
    for (ValueId arg : f.op.args)
      if (arg != reduction.op.id && !defined.count(arg)) early.push_back(arg);
    if (f.op.id != kNoValue) defined.insert(f.op.id);
  }
  const auto needed = slice(original, early);
  for (const auto& [from, to] : append_ops(body, needed, "_l")) ids[from] = to;
  for (FlatOp f : late) {
    if (f.op.code == OpCode::kGet && f.op.args[0] == reduction.op.id) {
      if (static_cast<size_t>(f.op.which) >= values.size()) return unsupported("a result of the reduction that its parts do not have");
      ids[f.op.id] = values[static_cast<size_t>(f.op.which)];
      continue;
    }
    for (auto& arg : f.op.args) {
      const auto found = ids.find(arg);
      if (found == ids.end()) return unsupported("a value after the reduction has an unexpected input");
      arg = found->second;
    }
    if (f.predicate != kNoValue) return unsupported("a predicate after the reduction");
    if (f.op.id != kNoValue) f.op.id = ids[f.op.id] = body.fresh_id();
    body.ops.push_back(std::move(f));
  }
  if (!last) return ok_status();
  eliminate_common(body);
  eliminate_dead(body);
  return ok_status();
}

Result<size_t> body_index(const WorkGroup& work, const std::string& name) {
  for (size_t i = 0; i < work.bodies.size(); ++i)
    if (work.bodies[i].name == name) return i;
  return unsupported("no body " + name);
}

Status two_pass(WorkGroup& work, const std::string& target) {
  KO_TRY(const size_t at, body_index(work, target));
  const FlatBody original = work.bodies[at];
  const FlatOp* reduction = only_reduction(original);
  if (reduction == nullptr || reduction->op.reduction != ReductionKind::kWelford) return unsupported("two pass: " + target + " is no Welford reduction");
  for (const auto& f : original.ops)
    if (f.op.code == OpCode::kStore) return unsupported("two pass: " + target + " stores inside its loop");
  const DType dtype = reduction->op.dtypes.empty() ? reduction->op.dtype : reduction->op.dtypes[0];
  const double n = static_cast<double>(original.reduce_elements());
  bool wants_spread = false;
  for (const auto& f : original.ops) wants_spread = wants_spread || (f.op.code == OpCode::kGet && f.op.args[0] == reduction->op.id && f.op.which == 1);
  if (!wants_spread) {
    FlatBody only;
    only.name = target + ".mean";
    only.vars = original.vars;
    const auto ids = append_ops(only, slice(original, {reduction->op.args[0]}), "_m");
    const ValueId sum = add_reduction(only, ReductionKind::kSum, dtype, {ids.at(reduction->op.args[0])});
    const ValueId count = add_constant(only, dtype, n);
    const ValueId mean = add_op(only, OpCode::kTrueDiv, dtype, {sum, count});
    KO_RETURN_IF_ERROR(append_after(only, original, *reduction, {mean, count, count}));
    work.bodies[at] = std::move(only);
    return ok_status();
  }
  const auto input = slice(original, {reduction->op.args[0]});
  const auto [index, elements] = iter_index(original);
  const std::string mean_buffer = fresh_buffer(work, target + ".mean", dtype, elements);

  FlatBody mean;
  mean.name = target + ".mean";
  mean.vars = original.vars;
  auto ids = append_ops(mean, input, "_m");
  const ValueId sum = add_reduction(mean, ReductionKind::kSum, dtype, {ids.at(reduction->op.args[0])});
  const ValueId count = add_constant(mean, dtype, n);
  add_store_reduction(mean, dtype, mean_buffer, index, add_op(mean, OpCode::kTrueDiv, dtype, {sum, count}));

  FlatBody second;
  second.name = target + ".m2";
  second.vars = original.vars;
  ids = append_ops(second, input, "_v");
  const ValueId center = add_load(second, dtype, mean_buffer, index);
  const ValueId delta = add_op(second, OpCode::kSub, dtype, {ids.at(reduction->op.args[0]), center});
  const ValueId m2 = add_reduction(second, ReductionKind::kSum, dtype, {add_op(second, OpCode::kMul, dtype, {delta, delta})});
  const ValueId weight = add_constant(second, dtype, n);
  const ValueId mean_again = add_load(second, dtype, mean_buffer, index);
  KO_RETURN_IF_ERROR(append_after(second, original, *reduction, {mean_again, m2, weight}));
  work.bodies[at] = std::move(mean);
  work.bodies.insert(work.bodies.begin() + static_cast<ptrdiff_t>(at) + 1, std::move(second));
  return ok_status();
}

// The kind of reduction that joins partial results.
std::optional<ReductionKind> combining(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kSum:
    case ReductionKind::kProd:
    case ReductionKind::kMax:
    case ReductionKind::kMin:
    case ReductionKind::kAny:
    case ReductionKind::kXorSum:
    case ReductionKind::kWelfordCombine: return kind;
    case ReductionKind::kWelford: return ReductionKind::kWelfordCombine;
    case ReductionKind::kDot: return ReductionKind::kSum;
    case ReductionKind::kArgMax:
    case ReductionKind::kArgMin:
    case ReductionKind::kOnlineSoftmax: return std::nullopt;
  }
  return std::nullopt;
}

Status split_reduction(WorkGroup& work, const Rewrite& rewrite) {
  KO_TRY(const size_t at, body_index(work, rewrite.target));
  const FlatBody original = work.bodies[at];
  const FlatOp* reduction = only_reduction(original);
  if (reduction == nullptr) return unsupported("split: " + rewrite.target + " has no single reduction");
  const auto kind = combining(reduction->op.reduction);
  if (!kind) return unsupported(std::string("split: partial results of ") + reduction_name(reduction->op.reduction) + " cannot be joined");
  for (const auto& f : original.ops)
    if (f.op.code == OpCode::kStore) return unsupported("split: " + rewrite.target + " stores inside its loop");
  const int64_t parts = rewrite.amount;
  const bool inner = rewrite.kind == RewriteKind::kSplitInner;
  // The reduction variable to cut: the outermost that the number of parts divides.
  FlatBody partial = original;
  partial.name = rewrite.target + ".part";
  std::string cut;
  for (const auto& v : original.vars)
    if (v.kind == VarKind::kReduce && parts > 1 && v.extent % parts == 0) {
      cut = v.name;
      break;
    }
  if (cut.empty()) return unsupported("split: no reduction loop can be cut into " + std::to_string(parts) + " equal parts");
  const int64_t extent = partial.find_var(cut)->extent;
  std::string part_var;
  if (extent == parts) {
    part_var = cut;
  } else {
    KO_CHECK(split_var(partial, cut, inner ? parts : extent / parts), "divisible extent");
    part_var = cut + (inner ? "l" : "h");
  }
  // The part becomes the last iteration variable.
  LoopVar moved = *partial.find_var(part_var);
  moved.kind = VarKind::kIter;
  partial.vars.erase(std::find_if(partial.vars.begin(), partial.vars.end(), [&](const LoopVar& v) { return v.name == part_var; }));
  const auto first_reduce = std::find_if(partial.vars.begin(), partial.vars.end(), [](const LoopVar& v) { return v.kind == VarKind::kReduce; });
  partial.vars.insert(first_reduce, moved);
  std::vector<FlatOp> input;
  {
    std::vector<ValueId> roots = reduction->op.args;
    input = slice(partial, roots);
  }
  const FlatOp partial_reduction = *partial.definition(reduction->op.id);
  FlatBody fresh;
  fresh.name = partial.name;
  fresh.vars = partial.vars;
  auto ids = append_ops(fresh, input, "_p");
  std::vector<ValueId> args;
  for (ValueId arg : partial_reduction.op.args) args.push_back(ids.at(arg));
  std::vector<DType> dtypes = partial_reduction.op.dtypes;
  if (dtypes.empty()) dtypes = {partial_reduction.op.dtype};
  if (rewrite.wide) {
    if (reduction->op.reduction != ReductionKind::kWelford || dtypes[0] != DType::kFloat32)
      return unsupported("split: only a float32 Welford reduction has wide parts");
    dtypes.assign(dtypes.size(), DType::kFloat64);
  }
  const ValueId result = add_reduction(fresh, reduction->op.reduction, rewrite.wide ? DType::kFloat64 : partial_reduction.op.dtype, args);
  fresh.ops.back().op.dtypes = dtypes;
  fresh.ops.back().op.src_dtype = partial_reduction.op.src_dtype;
  const auto [outer_index, outer_elements] = iter_index(original);
  // Parts outermost: neighbouring outputs stay neighbours.
  const Expr index = Expr::var(part_var) * Expr(outer_elements) + outer_index;
  const auto values = results_of(fresh, result);
  std::vector<std::string> buffers;
  for (size_t i = 0; i < values.size(); ++i) {
    buffers.push_back(fresh_buffer(work, rewrite.target + ".part" + std::to_string(i), dtypes[i], parts * outer_elements));
    add_store_reduction(fresh, dtypes[i], buffers[i], index, values[i]);
  }
  eliminate_dead(fresh);

  FlatBody join;
  join.name = rewrite.target + ".join";
  for (const auto& v : original.vars)
    if (v.kind == VarKind::kIter) join.vars.push_back(v);
  join.vars.push_back({"part", parts, VarKind::kReduce});
  const Expr join_index = Expr::var("part") * Expr(outer_elements) + outer_index;
  std::vector<ValueId> loads;
  for (size_t i = 0; i < buffers.size(); ++i) loads.push_back(add_load(join, dtypes[i], buffers[i], join_index));
  const ValueId joined = add_reduction(join, *kind, dtypes[0], loads);
  join.ops.back().op.dtypes = dtypes;
  auto joined_values = results_of(join, joined);
  if (rewrite.wide)
    for (auto& value : joined_values) {
      const ValueId narrow = add_op(join, OpCode::kToDType, DType::kFloat32, {value});
      join.ops.back().op.src_dtype = DType::kFloat64;
      value = narrow;
    }
  KO_RETURN_IF_ERROR(append_after(join, original, *reduction, joined_values));
  work.bodies[at] = std::move(fresh);
  work.bodies.insert(work.bodies.begin() + static_cast<ptrdiff_t>(at) + 1, std::move(join));
  return ok_status();
}

Status online_softmax(WorkGroup& work, const std::string& target) {
  KO_TRY(const size_t at, body_index(work, target));
  const FlatBody first = work.bodies[at];
  const FlatOp* maximum = only_reduction(first);
  if (maximum == nullptr || maximum->op.reduction != ReductionKind::kMax || !is_floating(maximum->op.dtype))
    return unsupported("online softmax: " + target + " is no floating maximum");
  const std::string wanted = value_text(first, maximum->op.args[0]);
  std::vector<const FlatOp*> stores;
  for (const auto& f : first.ops) {
    if (f.op.code == OpCode::kStore) return unsupported("online softmax: " + target + " stores inside its loop");
    if (f.op.code == OpCode::kStoreReduction && f.op.args[0] == maximum->op.id) stores.push_back(&f);
  }
  if (stores.empty()) return unsupported("online softmax: the maximum is not stored");
  for (size_t next = at + 1; next < work.bodies.size(); ++next) {
    FlatBody second = work.bodies[next];
    const FlatOp* sum = only_reduction(second);
    if (sum == nullptr || sum->op.reduction != ReductionKind::kSum || second.vars.size() != first.vars.size()) continue;
    bool same = true;
    for (size_t i = 0; i < first.vars.size(); ++i)
      same = same && first.vars[i].extent == second.vars[i].extent && first.vars[i].kind == second.vars[i].kind;
    if (!same) continue;
    for (size_t i = 0; i < first.vars.size(); ++i) rename_var(second, second.vars[i].name, "@" + std::to_string(i));
    for (size_t i = 0; i < first.vars.size(); ++i) rename_var(second, second.vars[i].name, first.vars[i].name);
    sum = only_reduction(second);
    const FlatOp* exponential = second.definition(sum->op.args[0]);
    if (exponential->op.code != OpCode::kExp) continue;
    const FlatOp* difference = second.definition(exponential->op.args[0]);
    if (difference->op.code != OpCode::kSub) continue;
    const FlatOp* shift = second.definition(difference->op.args[1]);
    bool loads_maximum = false;
    for (const FlatOp* store : stores)
      loads_maximum = loads_maximum || (shift->op.code == OpCode::kLoad && shift->op.buffer == store->op.buffer && shift->op.index == store->op.index);
    if (!loads_maximum || value_text(second, difference->op.args[0]) != wanted) continue;
    bool plain = true;
    for (const auto& f : second.ops) plain = plain && f.op.code != OpCode::kStore;
    if (!plain) return unsupported("online softmax: the exponentials are stored");

    FlatBody both;
    both.name = target + ".online";
    both.vars = first.vars;
    const auto ids = append_ops(both, slice(first, {maximum->op.args[0]}), "_o");
    const DType dtype = maximum->op.dtype;
    const ValueId online = add_reduction(both, ReductionKind::kOnlineSoftmax, dtype, {ids.at(maximum->op.args[0])});
    const ValueId top = add_get(both, dtype, online, 0), total = add_get(both, dtype, online, 1);
    KO_RETURN_IF_ERROR(append_after(both, first, *maximum, {top}, false));
    KO_RETURN_IF_ERROR(append_after(both, second, *sum, {total}));
    work.bodies[at] = std::move(both);
    work.bodies.erase(work.bodies.begin() + static_cast<ptrdiff_t>(next));
    return ok_status();
  }
  return unsupported("online softmax: no sum of exponentials reads the maximum of " + target);
}

Status tile_loop(WorkGroup& work, const Rewrite& rewrite) {
  const size_t slash = rewrite.target.rfind('/');
  if (slash == std::string::npos) return unsupported("no loop named");
  const std::string name = rewrite.target.substr(0, slash), loop = rewrite.target.substr(slash + 1);
  for (auto& body : work.bodies) {
    if (body.name != name) continue;
    if (!body.find_var(loop)) return unsupported("no loop " + rewrite.target);
    if (!split_var(body, loop, rewrite.amount)) return unsupported("tiles that do not divide loop " + rewrite.target);
    return ok_status();
  }
  return unsupported("no body " + name);
}

}  // namespace

void eliminate_dead_stores(WorkGroup& work) {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto& body : work.bodies) {
      const size_t before = body.ops.size();
      body.ops.erase(std::remove_if(body.ops.begin(), body.ops.end(),
                                    [&](const FlatOp& f) {
                                      if (f.op.code != OpCode::kStore && f.op.code != OpCode::kStoreReduction) return false;
                                      const auto& buffer = work.buffers.at(f.op.buffer);
                                      return !buffer.external && work.readers(f.op.buffer).empty();
                                    }),
                     body.ops.end());
      if (body.ops.size() != before) {
        eliminate_dead(body);
        changed = true;
      }
    }
    work.bodies.erase(std::remove_if(work.bodies.begin(), work.bodies.end(), [](const FlatBody& b) { return b.ops.empty(); }), work.bodies.end());
  }
}

Status apply_rewrite(WorkGroup& work, const Rewrite& rewrite) {
  switch (rewrite.kind) {
    case RewriteKind::kInline: return inline_buffer(work, rewrite.target);
    case RewriteKind::kTwoPass: return two_pass(work, rewrite.target);
    case RewriteKind::kSplit:
    case RewriteKind::kSplitInner: return split_reduction(work, rewrite);
    case RewriteKind::kUnrollWindow: return unroll_window(work, rewrite.target);
    case RewriteKind::kWalkRows: return walk_rows(work, rewrite.target, rewrite.amount);
    case RewriteKind::kTileLoop: return tile_loop(work, rewrite);
    case RewriteKind::kFlipScan: return flip_scan(work, rewrite.target);
    case RewriteKind::kJoinParts: return join_parts(work, rewrite.target);
    case RewriteKind::kOnlineSoftmax: return online_softmax(work, rewrite.target);
  }
  return unsupported("unknown rewrite");
}

Result<WorkGroup> rewritten(const Program& program, const Group& group, const std::vector<Rewrite>& rewrites) {
  WorkGroup work = make_work_group(program, group);
  eliminate_dead_stores(work);
  for (const auto& rewrite : rewrites) KO_RETURN_IF_ERROR(apply_rewrite(work, rewrite));
  return work;
}

}  // namespace kernelopt
