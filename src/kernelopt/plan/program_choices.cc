#include "kernelopt/plan/program_choices.h"

#include <algorithm>
#include <bit>
#include <set>

namespace kernelopt {
namespace {

constexpr int64_t kRowInRegisters = 1 << 15;  // elements of a row that one program of 32 warps still holds
constexpr int64_t kTile = 4096;               // elements of a tile with plenty of loads in flight
constexpr int64_t kLine = 32;                 // 4-byte elements of one 128-byte line

int64_t ceil_pow2(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, n)))); }

int warps_for(int64_t tile) { return static_cast<int>(std::clamp<int64_t>(tile / 512, 1, 16)); }

}  // namespace

std::vector<ProgramPlan> program_choices(const LoweredNest& nest, const Target& target) {
  int64_t rows = 1, points = 1;
  for (const auto& v : nest.shared) rows *= v.extent;
  bool reduces = false;
  for (const auto& phase : nest.phases) {
    int64_t inner = 1;
    for (const auto& name : phase.loops) inner *= phase.body.find_var(name)->extent;
    points = std::max(points, inner);
    reduces = reduces || phase.body.has_reduction() || phase.body.has_scan();
  }
  const bool across = nest.axis == VectorAxis::kShared;  // memory runs along the last shared loop
  std::vector<ProgramPlan> result;
  const auto add = [&](int64_t block, int64_t inner, int warps, int stages) {
    ProgramPlan plan;
    plan.block = std::min(ceil_pow2(block), ceil_pow2(rows));
    plan.inner_block = inner >= ceil_pow2(points) ? 0 : ceil_pow2(inner);
    if (inner == 0) plan.inner_block = 0;
    plan.warps = std::clamp(warps, 1, 32);
    plan.stages = stages;
    const int64_t columns = plan.inner_block == 0 ? ceil_pow2(points) : plan.inner_block;
    if (columns * plan.block > (1 << 17)) return;
    const bool known = std::any_of(result.begin(), result.end(), [&](const ProgramPlan& p) {
      return p.block == plan.block && p.inner_block == plan.inner_block && p.warps == plan.warps && p.stages == plan.stages;
    });
    if (!known) result.push_back(plan);
  };
  if (points == 1) {
    const int64_t fair = std::max<int64_t>(128, ceil_pow2(rows / (4 * std::max(1, target.threads))));
    for (const int64_t block : {int64_t{1024}, int64_t{512}, int64_t{2048}, int64_t{256}, int64_t{4096}, int64_t{128}})
      for (const int warps : {4, 8})
        if (block <= std::max<int64_t>(fair, 256)) add(block, 0, warps, 1);
    add(fair, 0, 4, 1);
  } else {
    const int64_t columns = ceil_pow2(points);
    if (columns <= kRowInRegisters) {
      const int64_t rows_each = across ? std::max<int64_t>(kLine, kTile / columns) : std::max<int64_t>(1, kTile / columns / 2);
      add(rows_each, 0, warps_for(rows_each * columns), 1);
      add(rows_each, 0, 2 * warps_for(rows_each * columns), 1);
      if (rows_each > 1) add(rows_each / 2, 0, warps_for(rows_each * columns / 2), 1);
      add(2 * rows_each, 0, warps_for(2 * rows_each * columns), 1);
      if (!across) add(1, 0, warps_for(columns), 1);
      if (columns >= 8192) add(1, 0, 32, 1);
    }
    for (const int64_t inner : {int64_t{2048}, int64_t{4096}, int64_t{8192}, int64_t{1024}, int64_t{512}}) {
      if (across || inner >= columns) continue;
      add(1, inner, warps_for(inner), 2);
      add(1, inner, 2 * warps_for(inner), 3);
    }
    for (const int64_t inner : {int64_t{8}, int64_t{16}, int64_t{32}, int64_t{64}}) {
      if (!across || inner >= columns) continue;
      add(64, inner, 4, 2);
      add(128, inner, 8, 2);
      add(32, inner, 4, 3);
    }
  }
  if (result.empty()) add(1, std::min<int64_t>(2048, ceil_pow2(points)), 4, 1);
  return result;
}

std::vector<Move> with_programs(const WorkGroup& work, const std::vector<Move>& moves, const Target& target, size_t choices_each) {
  std::vector<Move> result;
  std::set<std::string> keys;
  for (size_t rank = 0; rank < choices_each; ++rank)
    for (const auto& move : moves) {
      WorkGroup group = work;
      bool applies = true;
      for (const auto& rewrite : move.plan.rewrites) applies = applies && apply_rewrite(group, rewrite).ok();
      if (!applies) continue;
      const auto lowered = lower_work(group, move.plan);
      if (!lowered.ok() || lowered->nests.size() != move.plan.nests.size()) continue;
      Move next = move;
      for (size_t n = 0; n < lowered->nests.size(); ++n) {
        const auto choices = program_choices(lowered->nests[n], target);
        next.plan.nests[n].program = choices[std::min(rank, choices.size() - 1)];
      }
      if (keys.insert(plan_key(next.plan)).second) result.push_back(std::move(next));
    }
  return result;
}

std::vector<Move> program_moves(const WorkGroup& work, const KernelPlan& plan, const Target& target) {
  std::vector<Move> result;
  WorkGroup group = work;
  for (const auto& rewrite : plan.rewrites)
    if (!apply_rewrite(group, rewrite).ok()) return result;
  const auto lowered = lower_work(group, plan);
  if (!lowered.ok() || lowered->nests.size() != plan.nests.size()) return result;
  for (size_t n = 0; n < plan.nests.size(); ++n) {
    const auto& now = plan.nests[n].program;
    for (const auto& choice : team_choices(lowered->nests[n], target)) {
      if (choice.team == now.team && choice.programs == now.programs && choice.inner_block == now.inner_block && choice.warps == now.warps) continue;
      Move move{TransformKind::kKeepRows, "rows kept by " + std::to_string(choice.team) + " programs of " + std::to_string(choice.warps) + " warps in nest " + std::to_string(n), plan};
      move.plan.nests[n].program = choice;
      result.push_back(std::move(move));
    }
    for (const auto& choice : program_choices(lowered->nests[n], target)) {
      if (now.team == 0 && choice.block == now.block && choice.inner_block == now.inner_block && choice.warps == now.warps && choice.stages == now.stages) continue;
      Move move{TransformKind::kTileSize, "", plan};
      if ((choice.inner_block == 0) != (now.inner_block == 0)) move.kind = TransformKind::kReductionStrategy;
      move.description = std::to_string(choice.block) + " rows, " + (choice.inner_block == 0 ? "all" : std::to_string(choice.inner_block)) + " columns, " +
                         std::to_string(choice.warps) + " warps, " + std::to_string(choice.stages) + " stages in nest " + std::to_string(n);
      move.plan.nests[n].program = choice;
      result.push_back(std::move(move));
    }
  }
  return result;
}

}  // namespace kernelopt
