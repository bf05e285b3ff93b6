#include "kernelopt/plan/plan_space.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "kernelopt/base/check.h"
#include "kernelopt/plan/lower.h"
#include "kernelopt/plan/nest_builder.h"
#include "kernelopt/plan/program_choices.h"
#include "kernelopt/plan/transpose_tiles.h"

namespace kernelopt {

namespace {

constexpr size_t kKeptFirst = 2;  // plans that keep rows on chip among the first of all

// Choices that the Triton printer does not look at: on a GPU they would give the same kernel again.
bool is_for_cpus(TransformKind kind) {
  return kind == TransformKind::kStreamStores || kind == TransformKind::kMath || kind == TransformKind::kPrefetch ||
         kind == TransformKind::kUnroll || kind == TransformKind::kParallel;
}

}  // namespace

struct PlanSpace::Impl {
  WorkGroup work;  // before any rewrite
  Target target;
  int lanes = 16;
  KernelPlan seed;

  // Rewritten groups and which of their bodies join are asked for again and again; plans differ mostly in their nests.
  mutable std::mutex mutex;
  mutable std::map<std::string, Result<WorkGroup>> rewritten_memory;
  mutable std::map<std::string, JoinMemory> join_memory;

  static std::string key_of(const std::vector<Rewrite>& rewrites) {
    std::string key;
    for (const auto& r : rewrites) key += std::to_string(static_cast<int>(r.kind)) + r.target + "/" + std::to_string(r.amount) + (r.wide ? "w;" : ";");
    return key;
  }
  Result<WorkGroup> rewritten_by(const std::vector<Rewrite>& rewrites) const {
    const std::string key = key_of(rewrites);
    {
      const std::lock_guard lock(mutex);
      const auto at = rewritten_memory.find(key);
      if (at != rewritten_memory.end()) return at->second;
    }
    Result<WorkGroup> result = rewrite_anew(rewrites);
    const std::lock_guard lock(mutex);
    rewritten_memory.emplace(key, result);
    return result;
  }
  Result<WorkGroup> rewrite_anew(const std::vector<Rewrite>& rewrites) const {
    if (rewrites.empty()) return work;
    KO_TRY(WorkGroup result, rewritten_by({rewrites.begin(), rewrites.end() - 1}));
    KO_RETURN_IF_ERROR(apply_rewrite(result, rewrites.back()));
    return result;
  }
  Status check(const KernelPlan& plan) const {
    KO_TRY(WorkGroup rewritten, rewritten_by(plan.rewrites));
    const auto lowered = lower_work(std::move(rewritten), plan);
    if (!lowered.ok()) return lowered.error();
    return ok_status();
  }
  // The plan with nests built anew for its rewrites, keeping the choices of `like`.
  std::optional<KernelPlan> built(const std::vector<Rewrite>& rewrites, const NestOptions& options, const KernelPlan& like) const {
    auto rewritten = rewritten_by(rewrites);
    if (!rewritten.ok()) return std::nullopt;
    KernelPlan plan = like;
    plan.rewrites = rewrites;
    {
      const std::lock_guard lock(mutex);
      plan.nests = build_nests(*rewritten, options, lanes, &join_memory[key_of(rewrites)]);
    }
    if (!lower_work(*rewritten, plan).ok()) return std::nullopt;
    return plan;
  }
  NestOptions default_options() const {
    NestOptions options;
    // A GPU wants several programs a multiprocessor; joining more steps at their expense does not pay.
    options.wanted_parallel = target.kind == DeviceKind::kCuda ? 4 * target.threads : 1;
    return options;
  }
  NestOptions options_like(const KernelPlan& plan) const {
    NestOptions options = default_options();
    if (!plan.nests.empty()) {
      options.unroll = plan.nests[0].unroll;
      options.stream = plan.nests[0].stream;
    }
    return options;
  }

  int64_t total_points(const WorkGroup& group) const {
    int64_t total = 0;
    for (const auto& body : group.bodies) {
      int64_t points = 1;
      for (const auto& v : body.vars) points *= v.extent;
      total += points;
    }
    return total;
  }
  int default_threads() const { return total_points(work) < 16384 ? 1 : target.threads; }

  // The C++ printer's Welford is one pass over shifted sums: cheaper than two, and exact where the mean is large.
  std::vector<Rewrite> welford_rewrites(const WorkGroup& group) const {
    std::vector<Rewrite> result;
    if (target.kind != DeviceKind::kCuda) return result;
    for (const auto& body : group.bodies)
      for (const auto& f : body.ops)
        if (f.op.code == OpCode::kReduction && f.op.reduction == ReductionKind::kWelford) result.push_back({RewriteKind::kTwoPass, body.name, 0});
    return result;
  }
  std::vector<Rewrite> inline_rewrites(const WorkGroup& group) const {
    std::vector<Rewrite> result;
    for (const auto& [name, buffer] : group.buffers) {
      if (buffer.external) continue;
      WorkGroup trial = group;
      if (apply_rewrite(trial, {RewriteKind::kInline, name, 0}).ok()) result.push_back({RewriteKind::kInline, name, 0});
    }
    return result;
  }
  // Parts into which each reduction with too few results for all threads can be cut.
  std::vector<Rewrite> split_rewrites(const WorkGroup& group) const {
    std::vector<Rewrite> result;
    for (const auto& body : group.bodies) {
      if (!body.has_reduction()) continue;
      const LoopVar* cut = nullptr;
      int64_t iterations = 1;
      for (const auto& v : body.vars) {
        if (v.kind == VarKind::kIter) iterations *= v.extent;
        else if (cut == nullptr && v.extent > 1) cut = &v;
      }
      if (cut == nullptr || body.reduce_elements() < 1024) continue;
      std::vector<int64_t> parts;
      for (const int64_t wanted : {int64_t{target.threads}, int64_t{4} * target.threads, int64_t{16} * target.threads, int64_t{64} * target.threads}) {
        for (int64_t p = std::max<int64_t>(2, wanted); p <= std::min<int64_t>(cut->extent, 4 * wanted); ++p)
          if (cut->extent % p == 0) {
            if (std::find(parts.begin(), parts.end(), p) == parts.end()) parts.push_back(p);
            break;
          }
      }
      for (int64_t p : parts) {
        const bool welford = std::any_of(body.ops.begin(), body.ops.end(), [](const FlatOp& f) {
          return f.op.code == OpCode::kReduction && f.op.reduction == ReductionKind::kWelford;
        });
        const Rewrite rewrite{RewriteKind::kSplit, body.name, p, welford && target.kind != DeviceKind::kCuda};
        WorkGroup trial = group;
        if (apply_rewrite(trial, rewrite).ok()) result.push_back(rewrite);
      }
      (void)iterations;
    }
    return result;
  }
  std::vector<Rewrite> online_rewrites(const WorkGroup& group) const {
    std::vector<Rewrite> result;
    for (const auto& body : group.bodies) {
      WorkGroup trial = group;
      if (apply_rewrite(trial, {RewriteKind::kOnlineSoftmax, body.name, 0}).ok()) result.push_back({RewriteKind::kOnlineSoftmax, body.name, 0});
    }
    return result;
  }
  // What the compiler did for parallelism, taken back; scans that read backwards, turned around. For GPUs.
  std::vector<Rewrite> loop_rewrites(const WorkGroup& group) const {
    std::vector<Rewrite> result;
    for (const auto& body : group.bodies)
      for (const auto kind : {RewriteKind::kFlipScan, RewriteKind::kJoinParts}) {
        WorkGroup trial = group;
        if (apply_rewrite(trial, {kind, body.name, 0}).ok()) result.push_back({kind, body.name, 0});
      }
    return result;
  }
  std::vector<Rewrite> unroll_rewrites(const WorkGroup& group) const {
    std::vector<Rewrite> result;
    for (const auto& body : group.bodies) {
      int64_t results = 1;
      for (const auto& v : body.vars)
        if (v.kind == VarKind::kIter) results *= v.extent;
      if (results < 256 || !body.has_reduction()) continue;
      WorkGroup trial = group;
      if (apply_rewrite(trial, {RewriteKind::kUnrollWindow, body.name, 0}).ok()) result.push_back({RewriteKind::kUnrollWindow, body.name, 0});
    }
    return result;
  }
  std::vector<Rewrite> walk_rewrites(const WorkGroup& group, std::vector<int64_t> sizes) const {
    std::vector<Rewrite> result;
    for (const auto& body : group.bodies)
      for (const int64_t rows : sizes) {
        if (body.name.ends_with(".rows") || body.name.ends_with(".rest")) continue;
        WorkGroup trial = group;
        if (apply_rewrite(trial, {RewriteKind::kWalkRows, body.name, rows}).ok()) result.push_back({RewriteKind::kWalkRows, body.name, rows});
      }
    return result;
  }
  // Applies every rewrite that `find` offers, one after the other.
  template <typename Find>
  std::vector<Rewrite> all_of(std::vector<Rewrite> rewrites, Find find) const {
    for (int guard = 0; guard < 32; ++guard) {
      const auto group = rewritten_by(rewrites);
      if (!group.ok()) break;
      const auto offered = find(*group);
      if (offered.empty()) break;
      rewrites.push_back(offered[0]);
    }
    return rewrites;
  }
  // Split reductions that leave threads idle.
  std::vector<Rewrite> needed_splits(const std::vector<Rewrite>& rewrites, int64_t factor) const {
    std::vector<Rewrite> result = rewrites;
    if (default_threads() == 1) return result;
    const auto group = rewritten_by(rewrites);
    if (!group.ok()) return result;
    const auto offered = split_rewrites(*group);
    std::set<std::string> done;
    for (const auto& rewrite : offered) {
      const FlatBody* body = group->find(rewrite.target);
      int64_t iterations = 1;
      for (const auto& v : body->vars)
        if (v.kind == VarKind::kIter) iterations *= v.extent;
      if (iterations >= target.threads || rewrite.amount < factor * target.threads || !done.insert(rewrite.target).second) continue;
      result.push_back(rewrite);
    }
    return result;
  }
};

PlanSpace::PlanSpace(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<PlanSpace> PlanSpace::create(const Program& program, const Group& group, const Target& target) {
  auto impl = std::make_shared<Impl>();
  impl->work = make_work_group(program, group);
  eliminate_dead_stores(impl->work);
  impl->target = target;
  impl->lanes = target.vector_bits >= 512 ? 16 : target.vector_bits >= 256 ? 8 : 4;
  for (const auto& body : impl->work.bodies) {
    for (const auto& v : body.vars)
      if (v.extent <= 0) return Error(ErrorCode::kUnsupported, "empty loop in " + body.name);
    for (const auto& f : body.ops) {
      switch (f.op.code) {
        case OpCode::kSort:
        case OpCode::kLoadSeed:
        case OpCode::kRand:
        case OpCode::kRandn: return Error(ErrorCode::kUnsupported, std::string("op ") + op_name(f.op.code));
        default: break;
      }
      if (f.op.code == OpCode::kReduction && f.op.reduction == ReductionKind::kDot) return Error(ErrorCode::kUnsupported, "reduction dot");
    }
  }
  KernelPlan base;
  base.lanes = impl->lanes;
  base.threads = impl->default_threads();
  base.math = MathVariant::kPrecise;
  auto seed = impl->built({}, impl->default_options(), base);
  if (!seed) {
    NestOptions apart = impl->default_options();
    apart.fuse = false;
    seed = impl->built({}, apart, base);
  }
  if (!seed) {
    const WorkGroup& work = impl->work;
    KernelPlan plan = base;
    NestOptions apart = impl->default_options();
    apart.fuse = false;
    plan.nests = build_nests(work, apart, impl->lanes);
    const auto lowered = lower_work(work, plan);
    return Error(ErrorCode::kUnsupported, lowered.ok() ? "no plan" : lowered.error().to_string());
  }
  impl->seed = *seed;
  return PlanSpace(std::move(impl));
}

const KernelPlan& PlanSpace::seed() const { return impl_->seed; }
Status PlanSpace::check(const KernelPlan& plan) const { return impl_->check(plan); }

std::vector<Move> PlanSpace::starts() const {
  std::vector<Move> result;
  std::set<std::string> keys;
  KernelPlan like = impl_->seed;
  like.math = MathVariant::kFast;
  const bool gpu = impl_->target.kind == DeviceKind::kCuda;
  const auto add = [&](TransformKind kind, const std::string& text, const std::optional<KernelPlan>& plan) {
    if (gpu && is_for_cpus(kind)) return;
    if (plan && keys.insert(plan_key(*plan)).second) result.push_back({kind, text, *plan});
  };
  const Impl& impl = *impl_;
  const auto two_pass = impl.all_of({}, [&](const WorkGroup& g) { return impl.welford_rewrites(g); });
  const auto inlined = impl.all_of(two_pass, [&](const WorkGroup& g) { return impl.inline_rewrites(g); });
  const auto online = impl.all_of(inlined, [&](const WorkGroup& g) { return impl.online_rewrites(g); });
  NestOptions options = impl.default_options();
  const auto split = [&](const std::vector<Rewrite>& rewrites, int64_t factor) { return impl.needed_splits(rewrites, factor); };
  NestOptions second = options;
  second.axis_rank = 1;
  NestOptions streaming = options;
  streaming.stream = true;
  NestOptions wide = options;
  wide.wanted_parallel = std::max<int64_t>(options.wanted_parallel, impl.target.threads);
  // Windows: unrolled into ops, what reads them joined, then walked row by row.
  const auto windows = impl.all_of({}, [&](const WorkGroup& g) { return impl.unroll_rewrites(g); });
  const auto window_inlined = impl.all_of(windows, [&](const WorkGroup& g) { return impl.inline_rewrites(g); });
  const auto walked = [&](int64_t rows) { return impl.all_of(window_inlined, [&](const WorkGroup& g) { return impl.walk_rewrites(g, {rows}); }); };
  const auto walked4 = walked(4);
  const bool walks = walked4.size() > window_inlined.size();
  // Reductions that would leave threads idle are split first of all.
  const auto base_split = split(two_pass, 1), inline_split = split(inlined, 1), online_split = split(online, 1);
  NestOptions narrow = options;
  narrow.unroll = 2;
  if (walks) add(TransformKind::kWindowReuse, "four rows of windows together", impl.built(walked4, narrow, like));
  add(TransformKind::kFuseSteps, "one pass over memory where legal", impl.built(base_split, wide, like));
  add(TransformKind::kRecompute, "recompute every intermediate", impl.built(inline_split, wide, like));
  if (walks) add(TransformKind::kWindowReuse, "eight rows of windows together", impl.built(walked(8), narrow, like));
  if (walks) add(TransformKind::kWindowReuse, "two rows of windows together", impl.built(walked(2), narrow, like));
  NestOptions lengthy = wide;
  lengthy.long_tiles = true;
  if (!gpu) add(TransformKind::kTileSize, "long tiles across reductions", impl.built(base_split, lengthy, like));
  if (online.size() != inlined.size()) add(TransformKind::kReductionStrategy, "online softmax", impl.built(online_split, wide, like));
  add(TransformKind::kStreamStores, "results past the caches", impl.built(base_split, streaming, like));
  if (!windows.empty()) add(TransformKind::kWindowReuse, "windows as chains of ops", impl.built(window_inlined, narrow, like));
  add(TransformKind::kVectorAxis, "second vector axis", impl.built(base_split, second, like));
  add(TransformKind::kFuseSteps, "one pass, shared loops at any width", impl.built(two_pass, options, like));
  add(TransformKind::kVectorAxis, "recompute, second vector axis", impl.built(inline_split, second, like));
  add(TransformKind::kStreamStores, "recompute, results past the caches", impl.built(inline_split, streaming, like));
  add(TransformKind::kSplitReduction, "finer parts", impl.built(split(two_pass, 4), wide, like));
  NestOptions apart = options;
  apart.fuse = false;
  add(TransformKind::kCutSteps, "one nest a step", impl.built(two_pass, apart, like));
  if (!two_pass.empty()) add(TransformKind::kReductionStrategy, "Welford in one pass", impl.built({}, wide, like));
  add(TransformKind::kMath, "the compiler's own functions", impl.built(base_split, wide, impl.seed));
  if (!gpu) return result;
  // First of all: what else can be done to a copy between two orders changes little.
  for (const auto& rewrites : {base_split, inline_split}) {
    const auto plan = impl.built(rewrites, wide, like);
    const auto work = impl.rewritten_by(rewrites);
    if (!plan || !work.ok()) continue;
    const auto tiled = with_transpose_tiles(*work, *plan);
    if (tiled && impl.check(*tiled).ok() && keys.insert(plan_key(*tiled)).second)
      result.insert(result.begin(), {TransformKind::kTranspose, "tiles between two memory orders", *tiled});
  }
  // Rows kept on chip: few reductions a row, since each costs a team a wait; whole steps in one nest, whatever their number of rows.
  std::vector<Move> kept;
  const auto whole = impl.all_of({}, [&](const WorkGroup& g) { return impl.loop_rewrites(g); });
  const auto fused = impl.all_of(whole, [&](const WorkGroup& g) { return impl.inline_rewrites(g); });
  NestOptions together = options;
  together.wanted_parallel = 1;
  for (const auto& rewrites : {impl.all_of(fused, [&](const WorkGroup& g) { return impl.online_rewrites(g); }), whole}) {
    const auto plan = impl.built(rewrites, together, like);
    if (!plan) continue;
    for (auto& move : with_teams(impl.work, {TransformKind::kKeepRows, "rows kept on chip", *plan}, impl.target, 4))
      if (keys.insert(plan_key(move.plan)).second) kept.push_back(std::move(move));
    if (!kept.empty()) break;
  }
  if (!whole.empty())
    if (const auto plan = impl.built(whole, wide, like); plan && keys.insert(plan_key(*plan)).second)
      result.insert(result.begin(), {TransformKind::kReductionStrategy, "whole loops", *plan});
  auto programs = with_programs(impl.work, result, impl.target, 3);
  // Both ways in turn at first; which one wins is the device's to say.
  std::vector<Move> mixed;
  size_t next_kept = 0;
  for (auto& move : programs) {
    if (next_kept < std::min(kept.size(), kKeptFirst)) mixed.push_back(std::move(kept[next_kept++]));
    mixed.push_back(std::move(move));
  }
  while (next_kept < kept.size()) mixed.push_back(std::move(kept[next_kept++]));
  return mixed;
}

std::vector<Move> PlanSpace::moves(const KernelPlan& plan) const {
  const Impl& impl = *impl_;
  std::vector<Move> result;
  std::set<std::string> keys{plan_key(plan)};
  const bool gpu = impl.target.kind == DeviceKind::kCuda;
  const auto add = [&](TransformKind kind, const std::string& text, const KernelPlan& next) {
    if (gpu && is_for_cpus(kind)) return;
    if (keys.count(plan_key(next)) || !impl.check(next).ok()) return;
    keys.insert(plan_key(next));
    result.push_back({kind, text, next});
  };
  const auto rewritten = impl.rewritten_by(plan.rewrites);
  if (!rewritten.ok()) return result;
  const NestOptions like = impl.options_like(plan);
  const auto rebuilt = [&](TransformKind kind, const std::string& text, const std::vector<Rewrite>& rewrites) {
    if (const auto next = impl.built(rewrites, like, plan)) add(kind, text, *next);
  };

  // Rewrites: one more, or one less with everything that builds on it gone where it no longer applies.
  for (const auto& r : impl.inline_rewrites(*rewritten)) {
    auto more = plan.rewrites;
    more.push_back(r);
    rebuilt(TransformKind::kRecompute, "recompute " + r.target, more);
  }
  for (const auto& r : impl.welford_rewrites(*rewritten)) {
    auto more = plan.rewrites;
    more.push_back(r);
    rebuilt(TransformKind::kReductionStrategy, "two passes for " + r.target, more);
  }
  for (const auto& r : impl.online_rewrites(*rewritten)) {
    auto more = plan.rewrites;
    more.push_back(r);
    rebuilt(TransformKind::kReductionStrategy, "maximum and sum of exponentials of " + r.target + " in one pass", more);
  }
  for (const auto& r : impl.split_rewrites(*rewritten)) {
    auto more = plan.rewrites;
    more.push_back(r);
    rebuilt(TransformKind::kSplitReduction, "split " + r.target + " into " + std::to_string(r.amount) + " parts", more);
  }
  for (const auto& r : impl.unroll_rewrites(*rewritten)) {
    auto more = plan.rewrites;
    more.push_back(r);
    rebuilt(TransformKind::kWindowReuse, "window of " + r.target + " as a chain of ops", more);
  }
  for (const auto& r : impl.walk_rewrites(*rewritten, {2, 4, 8})) {
    auto more = plan.rewrites;
    more.push_back(r);
    rebuilt(TransformKind::kWindowReuse, std::to_string(r.amount) + " rows of windows of " + r.target + " together", more);
  }
  for (size_t i = 0; i < plan.rewrites.size(); ++i) {
    auto less = plan.rewrites;
    less.erase(less.begin() + static_cast<ptrdiff_t>(i));
    const auto& r = plan.rewrites[i];
    const TransformKind kind = r.kind == RewriteKind::kInline ? TransformKind::kStore
                               : r.kind == RewriteKind::kWalkRows || r.kind == RewriteKind::kUnrollWindow ? TransformKind::kWindowReuse
                               : r.kind == RewriteKind::kSplit || r.kind == RewriteKind::kSplitInner ? TransformKind::kSplitReduction
                                                                                                      : TransformKind::kReductionStrategy;
    rebuilt(kind, std::string("without ") + rewrite_name(r.kind) + " of " + r.target, less);
  }

  for (size_t n = 0; n < plan.nests.size(); ++n) {
    const NestPlan& nest = plan.nests[n];
    const std::string where = " in nest " + std::to_string(n);
    const auto with = [&](TransformKind kind, const std::string& text, const NestPlan& changed) {
      KernelPlan next = plan;
      next.nests[n] = changed;
      add(kind, text + where, next);
    };
    NestPlan plain = nest;
    plain.transpose = false;
    for (const auto& choice : axis_choices(*rewritten, plain, impl.lanes, 4)) {
      NestPlan changed = nest;
      changed.axis = choice.axis;
      changed.shared = choice.shared;
      changed.transpose = choice.transpose;
      if (choice.transpose != nest.transpose) {
        with(TransformKind::kTranspose, choice.transpose ? "square tiles" : "no square tiles", changed);
        continue;
      }
      with(TransformKind::kVectorAxis, choice.axis == VectorAxis::kShared ? "lanes along " + choice.shared.back() : "lanes inside each phase", changed);
    }
    for (const int unroll : {1, 2, 4, 8, 16, kLongTile}) {
      if (gpu) break;  // program_moves has the sizes of tiles there
      if (unroll > 8 && !reduces_across_lanes(*rewritten, nest)) break;
      NestPlan changed = nest;
      changed.unroll = unroll;
      with(nest.axis == VectorAxis::kShared ? TransformKind::kTileSize : TransformKind::kUnroll, std::to_string(unroll) + " vectors side by side", changed);
    }
    const size_t movable = nest.axis == VectorAxis::kShared && !nest.shared.empty() ? nest.shared.size() - 1 : nest.shared.size();
    for (size_t k = 0; k + 1 < movable; ++k) {
      NestPlan changed = nest;
      std::swap(changed.shared[k], changed.shared[k + 1]);
      with(TransformKind::kLoopOrder, "swap loops " + std::to_string(k) + " and " + std::to_string(k + 1), changed);
    }
    if (movable > 0) {
      NestPlan changed = nest;
      changed.shared.erase(changed.shared.begin() + static_cast<ptrdiff_t>(movable - 1));
      if (!changed.shared.empty()) with(TransformKind::kSharedLoops, "one shared loop less", changed);
    }
    if (nest.bodies.size() > 1) {
      for (size_t cut = 1; cut < nest.bodies.size(); ++cut) {
        const std::vector<std::string> left(nest.bodies.begin(), nest.bodies.begin() + static_cast<ptrdiff_t>(cut));
        const std::vector<std::string> right(nest.bodies.begin() + static_cast<ptrdiff_t>(cut), nest.bodies.end());
        const auto a = join_bodies(*rewritten, left, 1), b = join_bodies(*rewritten, right, 1);
        if (!a || !b) continue;
        KernelPlan next = plan;
        std::vector<NestPlan> parts;
        for (const auto& part : {*a, *b}) {
          NestPlan chosen = axis_choices(*rewritten, part, impl.lanes, 1)[0];
          chosen.unroll = nest.unroll;
          chosen.stream = nest.stream;
          chosen.prefetch = nest.prefetch;
          parts.push_back(chosen);
        }
        next.nests[n] = parts[0];
        next.nests.insert(next.nests.begin() + static_cast<ptrdiff_t>(n) + 1, parts[1]);
        add(TransformKind::kCutSteps, "cut before " + right[0], next);
      }
      NestPlan changed = nest;
      changed.merge = !nest.merge;
      with(TransformKind::kFuseSteps, nest.merge ? "a loop a step" : "common loops", changed);
    }
    if (n + 1 < plan.nests.size()) {
      std::vector<std::string> all = nest.bodies;
      all.insert(all.end(), plan.nests[n + 1].bodies.begin(), plan.nests[n + 1].bodies.end());
      if (const auto joined = join_bodies(*rewritten, all, 1)) {
        KernelPlan next = plan;
        NestPlan chosen = axis_choices(*rewritten, *joined, impl.lanes, 1)[0];
        chosen.unroll = nest.unroll;
        chosen.stream = nest.stream;
        next.nests[n] = chosen;
        next.nests.erase(next.nests.begin() + static_cast<ptrdiff_t>(n) + 1);
        add(TransformKind::kFuseSteps, "fuse with the next nest", next);
      }
    }
    NestPlan stream = nest;
    stream.stream = !nest.stream;
    with(TransformKind::kStreamStores, nest.stream ? "ordinary stores" : "results past the caches", stream);
    for (const int distance : {0, 4, 16}) {
      NestPlan changed = nest;
      changed.prefetch = distance;
      with(TransformKind::kPrefetch, distance == 0 ? "no prefetch" : "prefetch " + std::to_string(distance) + " lines ahead", changed);
    }
    bool masked = false;
    for (const auto& name : nest.bodies)
      for (const auto& f : rewritten->find(name)->ops) masked = masked || f.predicate != kNoValue;
    if (masked && !gpu) {
      NestPlan changed = nest;
      changed.split_interior = !nest.split_interior;
      with(TransformKind::kWindowReuse, nest.split_interior ? "masks everywhere" : "interior apart from the border", changed);
    }
  }
  KernelPlan math = plan;
  math.math = plan.math == MathVariant::kFast ? MathVariant::kPrecise : MathVariant::kFast;
  bool transcendental = false;
  for (const auto& body : rewritten->bodies)
    for (const auto& f : body.ops)
      transcendental = transcendental || f.op.code == OpCode::kExp || f.op.code == OpCode::kExpm1 || f.op.code == OpCode::kLog || f.op.code == OpCode::kLog1p ||
                       f.op.code == OpCode::kErf || f.op.code == OpCode::kTanh || f.op.code == OpCode::kSigmoid;
  if (transcendental) add(TransformKind::kMath, math.math == MathVariant::kFast ? "our functions" : "torch's functions", math);
  KernelPlan threads = plan;
  threads.threads = plan.threads > 1 ? 1 : impl.target.threads;
  if (threads.threads != plan.threads) add(TransformKind::kParallel, threads.threads > 1 ? "all threads" : "one thread", threads);
  if (gpu) {
    result = with_programs(impl.work, result, impl.target, 1);
    const auto sizes = program_moves(impl.work, plan, impl.target);
    result.insert(result.end(), sizes.begin(), sizes.end());
  }
  return result;
}

}  // namespace kernelopt
