// Building groups: greedy over program order. A step joins every group that it depends on and that accepts it (two such
// groups become one), and the group that was extended last when they read the same data in the same loops.
//
// Accepting has three parts, each with its reason when it fails.
// Order: the steps between the members can be parted into those that run before the group and those that run after it,
// as the bridge parts them when it stitches; other groups count as one step each, and no two library calls change places.
// Size: what one kernel may reasonably hold.
// Expressibility, judged over phases (regions.h): what crosses from one phase into another must be cheap to pass on: a
// small result, which stays in a near cache across a barrier, or a pointwise value, which its reader may recompute.
#include "kernelopt/fusion/group.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "kernelopt/fusion/accesses.h"
#include "kernelopt/fusion/dependences.h"
#include "kernelopt/fusion/regions.h"

namespace kernelopt {
namespace {

constexpr size_t kMaxBodies = 24;
// Elements of a result that a later phase may read however it likes.
constexpr int64_t kSmallResult = 1 << 14;

bool pointwise(const Body& body) {
  bool result = true;
  for_each_op(body.block, [&](const Op& op) {
    const OpClass kind = op_class(op.code);
    if (kind == OpClass::kReduction || kind == OpClass::kScan || kind == OpClass::kRandom) result = false;
    if (op.atomic_add) result = false;
  });
  return result;
}

class Builder {
 public:
  Builder(const Program& program, const std::vector<std::vector<int>>& challenges)
      : program_(program), challenges_(challenges), order_(program) {
    for (const auto& set : challenges) claimed_.insert(set.begin(), set.end());
  }

  Decomposition run() {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      units_.push_back({static_cast<int>(i)});
      unit_of_.push_back(i);
      schedule_.push_back(i);
    }
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      if (!step.is_loops() || claimed_.count(static_cast<int>(i)) > 0) continue;
      if (groupable(step)) place(i);
      else result_.kept.push_back({program_.graph, step.name, step.refused ? *step.refused : "no loop body"});
    }
    for (const auto& members : units_)
      if (!members.empty() && groupable(program_.steps[static_cast<size_t>(members.front())]) && claimed_.count(members.front()) == 0)
        result_.groups.push_back(describe(members));
    for (const auto& set : challenges_) {
      result_.groups.push_back(describe(set));
      result_.groups.back().challenge = true;
    }
    std::sort(result_.groups.begin(), result_.groups.end(), [](const Group& a, const Group& b) { return a.steps < b.steps; });
    return std::move(result_);
  }

 private:
  using Members = std::vector<int>;

  static bool groupable(const Step& step) {
    return step.is_loops() && !step.refused && !step.bodies.empty();
  }

  void place(size_t at) {
    const int step = static_cast<int>(at);
    // Groups that the step depends on, latest first, then the group that was extended last.
    std::set<size_t> needed;
    for (const int earlier : order_.before(step))
      if (groupable(program_.steps[static_cast<size_t>(earlier)]) && claimed_.count(earlier) == 0) needed.insert(unit_of_[static_cast<size_t>(earlier)]);
    std::vector<size_t> candidates(needed.begin(), needed.end());
    std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) { return units_[a].back() > units_[b].back(); });
    if (last_ && !needed.count(*last_)) candidates.push_back(*last_);

    size_t home = at;
    for (const size_t candidate : candidates) {
      std::vector<size_t> schedule;
      std::string reason = refusal(candidate, home, schedule);
      if (!reason.empty()) {
        result_.refusals.push_back({program_.graph, name(units_[candidate].back()), name(step), std::move(reason)});
        continue;
      }
      schedule_ = std::move(schedule);
      for (const int member : units_[home]) unit_of_[static_cast<size_t>(member)] = candidate;
      units_[candidate] = united(units_[candidate], units_[home]);
      units_[home].clear();
      home = candidate;
    }
    last_ = home;
  }

  const std::string& name(int step) const { return program_.steps[static_cast<size_t>(step)].name; }
  static bool holds(const Members& members, int step) { return std::binary_search(members.begin(), members.end(), step); }
  static Members united(const Members& a, const Members& b) {
    Members all;
    std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
    return all;
  }

  // Why two units cannot be one group; empty if they can, and then `schedule` is the order with the unit `theirs` for both.
  std::string refusal(size_t theirs, size_t mine, std::vector<size_t>& schedule) const {
    const Members all = united(units_[theirs], units_[mine]);
    std::vector<const Body*> bodies;
    std::vector<bool> is_mine;
    for (const int member : all)
      for (const auto& body : program_.steps[static_cast<size_t>(member)].bodies) {
        bodies.push_back(&body);
        is_mine.push_back(holds(units_[mine], member));
      }
    bool path = false;
    std::string order = order_refusal(theirs, mine, schedule, path);
    if (path) return order;
    if (!in_common(bodies, is_mine)) return "no data in common";
    if (!order.empty()) return order;
    if (bodies.size() > kMaxBodies) return "more than " + std::to_string(kMaxBodies) + " loop bodies";
    return plan_refusal(bodies, is_mine);
  }

  bool in_common(const std::vector<const Body*>& bodies, const std::vector<bool>& is_mine) const {
    std::set<std::string> storages[2];
    for (size_t b = 0; b < bodies.size(); ++b)
      for (const auto& access : accesses(*bodies[b])) storages[is_mine[b]].insert(storage_of(program_, access.buffer));
    return std::any_of(storages[0].begin(), storages[0].end(), [&](const auto& name) { return storages[1].count(name) > 0; });
  }

  std::string order_refusal(size_t theirs, size_t mine, std::vector<size_t>& schedule, bool& path) const {
    const auto is_member = [&](size_t unit) { return unit == theirs || unit == mine; };
    const auto first = std::find_if(schedule_.begin(), schedule_.end(), is_member);
    const auto last = std::find_if(first + 1, schedule_.end(), is_member);
    std::vector<size_t> before, after;
    const auto needs_any = [&](size_t unit, const std::vector<size_t>& others) -> std::optional<size_t> {
      for (const int step : units_[unit])
        for (const int earlier : order_.before(step))
          if (std::find(others.begin(), others.end(), unit_of_[static_cast<size_t>(earlier)]) != others.end())
            return unit_of_[static_cast<size_t>(earlier)];
      return std::nullopt;
    };
    for (auto at = first + 1; at != last; ++at) {
      if (needs_any(*at, {*first}) || needs_any(*at, after)) {
        after.push_back(*at);
      } else {
        const auto call = std::find_if(after.begin(), after.end(), [&](size_t unit) { return is_call(unit); });
        if (is_call(*at) && call != after.end())
          return "library calls of steps " + name(units_[*call].front()) + " and " + name(units_[*at].front()) + " would change places";
        before.push_back(*at);
      }
    }
    if (const auto through = needs_any(*last, after)) {
      path = true;
      const Step& outside = program_.steps[static_cast<size_t>(units_[*through].front())];
      return "path through " + kind_name(outside) + "step " + outside.name;
    }
    schedule.assign(schedule_.begin(), first);
    schedule.insert(schedule.end(), before.begin(), before.end());
    schedule.push_back(theirs);
    schedule.insert(schedule.end(), after.begin(), after.end());
    schedule.insert(schedule.end(), last + 1, schedule_.end());
    return "";
  }

  bool is_call(size_t unit) const {
    const Step& step = program_.steps[static_cast<size_t>(units_[unit].front())];
    return !step.is_loops() && (step.kind == StepKind::kExtern || step.kind == StepKind::kTemplate);
  }

  static std::string kind_name(const Step& step) {
    switch (step.kind) {
      case StepKind::kExtern: return "extern ";
      case StepKind::kTemplate: return "template ";
      case StepKind::kNop: return "nop ";
      case StepKind::kGenerated: return step.refused ? "refused " : "";
    }
    return "";
  }

  std::string plan_refusal(const std::vector<const Body*>& bodies, const std::vector<bool>& is_mine) const {
    const std::vector<Phase> phases = split_into_phases(program_, bodies);
    std::vector<size_t> phase_of(bodies.size()), place_of(bodies.size());
    for (size_t p = 0; p < phases.size(); ++p)
      for (size_t at = 0; at < phases[p].bodies.size(); ++at) {
        phase_of[phases[p].bodies[at]] = p;
        place_of[phases[p].bodies[at]] = at;
      }

    bool related = false;
    for (size_t b = 0; b < bodies.size(); ++b)
      for (size_t a = 0; a < b; ++a) {
        if (is_mine[a] == is_mine[b]) continue;
        const auto& loops = phases[phase_of[a]].loops;
        if (phase_of[a] == phase_of[b]) {
          related |= conflicts(program_, *bodies[a], *bodies[b]) ||
                     (loops && shares_reads(program_, *bodies[a], *bodies[b], *loops, place_of[a], place_of[b]));
          continue;
        }
        for (const auto& crossing : crossings(*bodies[a], *bodies[b])) {
          related = true;
          if (crossing.cheap) continue;
          std::string reason;
          if (align_loops(program_, {bodies[a], bodies[b]}, &reason)) reason = "loops of the whole group do not align";
          return reason + " (" + crossing.buffer + ", " + bodies[a]->name + " to " + bodies[b]->name + ")";
        }
      }
    if (!related) return "only inputs in common, read in different loops";
    return "";
  }

  struct Crossing {
    std::string buffer;
    bool cheap;
  };
  // What one body writes and another phase touches, or reads and a later phase overwrites (always cheap: a barrier).
  std::vector<Crossing> crossings(const Body& a, const Body& b) const {
    std::vector<Crossing> result;
    for (const auto& x : accesses(a))
      for (const auto& y : accesses(b)) {
        if (!x.store && !y.store) continue;
        if (storage_of(program_, x.buffer) != storage_of(program_, y.buffer)) continue;
        if (x.buffer != y.buffer && disjoint_views(program_.buffer(x.buffer), program_.buffer(y.buffer))) continue;
        const Buffer& buffer = program_.buffer(x.buffer);
        const bool recomputable = x.buffer == y.buffer && pointwise(a) && !x.indirect;
        result.push_back({x.buffer, !x.store || buffer.elements() <= kSmallResult || recomputable});
      }
    return result;
  }

  Group describe(const Members& members) const {
    Group group;
    group.graph = program_.graph;
    group.steps = members;
    std::set<std::string> written, seen_input, seen_output;
    for (const int member : members) group.challenge |= program_.steps[static_cast<size_t>(member)].extern_call.pool;
    for (const int member : members)
      for (const auto& body : program_.steps[static_cast<size_t>(member)].bodies)
        for (const auto& access : accesses(body)) {
          const bool needs_old = !access.store || access.atomic;
          if (needs_old && !written.count(access.buffer) && seen_input.insert(access.buffer).second)
            group.inputs.push_back(access.buffer);
          if (!access.store) continue;
          written.insert(access.buffer);
          if (!seen_output.insert(access.buffer).second) continue;
          (needed_outside(access.buffer, members) ? group.outputs : group.internals).push_back(access.buffer);
        }
    return group;
  }

  bool needed_outside(const std::string& name, const Members& members) const {
    const Buffer& buffer = program_.buffer(name);
    if (buffer.kind != BufferKind::kComputed || buffer.is_output || !buffer.removable || buffer.base || buffer.mutates) return true;
    const auto listed = [&](const std::vector<std::string>& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
    if (listed(program_.outputs)) return true;
    for (const auto& [other_name, other] : program_.buffers)
      if (other_name != name && storage_of(program_, other_name) == name) return true;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      if (holds(members, static_cast<int>(i))) continue;
      if (listed(step_reads(program_.steps[i])) || listed(step_writes(program_.steps[i]))) return true;
    }
    return false;
  }

  const Program& program_;
  const std::vector<std::vector<int>>& challenges_;
  std::set<int> claimed_;
  const StepOrder order_;
  // A unit is a step or, where steps were merged, a group under the index of one of them; the others are empty.
  std::vector<Members> units_;
  std::vector<size_t> unit_of_;   // of each step
  std::vector<size_t> schedule_;  // units in an order in which they may run
  std::optional<size_t> last_;    // the unit that was extended last
  Decomposition result_;
};

}  // namespace

Decomposition decompose(const Program& program, const std::vector<std::vector<int>>& challenges) { return Builder(program, challenges).run(); }

std::vector<const Body*> group_bodies(const Program& program, const Group& group) {
  std::vector<const Body*> bodies;
  for (const int step : group.steps)
    for (const auto& body : program.steps.at(static_cast<size_t>(step)).bodies) bodies.push_back(&body);
  return bodies;
}

std::vector<int> representatives(const std::vector<Group>& groups) {
  std::vector<int> result;
  std::map<std::string, int> first;
  for (size_t i = 0; i < groups.size(); ++i) {
    KO_CHECK(!groups[i].digest.empty(), "representatives of groups that were not described");
    result.push_back(first.emplace(groups[i].digest, static_cast<int>(i)).first->second);
  }
  return result;
}

}  // namespace kernelopt
