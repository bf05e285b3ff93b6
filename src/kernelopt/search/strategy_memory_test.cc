#include "kernelopt/search/strategy_memory.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "kernelopt/search/beam_search.h"
#include "kernelopt/search/builtin_planner.h"
#include "kernelopt/search/fake_agents.h"

namespace kernelopt {
namespace {

Attempt tried(TransformKind kind, double ratio, double parent = 1.0, const std::string& description = "") {
  Attempt attempt;
  attempt.kind = kind;
  attempt.description = description;
  attempt.parent_ratio = parent;
  attempt.plan = fake_plan(1, 1);
  attempt.evaluation = passed_at(ratio);
  return attempt;
}

TEST(StrategyMemory, KeepsTheLastEightRemarkableExperiences) {
  StrategyMemory memory;
  for (int i = 0; i < 10; ++i) memory.learn(tried(TransformKind::kUnroll, 0.5, 1.0, std::to_string(i)), Bottleneck::kMemory);
  memory.learn(tried(TransformKind::kUnroll, 1 / 1.04), Bottleneck::kMemory);  // too small a gain
  memory.learn(tried(TransformKind::kUnroll, 1.19), Bottleneck::kMemory);      // too small a loss
  ASSERT_EQ(memory.experiences().size(), 8u);
  EXPECT_EQ(memory.experiences().front().description, "2");
  memory.learn(tried(TransformKind::kMath, 1.21, 1.0, "slow"), Bottleneck::kMemory);
  EXPECT_EQ(memory.experiences().back().description, "slow");
  // Against its parent: 0.80 after 0.85 is 1.06.
  memory.learn(tried(TransformKind::kMath, 0.80, 0.85, "step"), Bottleneck::kMemory);
  EXPECT_EQ(memory.experiences().back().description, "step");
}

TEST(StrategyMemory, AvoidNeedsThreeTriesAndARateBelowThirty) {
  StrategyMemory memory;
  for (int i = 0; i < 2; ++i) memory.learn(tried(TransformKind::kPrefetch, 1.0), Bottleneck::kMemory);
  EXPECT_FALSE(memory.avoid(Bottleneck::kMemory, TransformKind::kPrefetch));
  Attempt refused = tried(TransformKind::kPrefetch, 1.0);
  refused.evaluation = {AttemptState::kRejected, "gate 2", std::nullopt};
  memory.learn(refused, Bottleneck::kMemory);
  EXPECT_TRUE(memory.avoid(Bottleneck::kMemory, TransformKind::kPrefetch));
  EXPECT_FALSE(memory.avoid(Bottleneck::kCompute, TransformKind::kPrefetch));
  memory.learn(tried(TransformKind::kPrefetch, 0.5), Bottleneck::kMemory);
  EXPECT_TRUE(memory.avoid(Bottleneck::kMemory, TransformKind::kPrefetch));  // 1 of 4
  memory.learn(tried(TransformKind::kPrefetch, 0.5), Bottleneck::kMemory);
  EXPECT_FALSE(memory.avoid(Bottleneck::kMemory, TransformKind::kPrefetch));  // 2 of 5
  EXPECT_NE(memory.text().find("prefetch"), std::string::npos);
  // The machine's faults and repetitions teach nothing.
  Attempt fault = refused, twice = refused;
  fault.evaluation.state = AttemptState::kError;
  twice.evaluation.state = AttemptState::kDuplicate;
  memory.learn(fault, Bottleneck::kMemory);
  memory.learn(twice, Bottleneck::kMemory);
  EXPECT_EQ(memory.strategy(Bottleneck::kMemory, TransformKind::kPrefetch).tried, 5);
}

TEST(StrategyMemory, KeptPerDeviceAcrossRuns) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "kernelopt_memory_test";
  std::filesystem::remove_all(folder);
  const MemoryStore store(folder);
  StrategyMemory learned;
  for (int i = 0; i < 3; ++i) learned.learn(tried(TransformKind::kUnroll, 0.5, 1.0, "u"), Bottleneck::kMemory);
  ASSERT_TRUE(store.add("one", "CPU one", learned).ok());
  ASSERT_TRUE(store.add("one", "CPU one", learned).ok());
  EXPECT_EQ(store.load("one").strategy(Bottleneck::kMemory, TransformKind::kUnroll).tried, 6);
  EXPECT_EQ(store.load("one").experiences().size(), 6u);
  EXPECT_DOUBLE_EQ(store.load("one").model().rows(), 6);
  EXPECT_TRUE(store.load("two").empty());
  EXPECT_EQ(store.all().size(), 1u);
  // A damaged file is no reason for a run to fail.
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".json") std::ofstream(entry.path()) << "{\"memory\": 3}";
  std::string note;
  EXPECT_TRUE(store.load("one", &note).empty());
  EXPECT_FALSE(note.empty());
  EXPECT_FALSE(StrategyMemory::from_json(nlohmann::json::parse(R"({"format": "kernelopt.memory", "version": 1})")).ok());
}

// Whatever the memory believes, what the gates refused stays refused and what they measured stays measured.
TEST(StrategyMemory, CannotLoosenAGate) {
  const auto search_with = [](const StrategyMemory* memory) {
    auto source = std::make_shared<FakePlanSource>();
    source->seed_plan = fake_plan(0, 1);
    for (int i = 1; i <= 8; ++i) source->start_moves.push_back({TransformKind::kUnroll, "", fake_plan(i, 1)});
    FakeExecutor executor;
    FakeEvaluator evaluator;
    evaluator.on_evaluate = [](const Candidate& candidate) -> Result<Evaluation> {
      int shape = 0;
      std::sscanf(candidate.parts().kernels[0].source.c_str(), "shape %d", &shape);
      if (shape % 2) return Evaluation{AttemptState::kRejected, "gate 2: out of tolerance", std::nullopt};
      return passed_at(1.5);
    };
    RecordingObserver observer;
    BuiltinPlanner planner(source, Bottleneck::kMemory, 1, memory);
    BeamSearch search;
    search.sizes = {2, 4, 4, 4};
    search.outlook = {1e-3, 1, 1e-3, 1e-6};
    return search.run(planner, executor, evaluator, observer);
  };
  // Everything is a success, nothing is ever avoided.
  StrategyMemory eager(MemoryRules{8, 0.0, 1e9, -1.0, 1000});
  for (int i = 0; i < 20; ++i) eager.learn(tried(TransformKind::kUnroll, 1e-3), Bottleneck::kMemory);
  for (const auto* memory : {static_cast<const StrategyMemory*>(nullptr), static_cast<const StrategyMemory*>(&eager)}) {
    const auto result = search_with(memory);
    ASSERT_EQ(result.attempts.size(), 8u);
    for (const auto& attempt : result.attempts) {
      if (fake_shape(attempt.plan) % 2) EXPECT_EQ(attempt.evaluation.state, AttemptState::kRejected);
      else EXPECT_DOUBLE_EQ(attempt.ratio(), 1.5);
    }
    for (int index : ranked(result.attempts)) EXPECT_EQ(fake_shape(result.attempts[static_cast<size_t>(index)].plan) % 2, 0);
  }
}

Move first_move(Bottleneck bottleneck, const StrategyMemory* memory, bool start) {
  auto source = std::make_shared<FakePlanSource>();
  source->seed_plan = fake_plan(0, 1);
  const std::vector<Move> moves = {{TransformKind::kStreamStores, "", fake_plan(1, 1)},
                                   {TransformKind::kParallel, "", fake_plan(2, 1)},
                                   {TransformKind::kMath, "", fake_plan(3, 1)}};
  if (start) source->start_moves = moves;
  source->on_moves = [moves](const KernelPlan&) { return moves; };
  BuiltinPlanner planner(source, bottleneck, 1, memory);
  std::vector<Attempt> history;
  std::set<std::string> seen = {plan_key(source->seed_plan)};
  PlanRequest request;
  request.history = &history;
  request.seen = &seen;
  request.rounds = 5;
  return planner.propose(request).at(0);
}

TEST(Planner, DiagnosisAndMemoryChangeTheFirstPlan) {
  for (bool start : {true, false}) {
    EXPECT_EQ(first_move(Bottleneck::kMemory, nullptr, start).kind, TransformKind::kStreamStores);
    EXPECT_EQ(first_move(Bottleneck::kUnderutilized, nullptr, start).kind, TransformKind::kParallel);
    EXPECT_EQ(first_move(Bottleneck::kCompute, nullptr, start).kind, TransformKind::kMath);
    StrategyMemory memory;
    for (int i = 0; i < 4; ++i) memory.learn(tried(TransformKind::kStreamStores, 1.3), Bottleneck::kMemory);
    for (int i = 0; i < 4; ++i) memory.learn(tried(TransformKind::kMath, 0.5), Bottleneck::kMemory);
    EXPECT_EQ(first_move(Bottleneck::kMemory, &memory, start).kind, TransformKind::kMath);
  }
}

TEST(CostModel, LearnsWhichPlansAreFast) {
  LearningPredictor predictor(Bottleneck::kMemory, nullptr);
  EXPECT_FALSE(predictor.predict(fake_plan(1, 1)));
  // Time falls with the logarithm of the unrolling.
  std::vector<Attempt> attempts;
  for (int size : {1, 8, 2, 16, 4, 32, 64}) {
    Attempt attempt = tried(TransformKind::kUnroll, 1.0 - 0.1 * std::log2(size));
    attempt.plan = fake_plan(1, size);
    attempt.predicted = predictor.predict(attempt.plan);
    predictor.learn(attempt);
    attempts.push_back(attempt);
  }
  EXPECT_LT(*predictor.predict(fake_plan(1, 64)), *predictor.predict(fake_plan(1, 2)));
  const auto quality = ranking_quality(attempts);
  EXPECT_EQ(quality.attempts, 3);
  EXPECT_NEAR(*quality.spearman, 1.0, 1e-12);
  // What a device's memory knows serves another group from its first plan on.
  StrategyMemory memory;
  for (int i = 0; i < 5; ++i)
    for (const auto& attempt : attempts) memory.learn(attempt, Bottleneck::kMemory);
  auto again = StrategyMemory::from_json(memory.to_json());
  ASSERT_TRUE(again.ok());
  LearningPredictor next(Bottleneck::kMemory, &again->model());
  EXPECT_LT(*next.predict(fake_plan(2, 64)), *next.predict(fake_plan(2, 1)));
  EXPECT_GT(next.confidence(), 0.3);
}

TEST(CostModel, Spearman) {
  EXPECT_NEAR(*spearman({1, 2, 3, 4}, {10, 20, 30, 40}), 1, 1e-12);
  EXPECT_NEAR(*spearman({1, 2, 3, 4}, {4, 3, 2, 1}), -1, 1e-12);
  EXPECT_NEAR(*spearman({1, 2, 2, 3}, {1, 2, 3, 4}), 0.9486832980505138, 1e-12);
  EXPECT_FALSE(spearman({1, 2}, {1, 2}));
  EXPECT_FALSE(spearman({1, 1, 1}, {1, 2, 3}));
}

}  // namespace
}  // namespace kernelopt
