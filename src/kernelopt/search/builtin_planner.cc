#include "kernelopt/search/builtin_planner.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace kernelopt {
namespace {

constexpr double kPriorWeight = 1.5;    // attempts that a prior is worth
constexpr double kNewShapeBonus = 0.5;  // larger than what a size usually gives
constexpr double kRepeatPenalty = 0.1;  // for each move of the same kind in one proposal
constexpr double kMemoryWeight = 3;     // attempts that all of the memory is worth, at most
constexpr double kAvoidPenalty = 0.3;   // of what the memory marks AVOID: last, and still allowed
constexpr double kStartRank = 0.03;     // what one place in the space's own order of starting points is worth
constexpr double kJitter = 1e-3;        // breaks ties, differently for each seed

}  // namespace

double prior_gain(Bottleneck bottleneck, TransformKind kind) {
  const bool memory = bottleneck == Bottleneck::kMemory;
  const bool compute = bottleneck == Bottleneck::kCompute;
  const bool idle = bottleneck == Bottleneck::kUnderutilized;
  switch (kind) {
    case TransformKind::kFuseSteps: return memory ? 0.25 : 0.15;
    case TransformKind::kReductionStrategy: return 0.20;
    case TransformKind::kWindowReuse: return 0.25;
    case TransformKind::kSharedLoops: return memory ? 0.20 : 0.12;
    case TransformKind::kVectorAxis: return compute ? 0.20 : 0.15;
    case TransformKind::kParallel: return idle ? 0.25 : 0.05;
    case TransformKind::kSplitReduction: return idle ? 0.20 : 0.08;
    case TransformKind::kLoopOrder: return 0.10;
    case TransformKind::kTranspose: return memory ? 0.15 : 0.08;
    case TransformKind::kRecompute: return memory ? 0.12 : 0.03;
    case TransformKind::kStore: return compute ? 0.12 : 0.03;
    case TransformKind::kStreamStores: return memory ? 0.15 : 0.02;
    case TransformKind::kMath: return compute ? 0.15 : 0.05;
    case TransformKind::kUnroll: return compute ? 0.10 : 0.06;
    case TransformKind::kKeepRows: return memory ? 0.30 : 0.10;
    case TransformKind::kNumberFormat: return 0.4;
    case TransformKind::kTileSize: return 0.08;
    case TransformKind::kCutSteps: return 0.05;
    case TransformKind::kPrefetch: return memory ? 0.05 : 0.01;
    case TransformKind::kSeed: return 0.0;
  }
  return 0.0;
}

std::map<TransformKind, KindRecord> kind_records(const std::vector<Attempt>& history) {
  std::map<TransformKind, KindRecord> records;
  for (const auto& attempt : history) {
    if (attempt.evaluation.state == AttemptState::kError || attempt.evaluation.state == AttemptState::kDuplicate) continue;
    auto& record = records[attempt.kind];
    ++record.tried;
    if (attempt.measured()) record.log_gain += std::max(0.0, std::log(attempt.parent_ratio.value_or(1.0) / attempt.ratio()));
  }
  return records;
}

BuiltinPlanner::BuiltinPlanner(std::shared_ptr<const PlanSource> source, Bottleneck bottleneck, uint64_t seed,
                               const StrategyMemory* memory, const Predictor* predictor)
    : source_(std::move(source)), bottleneck_(bottleneck), seed_(seed), memory_(memory), predictor_(predictor) {}

double BuiltinPlanner::kind_gain(TransformKind kind, const KindRecord& record) const {
  double gain = prior_gain(bottleneck_, kind) * kPriorWeight + record.log_gain, weight = kPriorWeight + record.tried;
  if (!memory_) return gain / weight;
  const auto known = memory_->strategy(bottleneck_, kind);
  if (known.tried > 0) {
    const double counts = std::min(kMemoryWeight, static_cast<double>(known.tried));
    gain += known.log_gain / known.tried * counts;
    weight += counts;
  }
  return gain / weight - (memory_->avoid(bottleneck_, kind) ? kAvoidPenalty : 0);
}

// The space gives its best guess first; the diagnosis and the memory may pull a later one forward, by little.
std::vector<Move> BuiltinPlanner::starts() const {
  auto moves = source_->starts();
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < moves.size(); ++i)
    order.emplace_back(kStartRank * static_cast<double>(i) - kind_gain(moves[i].kind, {}), i);
  std::stable_sort(order.begin(), order.end());
  std::vector<Move> result;
  for (const auto& [rank, index] : order) result.push_back(std::move(moves[index]));
  return result;
}

std::vector<Proposal> BuiltinPlanner::propose(const PlanRequest& request) {
  std::vector<Proposal> result;
  std::set<std::string> taken;
  const auto offer = [&](const Move& move) {
    const auto key = plan_key(move.plan);
    if (request.seen->count(key) || !taken.insert(key).second) return;
    result.push_back(move);
  };
  const auto full = [&] { return static_cast<int>(result.size()) >= request.count; };

  if (!request.parent) {
    for (const auto& move : starts()) {
      if (full()) return result;
      offer(move);
    }
    if (request.starts_only || full()) return result;
    offer(Move{TransformKind::kSeed, "as the compiler generated it", source_->seed()});
    if (full()) return result;
  }

  std::set<std::string> shapes;
  for (const auto& attempt : *request.history) shapes.insert(attempt.shape_key);
  const auto records = kind_records(*request.history);
  const bool shapes_first = request.diversify || request.round <= std::ceil(kShapeRounds * request.rounds);
  std::mt19937_64 random(seed_ * 1000003 + request.history->size());

  struct Scored {
    Move move;
    std::string shape;
    double score;
  };
  std::vector<Scored> scored;
  for (auto& move : source_->moves(request.parent ? request.parent->plan : source_->seed())) {
    const auto key = plan_key(move.plan);
    if (request.seen->count(key) || taken.count(key)) continue;
    const auto found = records.find(move.kind);
    const KindRecord record = found == records.end() ? KindRecord{} : found->second;
    double score = kind_gain(move.kind, record);
    if (predictor_)
      if (const auto expected = predictor_->predict(move.plan)) score -= predictor_->confidence() * std::clamp(*expected, -1.0, 1.0);
    score += kJitter * std::generate_canonical<double, 53>(random);
    auto shape = plan_shape_key(move.plan);
    if (shapes_first && !shapes.count(shape)) score += kNewShapeBonus;
    scored.push_back({std::move(move), std::move(shape), score});
  }

  // Greedy: the best move, then the best of the rest once more of the same kind or shape costs something.
  std::map<TransformKind, int> used;
  std::set<std::string> proposed_shapes;
  while (!full() && !scored.empty()) {
    size_t best = 0;
    double best_score = -1e9;
    for (size_t i = 0; i < scored.size(); ++i) {
      double score = scored[i].score - kRepeatPenalty * used[scored[i].move.kind];
      if (shapes_first && proposed_shapes.count(scored[i].shape)) score -= kNewShapeBonus;
      if (score > best_score) {
        best_score = score;
        best = i;
      }
    }
    ++used[scored[best].move.kind];
    proposed_shapes.insert(scored[best].shape);
    offer(scored[best].move);
    scored.erase(scored.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return result;
}

}  // namespace kernelopt
