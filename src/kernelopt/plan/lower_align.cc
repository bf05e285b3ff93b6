// Matching the loops of bodies through the memory that both touch.
#include <algorithm>

#include "kernelopt/base/check.h"
#include "kernelopt/plan/lower.h"

namespace kernelopt {

std::optional<Slot> slot_of(const Expr& index, const LoopVar& v, const std::map<std::string, int64_t>& extents) {
  const auto affine = affine_in(index, v.name);
  if (!affine || affine->coefficient <= 0) return std::nullopt;
  const Expr digit = simplify(Expr::mod(Expr::floordiv(index, Expr(affine->coefficient)), Expr(v.extent)), extents);
  if (!(digit == Expr::var(v.name))) return std::nullopt;
  return Slot{affine->coefficient, v.extent};
}

namespace {

bool is_access(const Op& op) {
  return op.code == OpCode::kLoad || op.code == OpCode::kStore || op.code == OpCode::kStoreReduction;
}
bool is_store(const Op& op) { return op.code == OpCode::kStore || op.code == OpCode::kStoreReduction; }

// Names the variable of `body` that is the digit `slot` of `index` as `v.name`; false where none is.
bool match_digit(FlatBody& body, const Expr& index, const Slot& slot, const LoopVar& v, bool any_kind) {
  const auto extents = body.extents();
  for (const auto& name : index.variables())
    if (!extents.count(name)) return false;
  const Expr digit = simplify(Expr::mod(Expr::floordiv(index, Expr(slot.stride)), Expr(slot.extent)), extents);
  if (digit.kind() != Expr::Kind::kVar) return false;
  const LoopVar* found = body.find_var(digit.var_name());
  if (found == nullptr || found->extent != v.extent || (!any_kind && found->kind != VarKind::kIter)) return false;
  if (found->name == v.name) return true;
  if (body.find_var(v.name) != nullptr) return false;
  rename_var(body, std::string(found->name), v.name);
  return true;
}

// The variable and inner extent at which `digit` wants a split, if it is div or mod of one variable.
std::optional<std::pair<std::string, int64_t>> wanted_split(const Expr& digit) {
  if (digit.kind() == Expr::Kind::kMod || digit.kind() == Expr::Kind::kFloorDiv) {
    const Expr &a = digit.args()[0], &b = digit.args()[1];
    if (!b.is_const()) return std::nullopt;
    if (a.kind() == Expr::Kind::kVar) return std::pair{a.var_name(), b.const_value()};
    return wanted_split(a);
  }
  return std::nullopt;
}

// Accesses worth trying, stores first: a body with many loads of one buffer is matched by a few of them.
constexpr int kAccessesTried = 3;
struct Access {
  std::string buffer;
  Expr index;
  bool store;
  size_t op;
};
std::vector<Access> accesses_of(const FlatBody& body) {
  std::vector<Access> result;
  std::map<std::string, int> tried;
  for (const bool stores : {true, false})
    for (size_t i = 0; i < body.ops.size(); ++i) {
      const Op& op = body.ops[i].op;
      if (!is_access(op) || is_store(op) != stores || tried[op.buffer] >= kAccessesTried) continue;
      const bool seen = std::any_of(result.begin(), result.end(), [&](const Access& a) { return a.buffer == op.buffer && a.index == op.index; });
      if (seen) continue;
      ++tried[op.buffer];
      result.push_back({op.buffer, op.index, stores, i});
    }
  return result;
}

}  // namespace

AlignResult align(const FlatBody& other, const std::vector<LoopVar>& names, FlatBody& body, bool any_kind) {
  const auto other_extents = other.extents();
  const auto theirs = accesses_of(other), ours = accesses_of(body);
  for (const auto& v : names) {
    if (body.find_var(v.name) != nullptr) {
      if (body.find_var(v.name)->extent != v.extent) return {false, v.name};
      continue;
    }
    bool matched = false;
    // Dependences first, then memory that both only read.
    for (int round = 0; round < 2 && !matched; ++round) {
      for (const auto& their : theirs) {
        if (matched) break;
        const bool common = std::any_of(ours.begin(), ours.end(), [&](const Access& our) {
          return our.buffer == their.buffer && (our.store || their.store) == (round == 0);
        });
        if (!common) continue;
        const auto slot = slot_of(their.index, v, other_extents);
        if (!slot) continue;
        for (const auto& our : ours) {
          if (matched) break;
          if (our.buffer != their.buffer || (our.store || their.store) != (round == 0)) continue;
          for (int splits = 0; splits < 3; ++splits) {
            const Expr index = body.ops[our.op].op.index;  // splits change it
            if (match_digit(body, index, *slot, v, any_kind)) {
              matched = true;
              break;
            }
            const auto extents = body.extents();
            bool known = true;
            for (const auto& name : index.variables()) known = known && extents.count(name) > 0;
            if (!known) break;
            const Expr digit = simplify(Expr::mod(Expr::floordiv(index, Expr(slot->stride)), Expr(slot->extent)), extents);
            const auto wish = wanted_split(digit);
            if (!wish) break;
            const LoopVar* at = body.find_var(wish->first);
            if (at == nullptr || at->extent <= wish->second || (!any_kind && at->kind != VarKind::kIter)) break;
            if (!split_var(body, wish->first, wish->second)) break;
          }
        }
      }
    }
    if (!matched) return {false, v.name};
  }
  return {true, {}};
}

double access_cost(const Expr& index, const std::string& loop, int lanes, bool store) {
  const auto affine = affine_in(index, loop);
  if (!affine) return (store ? 2.0 : 1.5) * lanes;
  // Symbols of indirect accesses may depend on the loop; the caller knows, here they count as uniform.
  if (affine->coefficient == 0) return store ? 2.0 : 0.1;
  if (affine->coefficient == 1) return 1;
  if (affine->coefficient == 2 && !store) return 3;
  return (store ? 1.5 : 1.0) * lanes;
}

std::string best_vector_loop(const FlatBody& body, const std::vector<std::string>& candidates, int lanes) {
  std::string best;
  double best_cost = 0;
  for (const auto& name : candidates) {
    const LoopVar* v = body.find_var(name);
    if (v == nullptr) continue;
    double cost = 0;
    for (const auto& f : body.ops) {
      if (!is_access(f.op)) continue;
      cost += access_cost(f.op.index, name, lanes, is_store(f.op) && f.op.code == OpCode::kStore);
    }
    cost = cost + 0.5;
    // Lanes left empty.
    const double filled = static_cast<double>(v->extent) / static_cast<double>((v->extent + lanes - 1) / lanes * lanes);
    cost /= filled;
    if (best.empty() || cost < best_cost * 0.999) {
      best = name;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace kernelopt
