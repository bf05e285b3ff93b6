#include "kernelopt/plan/flat_body.h"

#include <algorithm>
#include <set>

#include "kernelopt/base/check.h"

namespace kernelopt {

const LoopVar* FlatBody::find_var(const std::string& var) const {
  for (const auto& v : vars)
    if (v.name == var) return &v;
  return nullptr;
}
std::map<std::string, int64_t> FlatBody::extents() const {
  std::map<std::string, int64_t> result;
  for (const auto& v : vars) result[v.name] = v.extent;
  return result;
}
int64_t FlatBody::reduce_elements() const {
  int64_t n = 1;
  for (const auto& v : vars)
    if (v.kind == VarKind::kReduce) n *= v.extent;
  return n;
}
bool FlatBody::has_reduction() const {
  return std::any_of(ops.begin(), ops.end(), [](const FlatOp& f) { return f.op.code == OpCode::kReduction; });
}
bool FlatBody::has_scan() const {
  return std::any_of(ops.begin(), ops.end(), [](const FlatOp& f) { return f.op.code == OpCode::kScan; });
}
bool FlatBody::reads(const std::string& buffer) const {
  return std::any_of(ops.begin(), ops.end(), [&](const FlatOp& f) {
    return (f.op.code == OpCode::kLoad || f.op.code == OpCode::kLoadSeed) && f.op.buffer == buffer;
  });
}
bool FlatBody::writes(const std::string& buffer) const {
  return std::any_of(ops.begin(), ops.end(), [&](const FlatOp& f) {
    return (f.op.code == OpCode::kStore || f.op.code == OpCode::kStoreReduction) && f.op.buffer == buffer;
  });
}
const FlatOp* FlatBody::definition(ValueId id) const {
  for (const auto& f : ops)
    if (f.op.id == id && id != kNoValue) return &f;
  return nullptr;
}

bool has_effect(const Op& op) {
  return op.code == OpCode::kStore || op.code == OpCode::kStoreReduction || op.code == OpCode::kCheckBounds ||
         (op.code == OpCode::kIndirect && op.check);
}

namespace {

// Flattens one block; returns the flat id of the block's first result.
ValueId flatten_block(const Block& block, ValueId predicate, std::map<ValueId, ValueId>& ids, FlatBody& flat) {
  for (const auto& op : block.ops) {
    FlatOp f{op, predicate};
    for (auto& arg : f.op.args) arg = ids.at(arg);
    if (op.code == OpCode::kMasked) {
      const ValueId mask = f.op.args[0];
      ValueId inner = mask;
      if (predicate != kNoValue) {
        FlatOp both;
        both.op.code = OpCode::kLogicalAnd;
        both.op.dtype = DType::kBool;
        both.op.id = inner = flat.fresh_id();
        both.op.args = {predicate, mask};
        flat.ops.push_back(both);
      }
      const ValueId value = flatten_block(op.blocks[0], inner, ids, flat);
      FlatOp other;
      other.op.code = OpCode::kConstant;
      other.op.dtype = op.dtype;
      other.op.value = op.value;
      other.op.id = flat.fresh_id();
      flat.ops.push_back(other);
      FlatOp select;
      select.op.code = OpCode::kWhere;
      select.op.dtype = op.dtype;
      select.op.args = {mask, value, other.op.id};
      select.op.id = flat.fresh_id();
      ids[op.id] = select.op.id;
      flat.ops.push_back(select);
      continue;
    }
    if (f.op.id != kNoValue) f.op.id = ids[op.id] = flat.fresh_id();
    flat.ops.push_back(std::move(f));
  }
  return block.results.empty() ? kNoValue : ids.at(block.results[0]);
}

}  // namespace

FlatBody flatten(const Body& body) {
  FlatBody flat;
  flat.name = body.name;
  flat.vars = body.vars;
  std::map<ValueId, ValueId> ids;
  flatten_block(body.block, kNoValue, ids, flat);
  // The index of an argmax is counted in the order in which the body was written, whatever becomes of its loops.
  Expr index(0);
  for (const auto& v : body.vars)
    if (v.kind == VarKind::kReduce) index = index * Expr(v.extent) + Expr::var(v.name);
  for (auto& f : flat.ops)
    if (f.op.code == OpCode::kReduction && (f.op.reduction == ReductionKind::kArgMax || f.op.reduction == ReductionKind::kArgMin)) f.op.index = index;
  return flat;
}

void substitute_vars(FlatBody& body, const std::map<std::string, Expr>& replacement) {
  const auto extents = body.extents();
  for (auto& f : body.ops) {
    f.op.index = simplify(f.op.index.substitute(replacement), extents);
    f.op.size = simplify(f.op.size.substitute(replacement), extents);
  }
}

void drop_unit_vars(FlatBody& body) {
  std::map<std::string, Expr> zero;
  for (const auto& v : body.vars)
    if (v.extent == 1) zero[v.name] = Expr(0);
  if (zero.empty()) return;
  body.vars.erase(std::remove_if(body.vars.begin(), body.vars.end(), [](const LoopVar& v) { return v.extent == 1; }), body.vars.end());
  substitute_vars(body, zero);
}

void rename_var(FlatBody& body, std::string from, std::string to) {
  if (from == to) return;
  for (auto& v : body.vars)
    if (v.name == from) v.name = to;
  const std::map<std::string, Expr> replacement{{from, Expr::var(to)}};
  for (auto& f : body.ops) {
    f.op.index = f.op.index.substitute(replacement);
    f.op.size = f.op.size.substitute(replacement);
  }
}

bool split_var(FlatBody& body, const std::string& var, int64_t inner_extent) {
  for (size_t i = 0; i < body.vars.size(); ++i) {
    if (body.vars[i].name != var) continue;
    const LoopVar old = body.vars[i];
    if (inner_extent <= 0 || old.extent % inner_extent != 0) return false;
    body.vars[i] = {var + "h", old.extent / inner_extent, old.kind};
    body.vars.insert(body.vars.begin() + static_cast<ptrdiff_t>(i) + 1, {var + "l", inner_extent, old.kind});
    substitute_vars(body, {{var, Expr::var(var + "h") * Expr(inner_extent) + Expr::var(var + "l")}});
    return true;
  }
  return false;
}

std::map<ValueId, ValueId> append_ops(FlatBody& body, const std::vector<FlatOp>& from, const std::string& suffix) {
  std::map<ValueId, ValueId> ids;
  std::map<std::string, Expr> symbols;
  for (FlatOp f : from) {
    for (auto& arg : f.op.args) arg = ids.at(arg);
    if (f.predicate != kNoValue) f.predicate = ids.at(f.predicate);
    if (f.op.code == OpCode::kIndirect) {
      const std::string fresh = f.op.symbol + suffix;
      symbols[f.op.symbol] = Expr::var(fresh);
      f.op.symbol = fresh;
    }
    if (!symbols.empty()) {
      f.op.index = f.op.index.substitute(symbols);
      f.op.size = f.op.size.substitute(symbols);
    }
    if (f.op.id != kNoValue) {
      const ValueId id = body.fresh_id();
      ids[f.op.id] = id;
      f.op.id = id;
    }
    body.ops.push_back(std::move(f));
  }
  return ids;
}

void replace_value(FlatBody& body, ValueId from, ValueId to) {
  for (auto& f : body.ops) {
    for (auto& arg : f.op.args)
      if (arg == from) arg = to;
    if (f.predicate == from) f.predicate = to;
  }
}

namespace {

std::string value_key(const FlatOp& f) {
  const Op& op = f.op;
  std::string key = std::to_string(static_cast<int>(op.code)) + "|" + std::to_string(static_cast<int>(op.dtype)) + "|" +
                    std::to_string(static_cast<int>(op.src_dtype)) + "|" + (op.use_compute_types ? "c" : "-");
  for (ValueId arg : op.args) key += "," + std::to_string(arg);
  key += "|" + op.buffer + "|" + op.index.to_string() + "|" + std::to_string(f.predicate) + "|" +
         std::to_string(op.which) + "|" + std::to_string(static_cast<int>(op.reduction));
  if (op.code == OpCode::kConstant) {
    key += "|" + std::to_string(op.value.index()) + "|";
    const double d = scalar_as_double(op.value);
    char text[64];
    std::snprintf(text, sizeof text, "%a", d);
    key += text;
    if (const auto* i = std::get_if<int64_t>(&op.value)) key += "|" + std::to_string(*i);
  }
  return key;
}

}  // namespace

void eliminate_common(FlatBody& body) {
  std::set<std::string> written;
  for (const auto& f : body.ops)
    if (f.op.code == OpCode::kStore || f.op.code == OpCode::kStoreReduction) written.insert(f.op.buffer);
  std::map<std::string, ValueId> known;
  std::map<std::string, ValueId> plain_loads;  // loads without predicate also serve predicated ones
  std::map<ValueId, ValueId> same;
  std::vector<FlatOp> kept;
  for (auto& f : body.ops) {
    for (auto& arg : f.op.args)
      if (const auto at = same.find(arg); at != same.end()) arg = at->second;
    if (const auto at = same.find(f.predicate); at != same.end()) f.predicate = at->second;
    const bool pure = f.op.id != kNoValue && !has_effect(f.op) && f.op.code != OpCode::kIndirect &&
                      f.op.code != OpCode::kScan && f.op.code != OpCode::kSort && f.op.code != OpCode::kRand &&
                      f.op.code != OpCode::kRandn && !(f.op.code == OpCode::kLoad && written.count(f.op.buffer));
    if (pure) {
      // Only memory accesses depend on the predicate.
      if (f.op.code != OpCode::kLoad) f.predicate = kNoValue;
      const std::string key = value_key(f);
      const auto [at, fresh] = known.try_emplace(key, f.op.id);
      if (!fresh) {
        same[f.op.id] = at->second;
        continue;
      }
    }
    kept.push_back(std::move(f));
  }
  body.ops = std::move(kept);
}

void eliminate_dead(FlatBody& body) {
  std::set<ValueId> used;
  std::set<std::string> symbols;
  std::vector<FlatOp> kept;
  for (auto at = body.ops.rbegin(); at != body.ops.rend(); ++at) {
    const Op& op = at->op;
    const bool live = has_effect(op) || (op.id != kNoValue && used.count(op.id)) ||
                      (op.code == OpCode::kIndirect && symbols.count(op.symbol));
    if (!live) continue;
    used.insert(op.args.begin(), op.args.end());
    if (at->predicate != kNoValue) used.insert(at->predicate);
    for (const auto& name : op.index.variables()) symbols.insert(name);
    for (const auto& name : op.size.variables()) symbols.insert(name);
    kept.push_back(std::move(*at));
  }
  std::reverse(kept.begin(), kept.end());
  body.ops = std::move(kept);
}

std::vector<bool> after_reduction(const FlatBody& body) {
  std::vector<bool> after(static_cast<size_t>(body.next_id), false);
  for (const auto& f : body.ops) {
    if (f.op.id == kNoValue) continue;
    bool late = f.op.code == OpCode::kReduction;
    for (ValueId arg : f.op.args) late = late || after[static_cast<size_t>(arg)];
    after[static_cast<size_t>(f.op.id)] = late;
  }
  return after;
}

}  // namespace kernelopt
