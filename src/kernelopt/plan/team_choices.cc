#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "kernelopt/plan/program_choices.h"

namespace kernelopt {
namespace {

constexpr int64_t kShortRow = 4096;        // one program holds such a row in one tensor anyway
constexpr int64_t kLanes = 32, kVector = 4;  // threads of a warp; elements of one wide load
constexpr int64_t kMostPieces = 20;        // beyond that the text grows for nothing

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What a multiprocessor holds: programs at once, their warps, and elements of a row a thread; in the order of what won on an H200
// (docs/results/2026-12-01-h200-rows.md). Nobody bounds the registers of a thread but the number of threads of its program, so those
// with 144 elements are resident whatever the compiler does (255 registers for each of 256 threads); the others need about 70
// registers beside the elements. Bytes in flight count, not threads, and more programs hide each other's waiting better.
struct Shape {
  int programs, warps, held;
};
constexpr Shape kShapes[] = {{4, 2, 144}, {2, 4, 144}, {4, 4, 56}, {8, 1, 144}, {2, 8, 56}, {1, 8, 144}, {1, 16, 64}};

int64_t inner_points(const LoweredPhase& phase) {
  int64_t points = 1;
  for (const auto& name : phase.loops) points *= phase.body.find_var(name)->extent;
  return points;
}

// Elements along the row that stay in registers from one phase to another, for each of its points; 0 for none.
int64_t held_values(const LoweredNest& nest, int64_t points) {
  std::map<std::string, std::set<size_t>> phases;
  for (size_t p = 0; p < nest.phases.size(); ++p) {
    const auto& phase = nest.phases[p];
    if (inner_points(phase) != points) continue;
    for (const auto& f : phase.body.ops) {
      const bool access = f.op.code == OpCode::kLoad || f.op.code == OpCode::kStore;
      if (access && std::any_of(phase.loops.begin(), phase.loops.end(), [&](const std::string& v) { return f.op.index.depends_on(v); }))
        phases[f.op.buffer].insert(p);
    }
  }
  return std::count_if(phases.begin(), phases.end(), [](const auto& entry) { return entry.second.size() > 1; });
}

// The pieces of `share` elements: four vectors a thread, less where that wastes much. Larger ones take more registers at once.
int64_t piece_of(int64_t share, int64_t threads) {
  int64_t best = threads * kVector;
  for (int64_t piece = best; piece <= std::min(share, threads * kVector * 4); piece *= 2)
    if (ceil_div(share, piece) * piece * 16 <= share * 17) best = piece;
  while (ceil_div(share, best) > kMostPieces) best *= 2;
  return best;
}

// As many teams as fit, then teams as large as still leaves that many; a few teams fewer where the pieces then come out even, since a
// mask costs registers for every piece.
void split_evenly(ProgramPlan& plan, int64_t rows, int64_t points, int64_t resident) {
  const int64_t threads = plan.warps * kLanes, least = plan.team, most = std::min(rows, resident / least);
  const auto take = [&](int64_t team, int64_t teams) {
    plan.inner_block = piece_of(ceil_div(points, team), threads);
    const int64_t slice = ceil_div(ceil_div(points, team), plan.inner_block) * plan.inner_block;
    plan.team = ceil_div(points, slice);
    plan.programs = teams * plan.team;
    return plan.team * slice == points;
  };
  for (int64_t teams = most; teams * 8 >= most * 7; --teams)
    for (int64_t team = resident / teams; team >= least; --team)
      if (take(team, teams)) return;
  take(resident / most, most);
}

}  // namespace

std::vector<ProgramPlan> team_choices(const LoweredNest& nest, const Target& target) {
  std::vector<ProgramPlan> result;
  int64_t rows = 1, points = 1;
  for (const auto& v : nest.shared) rows *= v.extent;
  size_t reductions = 0;
  for (const auto& phase : nest.phases) {
    points = std::max(points, inner_points(phase));
    if (phase.body.has_scan()) return result;
    reductions += phase.body.has_reduction() ? 1 : 0;
  }
  const int64_t held = held_values(nest, points);
  if (held == 0 || reductions == 0) return result;
  if (nest.axis == VectorAxis::kShared) {
    // Rows lie side by side: a program takes whole cache lines of them, and pieces instead of the next power of two.
    if (rows < 32 * target.threads || static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(points))) * 10 < points * 11) return result;
    for (const auto& [block, warps] : {std::pair<int64_t, int>{32, 4}, {128, 8}, {64, 8}, {32, 2}}) {
      if (points * block * held > warps * kLanes * int64_t{96}) continue;
      ProgramPlan plan;
      plan.block = block;
      plan.warps = warps;
      plan.team = 1;
      plan.inner_block = 8;
      while (ceil_div(points, plan.inner_block) > 8 || plan.inner_block * block < warps * kLanes * kVector) plan.inner_block *= 2;
      if (plan.inner_block < points) result.push_back(plan);
    }
    return result;
  }
  if (points <= kShortRow) return result;
  for (const auto& shape : kShapes) {
    const int64_t threads = shape.warps * kLanes;
    const int64_t capacity = threads * shape.held / held, resident = int64_t{shape.programs} * target.threads;
    ProgramPlan plan;
    plan.warps = shape.warps;
    plan.team = ceil_div(points, capacity);
    if (plan.team > resident) continue;
    if (plan.team > 1) {
      split_evenly(plan, rows, points, resident);
    } else {
      if (rows < target.threads) continue;
      plan.inner_block = piece_of(points, threads);
    }
    result.push_back(plan);
  }
  // A row of one program's own needs no barrier; several teams hide one another's waiting.
  std::stable_sort(result.begin(), result.end(), [](const ProgramPlan& a, const ProgramPlan& b) {
    const auto rank = [](const ProgramPlan& p) { return p.team == 1 ? 0 : p.programs >= 2 * p.team ? 1 : 2; };
    return rank(a) < rank(b);
  });
  return result;
}

std::vector<Move> with_teams(const WorkGroup& work, const Move& move, const Target& target, size_t most) {
  std::vector<Move> result;
  WorkGroup group = work;
  for (const auto& rewrite : move.plan.rewrites)
    if (!apply_rewrite(group, rewrite).ok()) return result;
  const auto lowered = lower_work(group, move.plan);
  if (!lowered.ok() || lowered->nests.size() != move.plan.nests.size()) return result;
  for (size_t rank = 0; rank < most; ++rank) {
    Move next = move;
    bool any = false;
    for (size_t n = 0; n < lowered->nests.size(); ++n) {
      const auto teams = team_choices(lowered->nests[n], target);
      if (teams.empty()) {
        next.plan.nests[n].program = program_choices(lowered->nests[n], target)[0];
        continue;
      }
      any = any || rank < teams.size();
      next.plan.nests[n].program = teams[std::min(rank, teams.size() - 1)];
    }
    if (any) result.push_back(std::move(next));
  }
  return result;
}

}  // namespace kernelopt
