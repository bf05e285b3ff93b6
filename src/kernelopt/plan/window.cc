#include "kernelopt/plan/window.h"

#include <algorithm>

#include "kernelopt/base/check.h"

namespace kernelopt {
namespace {

Error unsupported(const std::string& what) { return Error(ErrorCode::kUnsupported, what); }

bool is_store(const Op& op) { return op.code == OpCode::kStore || op.code == OpCode::kStoreReduction; }

FlatBody* find_body(WorkGroup& work, const std::string& name) {
  for (auto& body : work.bodies)
    if (body.name == name) return &body;
  return nullptr;
}

std::optional<OpCode> chain_op(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kSum: return OpCode::kAdd;
    case ReductionKind::kMax: return OpCode::kMaximum;
    case ReductionKind::kMin: return OpCode::kMinimum;
    case ReductionKind::kProd:
    case ReductionKind::kAny:
    case ReductionKind::kXorSum:
    case ReductionKind::kArgMax:
    case ReductionKind::kArgMin:
    case ReductionKind::kWelford:
    case ReductionKind::kWelfordCombine:
    case ReductionKind::kOnlineSoftmax:
    case ReductionKind::kDot: return std::nullopt;
  }
  return std::nullopt;
}

bool is_chain(const Op& op) {
  return (op.code == OpCode::kMaximum || op.code == OpCode::kMinimum || op.code == OpCode::kAdd) && is_floating(op.dtype);
}

// Where the leaf reads: the index of its only load, through selections and pointwise ops of one varying argument.
std::optional<std::pair<std::string, Expr>> leaf_load(const FlatBody& body, ValueId id) {
  const FlatOp* f = body.definition(id);
  if (f == nullptr) return std::nullopt;
  if (f->op.code == OpCode::kLoad) return std::pair{f->op.buffer, f->op.index};
  if (f->op.code == OpCode::kWhere) return leaf_load(body, f->op.args[1]);
  if (f->op.args.size() == 1) return leaf_load(body, f->op.args[0]);
  if (f->op.args.size() == 2)
    for (size_t i : {size_t{0}, size_t{1}}) {
      const FlatOp* other = body.definition(f->op.args[1 - i]);
      if (other != nullptr && other->op.code == OpCode::kConstant) return leaf_load(body, f->op.args[i]);
    }
  return std::nullopt;
}

struct Leaf {
  ValueId value;
  int64_t offset;
  int64_t row = 0, column = 0;
};

// Leaves of the chain that ends in `root`, whose inner links have no other user.
void collect_leaves(const FlatBody& body, ValueId id, OpCode code, const std::map<ValueId, int>& uses, bool is_root, std::vector<ValueId>& leaves) {
  const FlatOp* f = body.definition(id);
  if (f != nullptr && f->op.code == code && is_floating(f->op.dtype) && (is_root || uses.at(id) == 1)) {
    for (ValueId arg : f->op.args) collect_leaves(body, arg, code, uses, false, leaves);
    return;
  }
  leaves.push_back(id);
}

// Sorts leaves into a full rectangle of rows along `walk`; false where they are none.
bool arrange(const FlatBody& body, const std::string& walk, std::vector<Leaf>& leaves) {
  std::string buffer;
  Expr base;
  int64_t pitch_times_stride = 0;
  for (auto& leaf : leaves) {
    const auto load = leaf_load(body, leaf.value);
    if (!load) return false;
    if (buffer.empty()) {
      buffer = load->first;
      base = load->second;
      const auto affine = affine_in(base, walk);
      if (!affine || affine->coefficient <= 0) return false;
      pitch_times_stride = affine->coefficient;
    }
    const Expr difference = simplify(load->second - base, body.extents());
    if (load->first != buffer || !difference.is_const()) return false;
    leaf.offset = difference.const_value();
  }
  int64_t least = 0;
  for (const auto& leaf : leaves) least = std::min(least, leaf.offset);
  for (int64_t stride = 1; stride <= 4; ++stride) {
    if (pitch_times_stride % stride != 0) continue;
    const int64_t pitch = pitch_times_stride / stride;
    std::map<int64_t, std::set<int64_t>> rows;
    for (auto& leaf : leaves) {
      leaf.row = (leaf.offset - least) / pitch;
      leaf.column = (leaf.offset - least) % pitch;
      rows[leaf.row].insert(leaf.column);
    }
    if (rows.size() < 2 || static_cast<int64_t>(rows.rbegin()->first) + 1 != static_cast<int64_t>(rows.size())) continue;
    bool full = leaves.size() == rows.size() * rows[0].size();
    for (const auto& [row, columns] : rows) full = full && columns == rows[0];
    if (full && static_cast<int64_t>(rows.size()) > stride) return true;
  }
  return false;
}

// Rebuilds every chain over a rectangular window as rows first; returns how many were rebuilt.
int reassociate(FlatBody& body, const std::string& walk) {
  int rebuilt = 0;
  std::set<ValueId> done;
  for (bool again = true; again;) {
    again = false;
    std::map<ValueId, int> uses;
    std::set<ValueId> inner;
    for (const auto& f : body.ops) {
      for (ValueId arg : f.op.args) ++uses[arg];
      if (f.predicate != kNoValue) ++uses[f.predicate];
    }
    for (const auto& f : body.ops)
      if (is_chain(f.op))
        for (ValueId arg : f.op.args) {
          const FlatOp* d = body.definition(arg);
          if (d != nullptr && d->op.code == f.op.code && is_chain(d->op) && uses[arg] == 1) inner.insert(arg);
        }
    for (size_t i = 0; i < body.ops.size(); ++i) {
      const FlatOp root = body.ops[i];
      if (!is_chain(root.op) || inner.count(root.op.id) || done.count(root.op.id)) continue;
      done.insert(root.op.id);
      std::vector<ValueId> values;
      collect_leaves(body, root.op.id, root.op.code, uses, true, values);
      if (values.size() < 4) continue;
      std::vector<Leaf> leaves;
      for (ValueId value : values) leaves.push_back({value, 0});
      if (!arrange(body, walk, leaves)) continue;
      std::sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) { return std::pair(a.row, a.column) < std::pair(b.row, b.column); });
      std::vector<FlatOp> fresh;
      const auto link = [&](ValueId a, ValueId b, ValueId id) {
        FlatOp f = root;
        f.op.args = {a, b};
        f.op.id = id == kNoValue ? body.fresh_id() : id;
        fresh.push_back(f);
        done.insert(f.op.id);
        return f.op.id;
      };
      std::vector<ValueId> rows;
      for (size_t at = 0; at < leaves.size();) {
        size_t end = at;
        ValueId value = leaves[at].value;
        while (end + 1 < leaves.size() && leaves[end + 1].row == leaves[at].row) value = link(value, leaves[++end].value, kNoValue);
        rows.push_back(value);
        at = end + 1;
      }
      ValueId total = rows[0];
      for (size_t r = 1; r < rows.size(); ++r) total = link(total, rows[r], r + 1 == rows.size() ? root.op.id : kNoValue);
      body.ops.erase(body.ops.begin() + static_cast<ptrdiff_t>(i));
      body.ops.insert(body.ops.begin() + static_cast<ptrdiff_t>(i), fresh.begin(), fresh.end());
      ++rebuilt;
      again = true;
      break;
    }
  }
  eliminate_dead(body);
  return rebuilt;
}

int count_loads(const FlatBody& body) {
  return static_cast<int>(std::count_if(body.ops.begin(), body.ops.end(), [](const FlatOp& f) { return f.op.code == OpCode::kLoad; }));
}

// The ops of `body` `rows` times, with walk = factor * walk + first + r.
FlatBody jammed(const FlatBody& body, const std::string& walk, int64_t rows, int64_t extent, int64_t factor, int64_t first) {
  FlatBody result;
  result.name = body.name;
  result.vars = body.vars;
  for (auto& v : result.vars)
    if (v.name == walk) v.extent = extent;
  const auto extents = result.extents();
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<FlatOp> copy = body.ops;
    for (auto& f : copy) {
      const std::map<std::string, Expr> shift{{walk, Expr::var(walk) * Expr(factor) + Expr(first + r)}};
      f.op.index = simplify(f.op.index.substitute(shift), extents);
      f.op.size = simplify(f.op.size.substitute(shift), extents);
    }
    append_ops(result, copy, "_w" + std::to_string(r));
  }
  drop_unit_vars(result);
  eliminate_common(result);
  eliminate_dead(result);
  return result;
}

}  // namespace

Status unroll_window(WorkGroup& work, const std::string& target) {
  FlatBody* body = find_body(work, target);
  if (body == nullptr) return unsupported("no body " + target);
  const FlatOp* reduction = nullptr;
  for (const auto& f : body->ops) {
    if (f.op.code == OpCode::kReduction) {
      if (reduction != nullptr) return unsupported("window: several reductions in " + target);
      reduction = &f;
    }
    if (f.op.code == OpCode::kStore || f.op.code == OpCode::kScan || f.op.code == OpCode::kIndirect || f.op.code == OpCode::kCheckBounds)
      return unsupported("window: " + target + " has other effects");
  }
  if (reduction == nullptr || body->reduce_elements() > kMaxWindow || body->reduce_elements() < 2) return unsupported("window: " + target + " has no short reduction");
  const auto code = chain_op(reduction->op.reduction);
  if (!code || !is_floating(reduction->op.dtype)) return unsupported("window: this reduction");
  const auto late = after_reduction(*body);
  FlatBody result;
  result.name = target;
  std::vector<LoopVar> window;
  for (const auto& v : body->vars) (v.kind == VarKind::kReduce ? window : result.vars).push_back(v);
  const auto extents = result.extents();
  std::vector<FlatOp> before, after;
  for (const auto& f : body->ops) {
    if (f.op.code == OpCode::kReduction) continue;
    const bool is_late = f.op.code == OpCode::kStoreReduction || (f.op.id != kNoValue && late[static_cast<size_t>(f.op.id)]);
    (is_late ? after : before).push_back(f);
  }
  std::vector<int64_t> point(window.size(), 0);
  ValueId total = kNoValue;
  std::map<ValueId, ValueId> ids;
  for (int64_t n = 0; n < body->reduce_elements(); ++n) {
    int64_t rest = n;
    std::map<std::string, Expr> at;
    for (size_t k = window.size(); k-- > 0;) {
      at[window[k].name] = Expr(rest % window[k].extent);
      rest /= window[k].extent;
    }
    std::vector<FlatOp> copy = before;
    for (auto& f : copy) f.op.index = simplify(f.op.index.substitute(at), extents);
    ids = append_ops(result, copy, "_u" + std::to_string(n));
    const ValueId value = ids.at(reduction->op.args[0]);
    if (total == kNoValue) {
      total = value;
      continue;
    }
    FlatOp link;
    link.op.code = *code;
    link.op.dtype = link.op.src_dtype = reduction->op.dtype;
    link.op.args = {total, value};
    total = link.op.id = result.fresh_id();
    result.ops.push_back(link);
  }
  ids[reduction->op.id] = total;
  for (FlatOp f : after) {
    for (auto& arg : f.op.args) {
      if (!ids.count(arg)) return unsupported("window: a value after the reduction has an unexpected input");
      arg = ids.at(arg);
    }
    if (f.op.code == OpCode::kStoreReduction) f.op.code = OpCode::kStore;
    if (f.op.id != kNoValue) f.op.id = ids[f.op.id] = result.fresh_id();
    result.ops.push_back(std::move(f));
  }
  eliminate_common(result);
  eliminate_dead(result);
  *body = std::move(result);
  return ok_status();
}

Status walk_rows(WorkGroup& work, const std::string& target, int64_t rows) {
  FlatBody* body = find_body(work, target);
  if (body == nullptr) return unsupported("no body " + target);
  if (body->has_reduction() || body->has_scan()) return unsupported("rows: " + target + " reduces");
  for (const auto& f : body->ops) {
    if (is_store(f.op) && (f.op.atomic_add || body->reads(f.op.buffer))) return unsupported("rows: " + target + " stores where it reads");
    if (f.op.code == OpCode::kIndirect) return unsupported("rows: " + target + " indexes indirectly");
  }
  const auto chains = std::count_if(body->ops.begin(), body->ops.end(), [](const FlatOp& f) { return is_chain(f.op); });
  if (count_loads(*body) < 4 || chains < 3 || body->ops.size() > kMaxWalkedOps) return unsupported("rows: " + target + " has no windows, or too long ones");
  // The loop along which neighbours share the most loads.
  std::string walk;
  FlatBody best;
  double best_share = 0.8;
  for (const auto& v : body->vars) {
    if (v.kind != VarKind::kIter || v.extent < 2 * rows) continue;
    bool contiguous = false;
    for (const auto& f : body->ops)
      if (is_store(f.op)) {
        const auto affine = affine_in(f.op.index, v.name);
        contiguous = contiguous || !affine || affine->coefficient == 1;
      }
    if (contiguous) continue;
    FlatBody trial = *body;
    if (reassociate(trial, v.name) == 0) continue;
    const int before = count_loads(trial);
    FlatBody together = jammed(trial, v.name, rows, v.extent / rows, rows, 0);
    const double share = static_cast<double>(count_loads(together)) / static_cast<double>(before * rows);
    if (share < best_share) {
      best_share = share;
      walk = v.name;
      best = std::move(trial);
    }
  }
  if (walk.empty()) return unsupported("rows: windows of " + target + " share nothing along any loop");
  const int64_t extent = body->find_var(walk)->extent, whole = extent / rows, rest = extent % rows;
  const size_t at = static_cast<size_t>(body - work.bodies.data());
  FlatBody together = jammed(best, walk, rows, whole, rows, 0);
  together.name = target + ".rows";
  if (rest > 0) {
    // One iteration computes all rows that are left.
    FlatBody last = jammed(best, walk, rest, 1, rest, whole * rows);
    last.name = target + ".rest";
    work.bodies.insert(work.bodies.begin() + static_cast<ptrdiff_t>(at) + 1, std::move(last));
  }
  work.bodies[at] = std::move(together);
  return ok_status();
}

}  // namespace kernelopt
