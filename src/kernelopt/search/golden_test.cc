// The whole course of one search over fakes, pinned: same seed, same journal. KERNELOPT_ACCEPT=1 writes it anew.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernelopt/search/beam_search.h"
#include "kernelopt/search/builtin_planner.h"
#include "kernelopt/search/fake_agents.h"

namespace kernelopt {
namespace {

// A space of shapes and sizes, in which two shapes print the same kernel, one shape is refused and one cannot be written.
std::shared_ptr<FakePlanSource> space() {
  auto source = std::make_shared<FakePlanSource>();
  source->seed_plan = fake_plan(0, 1);
  const TransformKind kinds[] = {TransformKind::kFuseSteps, TransformKind::kReductionStrategy, TransformKind::kParallel,
                                 TransformKind::kLoopOrder, TransformKind::kVectorAxis, TransformKind::kRecompute};
  for (int i = 1; i <= 6; ++i)
    source->start_moves.push_back({kinds[i - 1], fmt::format("start {}", i), fake_plan(i * 10, 1)});
  source->on_moves = [](const KernelPlan& plan) {
    std::vector<Move> moves;
    for (int size : {1, 2, 4, 8})
      if (size != fake_size(plan))
        moves.push_back({TransformKind::kUnroll, fmt::format("unroll {}", size), fake_plan(fake_shape(plan), size)});
    for (int step : {1, 2})
      moves.push_back({step == 1 ? TransformKind::kLoopOrder : TransformKind::kStreamStores, fmt::format("shape +{}", step),
                       fake_plan(fake_shape(plan) + step, 1)});
    return moves;
  };
  return source;
}

// One line an event, without machine or time of day: the clock counts evaluations.
struct Journal final : SearchObserver {
  std::string text;
  void attempted(const Attempt& a) override {
    text += fmt::format("{:>3} round {} chain {} {} [{}] shape {} size {} predicted {} {}{}{}\n", a.number, a.round, a.chain,
                        transform_name(a.kind), a.description, fake_shape(a.plan), fake_size(a.plan),
                        a.predicted ? fmt::format("{:.3f}", *a.predicted) : "-", attempt_state_name(a.evaluation.state),
                        a.measured() ? fmt::format(" {:.3f}", a.ratio()) : "", a.evaluation.reason.empty() ? "" : ": " + a.evaluation.reason);
  }
  void round_done(int round, const std::vector<Attempt>& attempts, const std::vector<int>& beam) override {
    text += fmt::format("round {} beam:", round);
    for (int index : beam) text += fmt::format(" {}", attempts[static_cast<size_t>(index)].number);
    text += "\n";
  }
};

std::string journal(uint64_t seed, double seconds) {
  double now = 0;
  FakeExecutor executor;
  executor.on_write = [](const KernelPlan& plan) -> Result<Candidate> {
    if (fake_shape(plan) == 40) return Error(ErrorCode::kUnsupported, "no printer for this");
    const int shape = fake_shape(plan) == 11 ? 10 : fake_shape(plan);
    return fake_candidate(fmt::format("shape {} size {}", shape, fake_size(plan)));
  };
  FakeEvaluator evaluator;
  evaluator.on_evaluate = [&](const Candidate& candidate) -> Result<Evaluation> {
    now += 1;
    int shape = 0, size = 1;
    std::sscanf(candidate.parts().kernels[0].source.c_str(), "shape %d size %d", &shape, &size);
    if (shape == 30) return Evaluation{AttemptState::kRejected, "gate 2: out of tolerance", std::nullopt};
    return passed_at(0.95 - 0.005 * (shape % 10) - 0.02 * size + 0.001 * (shape / 10));
  };
  StrategyMemory memory;
  LearningPredictor predictor(Bottleneck::kMemory, nullptr);
  BuiltinPlanner planner(space(), Bottleneck::kMemory, seed, &memory, &predictor);
  BeamSearch search;
  search.outlook = {1e-3, 1, 1e-3, 1e-5};
  search.predictor = &predictor;
  search.out_of_time = [&] { return now >= seconds; };
  Journal observer;
  const auto result = search.run(planner, executor, evaluator, observer);
  return observer.text + fmt::format("{}: {}\n", search_stop_name(result.stop), result.stop_reason);
}

TEST(Search, GoldenJournal) {
  const std::string path = std::string(KERNELOPT_SOURCE_DIR) + "/tests/golden/search/journal.expected";
  const auto text = journal(7, 1e9);
  EXPECT_EQ(text, journal(7, 1e9));
  EXPECT_EQ(text.compare(0, journal(7, 9).find("out of time"), journal(7, 9), 0, journal(7, 9).find("out of time")), 0);
  if (std::getenv("KERNELOPT_ACCEPT")) std::ofstream(path) << text;
  std::stringstream expected;
  expected << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, expected.str());
}

// A space that offers one approach in many sizes first: after kMeltdownWindow plans of it, others get their turn.
TEST(Search, MeltdownForcesOtherApproaches) {
  std::vector<Attempt> attempts;
  for (size_t i = 0; i < kMeltdownWindow; ++i) {
    Attempt attempt;
    attempt.shape_key = i % 2 ? "a" : "b";
    EXPECT_FALSE(melted_down(attempts));
    attempts.push_back(attempt);
  }
  EXPECT_TRUE(melted_down(attempts));
  attempts.back().shape_key = "c";
  EXPECT_FALSE(melted_down(attempts));

  auto source = std::make_shared<FakePlanSource>();
  source->seed_plan = fake_plan(0, 1);
  source->on_moves = [](const KernelPlan&) {
    return std::vector<Move>{{TransformKind::kWindowReuse, "size", fake_plan(0, 2)}, {TransformKind::kPrefetch, "shape", fake_plan(5, 1)}};
  };
  BuiltinPlanner planner(source, Bottleneck::kMemory, 1);
  Attempt parent;
  parent.plan = source->seed_plan;
  parent.shape_key = plan_shape_key(parent.plan);
  const std::vector<Attempt> history = {parent};
  std::set<std::string> seen;
  PlanRequest request{&history, &history[0], &seen, 5, 5};
  EXPECT_EQ(planner.propose(request).at(0).description, "size");
  request.diversify = true;
  EXPECT_EQ(planner.propose(request).at(0).description, "shape");
}

// Refused candidates go back to the executor with the reason, at most kMaxRepairs times, and every version is recorded.
TEST(Search, RepairsAreBounded) {
  auto source = std::make_shared<FakePlanSource>();
  source->seed_plan = fake_plan(0, 1);
  FakeExecutor executor;
  std::vector<std::string> reasons;
  executor.on_repair = [&](const Proposal&, const std::string& reason) -> std::optional<Result<Candidate>> {
    reasons.push_back(reason);
    return Result<Candidate>(fake_candidate(fmt::format("again {}", reasons.size())));
  };
  FakeEvaluator evaluator;
  evaluator.on_evaluate = [&](const Candidate&) -> Result<Evaluation> {
    return Evaluation{AttemptState::kRejected, fmt::format("fault {}", evaluator.batches.size()), std::nullopt};
  };
  RecordingObserver observer;
  BuiltinPlanner planner(source, Bottleneck::kMemory, 1);
  BeamSearch search;
  search.sizes = {1, 1, 1, 1};
  search.outlook = {1e-3, 1, 1e-3, 1e-6};
  const auto result = search.run(planner, executor, evaluator, observer);
  EXPECT_EQ(reasons, (std::vector<std::string>{"fault 1", "fault 2"}));
  ASSERT_EQ(result.attempts.size(), 3u);
  EXPECT_EQ(result.attempts[2].evaluation.reason, "fault 3");
  EXPECT_NE(result.attempts[1].digest, result.attempts[2].digest);
}

}  // namespace
}  // namespace kernelopt
