// Shared outer loops: candidates by refining the iteration loops of all bodies side by side, then a proof per buffer that
// accesses to one element meet in one outer iteration.
#include "kernelopt/fusion/regions.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "kernelopt/fusion/accesses.h"
#include "kernelopt/fusion/coverage.h"

namespace kernelopt {
namespace {

using Order = std::vector<size_t>;  // indices into Body::vars, iteration variables only

Order natural_order(const Body& body) {
  Order order;
  for (size_t i = 0; i < body.vars.size(); ++i)
    if (body.vars[i].kind == VarKind::kIter) order.push_back(i);
  return order;
}

// The outer loops that all bodies have in common when their loops are read in the given orders: repeatedly the greatest
// common divisor of what is left of everybody's current loop.
AlignedLoops refine(const std::vector<const Body*>& bodies, const std::vector<Order>& orders) {
  struct Cursor {
    size_t at = 0;
    int64_t left = 0;  // what is left of the current loop
    std::map<std::string, std::vector<std::pair<std::string, int64_t>>> parts;  // var -> (outer name, extent) from outside in
  };
  std::vector<Cursor> cursors(bodies.size());
  const auto advance = [&](size_t b) {
    Cursor& cursor = cursors[b];
    while (cursor.left <= 1) {
      if (cursor.left == 1) ++cursor.at;
      if (cursor.at >= orders[b].size()) return false;
      cursor.left = bodies[b]->vars[orders[b][cursor.at]].extent;
    }
    return true;
  };
  AlignedLoops aligned;
  for (;;) {
    int64_t common = 0;
    bool all = true;
    for (size_t b = 0; b < bodies.size() && all; ++b) {
      all = advance(b);
      common = all ? std::gcd(common, cursors[b].left) : 0;
    }
    if (!all || common <= 1) break;
    const std::string name = "o" + std::to_string(aligned.outer.size());
    aligned.outer.push_back({name, common, VarKind::kIter});
    for (size_t b = 0; b < bodies.size(); ++b) {
      Cursor& cursor = cursors[b];
      cursor.parts[bodies[b]->vars[orders[b][cursor.at]].name].emplace_back(name, common);
      cursor.left /= common;
    }
  }
  for (size_t b = 0; b < bodies.size(); ++b) {
    LoopView view;
    for (const auto& var : bodies[b]->vars) {
      int64_t rest = var.extent;
      std::vector<Expr> terms;
      if (const auto found = cursors[b].parts.find(var.name); found != cursors[b].parts.end()) {
        for (const auto& [outer, extent] : found->second) {
          rest /= extent;
          terms.push_back(Expr::var(outer) * rest);
        }
        if (rest > 1) {
          view.inner.push_back({var.name + "_in", rest, var.kind});
          terms.push_back(Expr::var(var.name + "_in"));
        }
      } else {
        view.inner.push_back(var);
        terms.push_back(Expr::var(var.name));
      }
      view.vars[var.name] = Expr::add(std::move(terms));
    }
    aligned.views.push_back(std::move(view));
  }
  return aligned;
}

// Iteration variables of `body` in an order in which their strides in a buffer common with `reference` follow those of
// the reference's loops; nullopt when there is no such buffer or no stride to follow.
std::optional<Order> order_after(const Body& body, const Body& reference, const Order& reference_order) {
  const auto mine = accesses(body), theirs = accesses(reference);
  for (const auto& a : mine)
    for (const auto& b : theirs) {
      if (a.buffer != b.buffer || !(a.store || b.store) || a.indirect || b.indirect) continue;
      Order order;
      std::set<size_t> used;
      for (const size_t at : reference_order) {
        const auto wanted = affine_in(b.index, reference.vars[at].name);
        if (!wanted || wanted->coefficient == 0) continue;
        for (size_t i = 0; i < body.vars.size(); ++i) {
          if (body.vars[i].kind != VarKind::kIter || used.count(i)) continue;
          const auto stride = affine_in(a.index, body.vars[i].name);
          if (!stride || stride->coefficient != wanted->coefficient || body.vars[i].extent != reference.vars[at].extent) continue;
          order.push_back(i);
          used.insert(i);
          break;
        }
      }
      if (order.empty()) continue;
      for (const size_t i : natural_order(body))
        if (!used.count(i)) order.push_back(i);
      return order;
    }
  return std::nullopt;
}

std::vector<std::vector<Order>> order_choices(const std::vector<const Body*>& bodies) {
  std::vector<Order> natural;
  for (const Body* body : bodies) natural.push_back(natural_order(*body));
  std::vector<std::vector<Order>> choices = {natural};
  // With one body's loops as they are, the others follow its memory order, each by way of any body already placed.
  std::set<size_t> references = {0, bodies.size() - 1};
  for (const size_t reference : references) {
    std::vector<Order> orders = natural;
    std::vector<bool> placed(bodies.size(), false);
    placed[reference] = true;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t b = 0; b < bodies.size(); ++b) {
        for (size_t p = 0; p < bodies.size() && !placed[b]; ++p) {
          if (!placed[p]) continue;
          if (auto order = order_after(*bodies[b], *bodies[p], orders[p])) {
            orders[b] = std::move(*order);
            placed[b] = moved = true;
          }
        }
      }
    }
    if (orders != natural) choices.push_back(std::move(orders));
  }
  return choices;
}

// One access under a view, with the inner names made unique by `suffix`.
Expr viewed_index(const Access& access, const LoopView& view, const std::string& suffix) {
  std::map<std::string, Expr> renamed;
  for (const auto& var : view.inner) renamed.emplace(var.name, Expr::var(var.name + suffix));
  return access.index.substitute(view.vars).substitute(renamed);
}

void add_extents(const LoopView& view, const Body& body, const std::string& suffix, std::map<std::string, int64_t>& extents) {
  for (const auto& var : view.inner) extents[var.name + suffix] = var.extent;
  for (const auto& [symbol, size] : symbol_extents(body)) extents[symbol] = size;
}

// The variables of two bodies under shared loops, the inner ones of the first suffixed by #l and of the second by #r.
struct PairView {
  PairView(const Body& first, const Body& second, const AlignedLoops& aligned, size_t at_first, size_t at_second) {
    for (const auto& var : aligned.outer) {
      extents[var.name] = var.extent;
      outer.insert(var.name);
    }
    add_extents(aligned.views[at_first], first, "#l", extents);
    add_extents(aligned.views[at_second], second, "#r", extents);
    for (const auto& var : aligned.views[at_first].inner) inner_left.insert(var.name + "#l");
    for (const auto& var : aligned.views[at_second].inner) inner_right.insert(var.name + "#r");
  }
  std::map<std::string, int64_t> extents;
  std::set<std::string> outer, inner_left, inner_right;
};

// Whether bodies `first` and `second` can share the outer loops: "" or the reason why not.
std::string conflict(const Program& program, const std::vector<const Body*>& bodies, const AlignedLoops& aligned, size_t first,
                     size_t second) {
  const auto left = accesses(*bodies[first]), right = accesses(*bodies[second]);
  const PairView pair(*bodies[first], *bodies[second], aligned, first, second);
  for (const auto& a : left)
    for (const auto& b : right) {
      if (!a.store && !b.store) continue;
      if (storage_of(program, a.buffer) != storage_of(program, b.buffer)) continue;
      if (a.buffer != b.buffer) {
        if (disjoint_views(program.buffer(a.buffer), program.buffer(b.buffer))) continue;
        return a.buffer + " and " + b.buffer + " share memory";
      }
      if (a.atomic || b.atomic) return "atomic add into " + a.buffer;
      // The store side owns the region: its elements are distinct over all iterations, so an access inside its region of
      // the same outer iteration meets that iteration's store and no other's.
      const bool left_owns = a.store;
      const Access& owner = left_owns ? a : b;
      if (owner.indirect) return "indirect store into " + owner.buffer;
      const Expr store = viewed_index(owner, aligned.views[left_owns ? first : second], left_owns ? "#l" : "#r");
      const Expr other = viewed_index(left_owns ? b : a, aligned.views[left_owns ? second : first], left_owns ? "#r" : "#l");
      if (!region_covers(store, other, pair.outer, left_owns ? pair.inner_left : pair.inner_right, pair.extents))
        return "regions of " + a.buffer + " do not align";
    }
  return "";
}

}  // namespace

std::map<std::string, int64_t> AlignedLoops::extents(size_t at) const {
  std::map<std::string, int64_t> result;
  for (const auto& var : outer) result[var.name] = var.extent;
  for (const auto& var : views.at(at).inner) result[var.name] = var.extent;
  return result;
}

AlignedLoops with_outer(const AlignedLoops& aligned, size_t count) {
  KO_CHECK(count >= 1 && count <= aligned.outer.size(), "number of outer loops");
  AlignedLoops result;
  result.outer.assign(aligned.outer.begin(), aligned.outer.begin() + static_cast<std::ptrdiff_t>(count));
  for (const auto& view : aligned.views) {
    // Every outer loop is the leading part of one variable; what leaves rejoins that variable's inner loop.
    LoopView fresh = view;
    std::vector<LoopVar> moved;
    for (size_t i = aligned.outer.size(); i-- > count;) {
      const LoopVar& leaving = aligned.outer[i];
      const auto owner = std::find_if(fresh.vars.begin(), fresh.vars.end(),
                                      [&](const auto& entry) { return entry.second.depends_on(leaving.name); });
      KO_CHECK(owner != fresh.vars.end(), "outer loop " + leaving.name + " belongs to no variable");
      const auto split = affine_in(owner->second, leaving.name);
      const std::string part = owner->first + "_in";
      const bool last = std::none_of(aligned.outer.begin(), aligned.outer.begin() + static_cast<std::ptrdiff_t>(i),
                                     [&](const LoopVar& var) { return owner->second.depends_on(var.name); });
      const std::string name = last ? owner->first : part;
      const LoopVar merged{name, leaving.extent * split->coefficient, VarKind::kIter};
      owner->second = split->rest.substitute({{part, Expr(0)}}) + Expr::var(name);
      std::erase_if(fresh.inner, [&](const LoopVar& var) { return var.name == part; });
      std::erase_if(moved, [&](const LoopVar& var) { return var.name == part; });
      moved.insert(moved.begin(), merged);
    }
    fresh.inner.insert(fresh.inner.begin(), moved.begin(), moved.end());
    result.views.push_back(std::move(fresh));
  }
  return result;
}

std::optional<AlignedLoops> align_loops(const Program& program, const std::vector<const Body*>& bodies, std::string* reason) {
  KO_CHECK(!bodies.empty(), "align_loops of no body");
  std::optional<AlignedLoops> best;
  int64_t best_iterations = 1;
  std::string cause = "no common outer loop";
  for (const auto& orders : order_choices(bodies)) {
    const AlignedLoops full = refine(bodies, orders);
    for (size_t count = full.outer.size(); count > 0; --count) {
      const AlignedLoops aligned = count == full.outer.size() ? full : with_outer(full, count);
      int64_t iterations = 1;
      for (const auto& var : aligned.outer) iterations *= var.extent;
      if (iterations <= best_iterations) break;
      std::string why;
      for (size_t j = 1; j < bodies.size() && why.empty(); ++j)
        for (size_t i = 0; i < j && why.empty(); ++i) why = conflict(program, bodies, aligned, i, j);
      if (why.empty()) {
        best = aligned;
        best_iterations = iterations;
        break;
      }
      cause = std::move(why);
    }
  }
  if (!best && reason) *reason = cause;
  return best;
}

std::optional<LocalRegion> local_region(const Body& body, const AlignedLoops& aligned, size_t at, const std::string& buffer) {
  std::map<std::string, int64_t> extents = aligned.extents(at);
  for (const auto& [symbol, size] : symbol_extents(body)) extents[symbol] = size;
  std::map<std::string, Expr> at_zero;
  for (const auto& var : aligned.views.at(at).inner) at_zero.emplace(var.name, Expr(0));
  std::optional<Expr> base;
  std::optional<Interval> range;
  for (const auto& access : accesses(body)) {
    if (access.buffer != buffer) continue;
    const Expr index = simplify(access.index.substitute(aligned.views[at].vars), extents);
    if (!base) {
      std::map<std::string, Expr> symbols_at_zero = at_zero;
      for (const auto& [symbol, size] : symbol_extents(body)) symbols_at_zero.emplace(symbol, Expr(0));
      base = simplify(index.substitute(symbols_at_zero), extents);
    }
    const auto inside = bounds(simplify(index - *base, extents), [&](const std::string& name) -> std::optional<Interval> {
      const auto found = extents.find(name);
      if (found == extents.end()) return std::nullopt;
      return Interval{0, found->second - 1};
    });
    if (!inside) return std::nullopt;
    range = !range ? *inside : Interval{std::min(range->low, inside->low), std::max(range->high, inside->high)};
  }
  if (!base) return std::nullopt;
  return LocalRegion{*base + range->low, range->high - range->low + 1};
}

bool shares_reads(const Program& program, const Body& first, const Body& second, const AlignedLoops& aligned, size_t at_first,
                  size_t at_second) {
  const PairView pair(first, second, aligned, at_first, at_second);
  for (const auto& a : accesses(first))
    for (const auto& b : accesses(second)) {
      if (a.store || b.store || a.indirect || b.indirect || a.buffer != b.buffer) continue;
      if (program.buffer(a.buffer).elements() <= 1) continue;
      const Expr left = viewed_index(a, aligned.views[at_first], "#l"), right = viewed_index(b, aligned.views[at_second], "#r");
      if (parallel_regions(left, right, pair.outer, pair.inner_left, pair.inner_right, pair.extents) ||
          region_covers(left, right, pair.outer, pair.inner_left, pair.extents) ||
          region_covers(right, left, pair.outer, pair.inner_right, pair.extents))
        return true;
    }
  return false;
}

bool conflicts(const Program& program, const Body& first, const Body& second) {
  for (const auto& a : accesses(first))
    for (const auto& b : accesses(second)) {
      if (!a.store && !b.store) continue;
      if (storage_of(program, a.buffer) != storage_of(program, b.buffer)) continue;
      if (a.buffer != b.buffer && disjoint_views(program.buffer(a.buffer), program.buffer(b.buffer))) continue;
      return true;
    }
  return false;
}

namespace {

int64_t iterations(const std::optional<AlignedLoops>& loops) {
  int64_t count = 1;
  if (loops)
    for (const auto& var : loops->outer) count *= var.extent;
  return count;
}

// Whether body `b` may join `phase`; then the phase is changed.
bool join_phase(const Program& program, const std::vector<const Body*>& bodies, size_t b, Phase& phase) {
  if (!phase.loops) return false;
  std::vector<const Body*> together;
  for (const size_t member : phase.bodies) together.push_back(bodies[member]);
  together.push_back(bodies[b]);
  auto loops = align_loops(program, together);
  if (!loops) return false;
  const size_t last = together.size() - 1;
  bool related = false;
  for (size_t at = 0; at < last && !related; ++at)
    related = conflicts(program, *together[at], *bodies[b]) || shares_reads(program, *together[at], *bodies[b], *loops, at, last);
  if (!related && (iterations(loops) < iterations(phase.loops) || iterations(loops) < bodies[b]->iter_elements())) return false;
  phase.bodies.push_back(b);
  phase.loops = std::move(loops);
  return true;
}

}  // namespace

std::vector<Phase> split_into_phases(const Program& program, const std::vector<const Body*>& bodies) {
  std::vector<Phase> phases;
  for (size_t b = 0; b < bodies.size(); ++b) {
    size_t earliest = 0;
    for (size_t p = 0; p < phases.size(); ++p)
      for (const size_t member : phases[p].bodies)
        if (conflicts(program, *bodies[member], *bodies[b])) earliest = p;
    bool joined = false;
    for (size_t p = earliest; p < phases.size() && !joined; ++p) joined = join_phase(program, bodies, b, phases[p]);
    if (!joined) phases.push_back({{b}, align_loops(program, {bodies[b]})});
  }
  return phases;
}

namespace {

std::vector<std::string> touched(const Body& body, bool stores) {
  std::vector<std::string> result;
  for (const auto& access : accesses(body))
    if (access.store == stores && std::find(result.begin(), result.end(), access.buffer) == result.end())
      result.push_back(access.buffer);
  return result;
}

}  // namespace

std::vector<std::string> loaded_buffers(const Body& body) { return touched(body, false); }
std::vector<std::string> stored_buffers(const Body& body) { return touched(body, true); }

const std::string& storage_of(const Program& program, const std::string& buffer) {
  const std::string* name = &buffer;
  for (size_t hops = 0; hops <= program.buffers.size(); ++hops) {
    const Buffer& at = program.buffer(*name);
    const std::string* next = at.mutates ? &*at.mutates : at.base ? &*at.base : nullptr;
    if (!next) return at.name;
    name = next;
  }
  check_failed(__FILE__, __LINE__, "storage_of", "a cycle of bases at " + buffer);
}

}  // namespace kernelopt
