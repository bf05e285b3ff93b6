#include <gtest/gtest.h>

#include "kernelopt/analyst/kernel_metrics.h"
#include "kernelopt/search/beam_search.h"
#include "kernelopt/search/builtin_planner.h"
#include "kernelopt/search/fake_agents.h"

namespace kernelopt {
namespace {

Attempt passed(int number, int chain, double ratio) {
  Attempt attempt;
  attempt.number = number;
  attempt.chain = chain;
  attempt.evaluation = passed_at(ratio);
  return attempt;
}

Outlook wide_open() { return {1e-3, 1, 1e-3, 1e-6}; }

TEST(Select, DiverseSelectKeepsTheFastestOfEachChain) {
  std::vector<Attempt> attempts = {passed(1, 1, 0.9), passed(2, 1, 0.5), passed(3, 2, 0.6), passed(4, 3, 0.4),
                                   passed(5, 2, 0.55)};
  Attempt rejected = passed(6, 4, 0.1);
  rejected.evaluation = {AttemptState::kRejected, "gate 2: out of tolerance", std::nullopt};
  attempts.push_back(rejected);
  EXPECT_EQ(diverse_select(attempts, 4), (std::vector<int>{3, 1, 4}));
  EXPECT_EQ(diverse_select(attempts, 1), (std::vector<int>{3}));
  EXPECT_TRUE(diverse_select({}, 4).empty());
}

TEST(Select, BudgetAddsUp) {
  EXPECT_EQ(split_budget(4, 3), (std::vector<int>{2, 1, 1}));
  EXPECT_EQ(split_budget(2, 4), (std::vector<int>{1, 1, 0, 0}));
  EXPECT_TRUE(split_budget(4, 0).empty());
}

TEST(Select, EarlyStop) {
  EXPECT_FALSE(early_stop(wide_open(), 1.0));
  // At the floor, whatever the share.
  EXPECT_EQ(early_stop({1e-3, 1, 1e-3, 0.9e-3}, 0.92)->stop, SearchStop::kAtFloor);
  // One part in a thousand of the model.
  EXPECT_EQ(early_stop({1.0, 1, 1e-3, 0}, 1.0)->stop, SearchStop::kCannotPay);
  // The same group a hundred times over pays.
  EXPECT_FALSE(early_stop({1.0, 100, 1e-3, 0}, 1.0));
  // Nothing known is no reason to stop.
  EXPECT_FALSE(early_stop({}, 1.0));
}

TEST(Select, TimeGoesWhereTheGainIs) {
  const std::vector<Outlook> groups = {{1.0, 1, 0.5, 0.2}, {1.0, 1, 0.2, 0.1}, {1.0, 1, 1e-4, 0}};
  const auto seconds = split_time(groups, 80);
  EXPECT_NEAR(seconds[0], 60, 1e-9);
  EXPECT_NEAR(seconds[1], 20, 1e-9);
  EXPECT_EQ(seconds[2], 0);
}

// A space in which every plan of shape s has moves to four sizes and to the next shape.
struct Space {
  std::shared_ptr<FakePlanSource> source = std::make_shared<FakePlanSource>();
  explicit Space(int starts, int shapes = 100) {
    source->seed_plan = fake_plan(0, 1);
    for (int i = 1; i <= starts; ++i)
      source->start_moves.push_back({TransformKind::kFuseSteps, "start " + std::to_string(i), fake_plan(i * 10, 1)});
    source->on_moves = [shapes](const KernelPlan& plan) {
      std::vector<Move> moves;
      for (int size : {1, 2, 4, 8})
        if (size != fake_size(plan))
          moves.push_back({TransformKind::kUnroll, "unroll", fake_plan(fake_shape(plan), size)});
      if (fake_shape(plan) + 1 < shapes)
        moves.push_back({TransformKind::kLoopOrder, "order", fake_plan(fake_shape(plan) + 1, 1)});
      return moves;
    };
  }
};

struct Bench {
  FakeExecutor executor;
  FakeEvaluator evaluator;
  RecordingObserver observer;
  BeamSearch search;
  Bench() {
    search.outlook = wide_open();
    evaluator.on_evaluate = [](const Candidate& candidate) -> Result<Evaluation> {
      int shape = 0, size = 1;
      std::sscanf(candidate.parts().kernels[0].source.c_str(), "shape %d size %d", &shape, &size);
      return passed_at(0.9 - 0.001 * shape - 0.01 * size);
    };
  }
  SearchResult run(const Space& space) {
    BuiltinPlanner planner(space.source, Bottleneck::kMemory, 7);
    return search.run(planner, executor, evaluator, observer);
  }
};

// The first choice where counters say what the group's time alone does not: a memory that is full of needless traffic, and
// one that idles, look alike to the roofline.
TEST(BuiltinPlanner, FirstChoicesFollowTheMeasuredDiagnosis) {
  auto source = std::make_shared<FakePlanSource>();
  source->seed_plan = fake_plan(0, 1);
  source->start_moves = {{TransformKind::kParallel, "parallel", fake_plan(1, 1)},
                         {TransformKind::kKeepRows, "keep rows", fake_plan(2, 1)}};
  Roofline roofline;
  roofline.diagnosis = Diagnosis::kUnderutilized;
  const auto first = [&](const KernelMetrics& metrics) {
    BuiltinPlanner planner(source, bottleneck_of(diagnose(roofline, metrics)), 1);
    const std::vector<Attempt> history;
    const std::set<std::string> seen;
    PlanRequest request;
    request.history = &history;
    request.seen = &seen;
    request.starts_only = true;
    const auto proposals = planner.propose(request);
    return proposals.empty() ? std::string() : proposals[0].description;
  };
  KernelMetrics busy, idle;
  busy.compute_use = idle.compute_use = 0.1;
  busy.memory_use = 0.95;
  idle.memory_use = 0.2;
  EXPECT_EQ(first(busy), "keep rows");
  EXPECT_EQ(first(idle), "parallel");
  EXPECT_EQ(first(KernelMetrics{}), "parallel");  // nothing counted: the roofline's
}

TEST(BeamSearch, TriesExactlyRoundsTimesPlansDistinctPlans) {
  Bench bench;
  const auto result = bench.run(Space(4));
  EXPECT_EQ(result.stop, SearchStop::kRoundsDone);
  EXPECT_EQ(result.rounds, 5);
  ASSERT_EQ(result.attempts.size(), 20u);
  std::set<std::string> keys, digests;
  for (const auto& attempt : result.attempts) {
    keys.insert(attempt.plan_key);
    digests.insert(attempt.digest);
    EXPECT_TRUE(attempt.passed());
  }
  EXPECT_EQ(keys.size(), 20u);
  EXPECT_EQ(digests.size(), 20u);
  EXPECT_EQ(bench.observer.attempts.size(), 20u);
  EXPECT_EQ(bench.observer.beams.size(), 5u);
  // Every round improves on the one before: the beam leads somewhere.
  EXPECT_LT(result.attempts[static_cast<size_t>(bench.observer.beams[4][0])].ratio(),
            result.attempts[static_cast<size_t>(bench.observer.beams[0][0])].ratio());
}

TEST(BeamSearch, FirstRoundOpensTheChains) {
  Bench bench;
  bench.search.sizes = {1, 6, 4, 4};
  const auto result = bench.run(Space(6));
  std::vector<int> chains;
  for (const auto& attempt : result.attempts) chains.push_back(attempt.chain);
  EXPECT_EQ(chains, (std::vector<int>{1, 2, 3, 4, 1, 2}));
  EXPECT_EQ(bench.observer.beams[0].size(), 4u);
}

TEST(BeamSearch, IsRepeatable) {
  Bench one, two;
  const auto a = one.run(Space(3)), b = two.run(Space(3));
  ASSERT_EQ(a.attempts.size(), b.attempts.size());
  for (size_t i = 0; i < a.attempts.size(); ++i) EXPECT_EQ(a.attempts[i].plan_key, b.attempts[i].plan_key);
}

TEST(BeamSearch, MostPlansDifferInMoreThanSizes) {
  Bench bench;
  const auto result = bench.run(Space(4));
  std::set<std::string> shapes;
  for (const auto& attempt : result.attempts) shapes.insert(attempt.shape_key);
  EXPECT_GE(shapes.size(), 12u);
}

TEST(BeamSearch, SmallSpaceIsExhausted) {
  Bench bench;
  const auto result = bench.run(Space(1, 1));
  EXPECT_EQ(result.stop, SearchStop::kExhausted);
  EXPECT_FALSE(result.stop_reason.empty());
  EXPECT_LT(result.attempts.size(), 20u);
}

TEST(BeamSearch, DuplicatesAreRecordedAndReplaced) {
  Bench bench;
  bench.search.sizes = {1, 4, 4, 4};
  // Sizes do not change the kernel.
  bench.executor.on_write = [](const KernelPlan& plan) -> Result<Candidate> {
    return fake_candidate("shape " + std::to_string(fake_shape(plan) / 20) + " size 1");
  };
  const auto result = bench.run(Space(8));
  int duplicates = 0, measured = 0;
  for (const auto& attempt : result.attempts) {
    duplicates += attempt.evaluation.state == AttemptState::kDuplicate;
    measured += attempt.passed();
  }
  EXPECT_EQ(measured, 4);
  EXPECT_GT(duplicates, 0);
}

TEST(BeamSearch, RejectedStartsDoNotEndTheSearch) {
  Bench bench;
  bench.search.sizes = {3, 4, 4, 4};
  bench.evaluator.on_evaluate = [](const Candidate& candidate) -> Result<Evaluation> {
    int shape = 0;
    std::sscanf(candidate.parts().kernels[0].source.c_str(), "shape %d", &shape);
    if (shape >= 10) return Evaluation{AttemptState::kRejected, "gate 2: out of tolerance", std::nullopt};
    return passed_at(0.8);
  };
  const auto result = bench.run(Space(4));
  EXPECT_EQ(result.attempts.size(), 12u);
  EXPECT_FALSE(ranked(result.attempts).empty());
}

TEST(BeamSearch, StopsAtTheFloor) {
  Bench bench;
  bench.search.outlook = {1e-3, 1, 1e-3, 0.83e-3};
  const auto result = bench.run(Space(4));
  EXPECT_EQ(result.stop, SearchStop::kAtFloor);
  EXPECT_LT(result.attempts.size(), 20u);
  EXPECT_GT(result.attempts.size(), 0u);
}

TEST(BeamSearch, TimeAndInterruptEndIt) {
  Bench late;
  late.search.out_of_time = [&] { return late.observer.attempts.size() >= 4; };
  auto result = late.run(Space(4));
  EXPECT_EQ(result.stop, SearchStop::kOutOfTime);
  EXPECT_EQ(result.attempts.size(), 4u);

  Bench stopped;
  stopped.search.stop_requested = [&] { return stopped.observer.attempts.size() >= 8; };
  result = stopped.run(Space(4));
  EXPECT_EQ(result.stop, SearchStop::kInterrupted);
  EXPECT_EQ(result.attempts.size(), 8u);

  Bench broken;
  broken.evaluator.on_evaluate = [](const Candidate&) -> Result<Evaluation> {
    return Error(ErrorCode::kEnvironment, "no compiler");
  };
  result = broken.run(Space(4));
  EXPECT_EQ(result.stop, SearchStop::kError);
  EXPECT_NE(result.stop_reason.find("no compiler"), std::string::npos);
}

TEST(Planner, KindsThatPaidComeFirst) {
  Space space(0);
  space.source->on_moves = [](const KernelPlan&) {
    return std::vector<Move>{{TransformKind::kPrefetch, "prefetch", fake_plan(1, 1)},
                             {TransformKind::kRecompute, "recompute", fake_plan(2, 1)},
                             {TransformKind::kMath, "math", fake_plan(3, 1)}};
  };
  std::vector<Attempt> history;
  for (int i = 0; i < 4; ++i) {
    Attempt attempt = passed(i + 1, 1, 0.5);
    attempt.kind = TransformKind::kPrefetch;
    attempt.parent_ratio = 1.0;
    history.push_back(attempt);
  }
  EXPECT_EQ(kind_records(history).at(TransformKind::kPrefetch).tried, 4);
  BuiltinPlanner planner(space.source, Bottleneck::kCompute, 1);
  std::set<std::string> seen;
  const auto moves = planner.propose({&history, &history[0], &seen, 5, 5, false, 1});
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].kind, TransformKind::kPrefetch);
}

}  // namespace
}  // namespace kernelopt
