// Building groups: greedy over program order. A step is tried with the group that was extended last, then with every
// group that it depends on; the first that accepts takes it.
//
// Accepting has three parts, each with its reason when it fails: order (the group runs where its last member stood, so no
// step outside may stand between and depend on a member), size, and expressibility. The last is judged over phases
// (regions.h): the bodies of the new step must share loops with the group's last phase, or what crosses into a new phase
// must be cheap to pass on: a small result, which stays in a near cache across a barrier, or a pointwise value, which its
// reader may recompute.
#include "kernelopt/fusion/group.h"

#include <algorithm>
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
  explicit Builder(const Program& program) : program_(program), order_(program) {}

  Decomposition run() {
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      if (step.kind != StepKind::kGenerated) continue;
      if (step.refused || step.bodies.empty()) {
        result_.kept.push_back({program_.graph, step.name, step.refused ? *step.refused : "no loop body"});
        continue;
      }
      place(static_cast<int>(i));
    }
    std::sort(groups_.begin(), groups_.end());
    for (const auto& members : groups_) result_.groups.push_back(describe(members));
    return std::move(result_);
  }

 private:
  using Members = std::vector<int>;

  void place(int step) {
    std::vector<size_t> candidates;
    if (last_) candidates.push_back(*last_);
    for (size_t g = groups_.size(); g-- > 0;) {
      if (last_ && g == *last_) continue;
      if (std::any_of(groups_[g].begin(), groups_[g].end(), [&](int member) { return order_.depends(step, member); }))
        candidates.push_back(g);
    }
    std::vector<MergeRefusal> refusals;
    for (const size_t g : candidates) {
      std::string reason = refusal(groups_[g], step);
      if (reason.empty()) {
        groups_[g].push_back(step);
        last_ = g;
        return;
      }
      refusals.push_back({program_.graph, name(groups_[g].back()), name(step), std::move(reason)});
    }
    result_.refusals.insert(result_.refusals.end(), refusals.begin(), refusals.end());
    groups_.push_back({step});
    last_ = groups_.size() - 1;
  }

  const std::string& name(int step) const { return program_.steps[static_cast<size_t>(step)].name; }
  static bool holds(const Members& members, int step) { return std::binary_search(members.begin(), members.end(), step); }

  // Why `step`, later than every member, cannot join; empty if it can.
  std::string refusal(const Members& members, int step) const {
    if (std::string reason = order_refusal(members, step); !reason.empty()) return reason;
    std::vector<const Body*> bodies;
    std::vector<int> owner;
    for (const int member : members) append(member, bodies, owner);
    append(step, bodies, owner);
    if (bodies.size() > kMaxBodies) return "more than " + std::to_string(kMaxBodies) + " loop bodies";
    return plan_refusal(bodies, owner, step);
  }

  // The group runs at the place of its last member, `step`. Whatever stands before that place and outside the group runs
  // first, so it must not depend on a member; this also forbids every path from a member through it to the step.
  std::string order_refusal(const Members& members, int step) const {
    for (int between = members.front() + 1; between < step; ++between) {
      if (holds(members, between)) continue;
      for (const int member : members) {
        if (member >= between || !order_.depends(between, member)) continue;
        const Step& outside = program_.steps[static_cast<size_t>(between)];
        if (order_.reaches(between, step)) return "path through " + kind_name(outside) + "step " + outside.name;
        return kind_name(outside) + "step " + outside.name + " between needs " + order_.cause(between, member);
      }
    }
    return "";
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

  void append(int step, std::vector<const Body*>& bodies, std::vector<int>& owner) const {
    for (const auto& body : program_.steps[static_cast<size_t>(step)].bodies) {
      bodies.push_back(&body);
      owner.push_back(step);
    }
  }

  std::string plan_refusal(const std::vector<const Body*>& bodies, const std::vector<int>& owner, int step) const {
    const std::vector<Phase> phases = split_into_phases(program_, bodies);
    std::vector<size_t> phase_of(bodies.size());
    for (size_t p = 0; p < phases.size(); ++p)
      for (const size_t b : phases[p].bodies) phase_of[b] = p;

    bool related = false;
    for (size_t b = 0; b < bodies.size(); ++b) {
      if (owner[b] != step) continue;
      for (size_t a = 0; a < b; ++a) {
        if (owner[a] == step) continue;
        if (phase_of[a] == phase_of[b]) {
          related |= shares_memory(*bodies[a], *bodies[b]);
          continue;
        }
        for (const auto& crossing : crossings(*bodies[a], *bodies[b])) {
          related = true;
          if (crossing.cheap) continue;
          std::string reason;
          if (align_loops(program_, {bodies[a], bodies[b]}, &reason)) reason = "loops of the group do not align";
          return reason + " (" + crossing.buffer + ", " + bodies[a]->name + " to " + bodies[b]->name + ")";
        }
      }
    }
    if (!related) return "no data in common in shared loops";
    return "";
  }

  bool shares_memory(const Body& a, const Body& b) const {
    for (const auto& x : accesses(a))
      for (const auto& y : accesses(b))
        if (storage_of(program_, x.buffer) == storage_of(program_, y.buffer)) return true;
    return false;
  }

  struct Crossing {
    std::string buffer;
    bool cheap;
  };
  // What one body writes and a later phase touches, or reads and a later phase overwrites (always cheap: a barrier).
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
  const StepOrder order_;
  std::vector<Members> groups_;
  std::optional<size_t> last_;
  Decomposition result_;
};

}  // namespace

Decomposition decompose(const Program& program) { return Builder(program).run(); }

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
