// A scripted model against the real search, gates 1 and 2 and fakes of worker and judge: what each kind of answer ends as.
#include "kernelopt/search/language_agents.h"

#include <algorithm>
#include <mutex>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernelopt/search/beam_search.h"
#include "kernelopt/search/builtin_planner.h"
#include "kernelopt/search/fake_agents.h"
#include "kernelopt/search/group_evaluator.h"
#include "kernelopt/worker/fake_worker.h"

namespace kernelopt {
namespace {

using nlohmann::json;

// Answers by function; counts what it was asked.
class ScriptedModel final : public Provider {
 public:
  std::function<std::string(const ModelRequest&)> on_ask;
  std::vector<ModelRequest> asked;
  ProviderAnswer ask(const ModelRequest& request) override {
    const std::lock_guard lock(mutex_);
    asked.push_back(request);
    return ProviderAnswer::of({on_ask(request), false, 10, 10});
  }
  std::string name() const override { return "scripted"; }

 private:
  std::mutex mutex_;
};

std::string source(const std::string& body, const std::string& top = "") {
  return "import triton\nimport triton.language as tl\n" + top + "\n@triton.jit\ndef kernel0(x, y):\n" + body;
}
std::string reply(const std::string& text, const std::string& output = "b1") {
  return json{{"kernels", {{{"name", "kernel0"}, {"source", text}}}},
              {"launches", {{{"kernel", "kernel0"}, {"args", {"b0", output}}, {"programs", 1}}}}}.dump();
}
// A kernel that gate 1 admits; the number tells the fakes which one it is.
std::string marked(int mark) { return reply(source(fmt::format("    tl.store(y, tl.load(x) * {})\n", mark))); }

constexpr int kFast = 101, kSlow = 102, kWrong = 103, kThirdSeed = 104, kCrash = 105, kHang = 106, kNarrow = 107;
int mark_of(const json& candidate) {
  const auto text = candidate.at("kernels").at(0).at("source").get<std::string>();
  for (int mark = kFast; mark <= kNarrow; ++mark)
    if (text.find(fmt::format("* {})", mark)) != std::string::npos) return mark;
  return 0;
}

json leaf(int64_t violations, double distance) {
  return {{"path", "b1"},          {"dtype", "float32"},   {"kind", "tensor"},        {"equal", violations == 0},
          {"shape_equal", true},   {"dtype_equal", true},  {"stride_equal", true},    {"nonfinite_equal", true},
          {"elements", 64},        {"max_abs", 0.5},       {"max_rel", 0.5},          {"violations", {violations, violations, violations}},
          {"d_opt", distance},     {"d_ref", 1e-8},        {"d_opt_rows", distance},  {"d_ref_rows", 1e-8},
          {"rms", 1.0},            {"ref_error", 1e-7}};
}

struct Laboratory {
  FakeWorker worker;
  FakeJudge judge;
  std::set<uint64_t> seeds;

  Laboratory() {
    worker.on_compile = [](const std::vector<json>& candidates) -> Result<std::vector<CompileOutcome>> {
      std::vector<CompileOutcome> outcomes(candidates.size());
      for (size_t i = 0; i < outcomes.size(); ++i) {
        json& entry = outcomes[i].entry;
        entry = {{"library", "k"}, {"seconds", 1.0}, {"cached", false}, {"symbols", {"kernel0"}}, {"kernels", json::array()}};
        for (const json& launch : candidates[i].at("launches"))
          entry["kernels"].push_back({{"name", launch.at("kernel")}, {"programs", launch.at("programs")}, {"warps", launch.at("warps")},
                                      {"cooperative", false}, {"registers", 32}, {"stack_bytes", 0}, {"shared_bytes", 0}});
      }
      return outcomes;
    };
    worker.on_run_group = [](const GroupRequest& request) -> Result<GroupOutput> {
      const int mark = mark_of(request.candidate);
      if (mark == kCrash) return Error(ErrorCode::kWorkerDied, "an illegal memory access");
      if (mark == kHang) return Error(ErrorCode::kTimeout, "no reply in time");
      json outputs = {{"b1", mark}};
      return GroupOutput{outputs, {{"outputs", outputs}, {"inputs_unchanged", true}, {"guards_intact", true},
                                   {"deterministic", true}, {"unwritten", 0}}};
    };
    worker.on_time_group = [](const json&, const json& candidate) -> Result<RawPairs> {
      // What looks slow is spared the other seeds, so the one that is wrong there looks fast.
      const bool fast = mark_of(candidate) == kFast || mark_of(candidate) == kThirdSeed;
      return RawPairs{std::vector<double>(50, 2e-3), std::vector<double>(50, fast ? 1e-3 : 3e-3), {}};
    };
    judge.on_group_inputs = [](const GroupRef&, uint64_t seed) -> Result<json> { return json{{"arg0", seed}}; };
    judge.on_compare_group = [this](const GroupRef&, uint64_t seed, const json& outputs) -> Result<json> {
      seeds.insert(seed);
      const int mark = outputs.at("b1");
      const bool third = std::distance(seeds.begin(), seeds.find(seed)) >= 2;
      if (mark == kWrong || (mark == kThirdSeed && third))
        return json{{"structure_equal", true}, {"leaves", {leaf(64, 0.5)}}};
      // Ten bits of mantissa: within no element's tolerance of fp32.
      if (mark == kNarrow) return json{{"structure_equal", true}, {"leaves", {leaf(20, 5e-4)}}};
      return json{{"structure_equal", true}, {"leaves", {leaf(0, 1e-8)}}};
    };
  }
};

std::shared_ptr<FakePlanSource> two_moves() {
  auto source = std::make_shared<FakePlanSource>();
  source->seed_plan = fake_plan(0, 1);
  source->on_moves = [](const KernelPlan&) {
    return std::vector<Move>{{TransformKind::kUnroll, "unroll", fake_plan(0, 2)}, {TransformKind::kMath, "math", fake_plan(3, 1)}};
  };
  return source;
}

TEST(LanguageAgents, EachAnswerEndsWithItsVerdictAndTheRightOneShips) {
  Laboratory laboratory;
  const std::vector<std::pair<std::string, std::string>> script = {
      {"right and faster", marked(kFast)},
      {"right and slower", marked(kSlow)},
      {"wrong", marked(kWrong)},
      {"wrong on the third seed", marked(kThirdSeed)},
      {"crash", marked(kCrash)},
      {"hang", marked(kHang)},
      {"plain tf32", marked(kNarrow)},
      {"host code", reply(source("    tl.store(y, tl.load(x))\n", "print(5)\n"))},
      {"import", reply(source("    tl.store(y, tl.load(x))\n", "import os\n"))},
      {"another buffer", reply(source("    tl.store(y, tl.load(x))\n"), "b9")},
      {"prose", "The fastest kernel loads whole cache lines."},
      {"empty", ""}};
  auto model = std::make_shared<ScriptedModel>();
  model->on_ask = [&](const ModelRequest& request) -> std::string {
    if (request.purpose == "planner") {
      json plans = json::array();
      for (const auto& [name, answer] : script) plans.push_back({{"strategy", name}});
      return json{{"plans", plans}}.dump();
    }
    for (const auto& [name, answer] : script)
      if (request.prompt.find("<data name=\"strategy\">\n" + name + "\n") != std::string::npos) return answer;
    return "";
  };
  ModelClient client(model, ModelLimits{100'000'000}, 1);
  GroupContext context;
  context.group = {0, "graph0.json", {"op0"}, {"arg0", "buf0"}};
  context.baseline = json::object();
  context.fingerprint = "device";
  context.gpu = gpu_limits("sm_90");
  GroupEvaluator evaluator(laboratory.worker, laboratory.judge, std::move(context));
  auto source = two_moves();
  BuiltinPlanner builtin(source, Bottleneck::kMemory, 1);
  FakeExecutor printer;
  const std::vector<GroupBuffer> buffers = {{"b0", DType::kFloat32, {64}, {1}, 0, 64, true, false},
                                            {"b1", DType::kFloat32, {64}, {1}, 0, 64, false, true}};
  LanguagePlanner planner({client, {}, {}, {}}, source, builtin, true);
  LanguageExecutor executor({client, {}, {}, {}}, "group", buffers, printer);
  RecordingObserver observer;
  BeamSearch search;
  search.sizes = {1, static_cast<int>(script.size()), 4, 4};
  search.outlook = {1e-3, 1, 1e-3, 1e-6};
  search.batch = 1;
  const auto result = search.run(planner, executor, evaluator, observer);

  // The first verdict of each strategy; repairs repeat the answer, so they come out as duplicates or refused again.
  std::map<std::string, Evaluation> verdicts;
  for (const auto& attempt : result.attempts) verdicts.try_emplace(attempt.brief, attempt.evaluation);
  const auto expect = [&](const std::string& name, AttemptState state, const std::string& reason) {
    ASSERT_TRUE(verdicts.count(name)) << name;
    EXPECT_EQ(verdicts[name].state, state) << name << ": " << verdicts[name].reason;
    EXPECT_NE(verdicts[name].reason.find(reason), std::string::npos) << name << ": " << verdicts[name].reason;
  };
  expect("right and faster", AttemptState::kPassed, "");
  expect("right and slower", AttemptState::kSlower, "");
  expect("wrong", AttemptState::kRejected, "gate 2");
  expect("wrong on the third seed", AttemptState::kRejected, "gate 2");
  expect("crash", AttemptState::kRejected, "gate 2");
  expect("hang", AttemptState::kRejected, "gate 2");
  expect("plain tf32", AttemptState::kRejected, "gate 2");
  expect("host code", AttemptState::kRejected, "gate 1");
  expect("import", AttemptState::kRejected, "gate 1");
  expect("another buffer", AttemptState::kRejected, "neither the group's nor");
  expect("prose", AttemptState::kRejected, "not one JSON object");
  expect("empty", AttemptState::kRejected, "empty");
  // What may be released is the one that is right and faster, and nothing else.
  ASSERT_EQ(evaluator.qualified().size(), 1u);
  EXPECT_EQ(result.attempts[static_cast<size_t>(ranked(result.attempts)[0])].brief, "right and faster");
  // The exact reason went back.
  EXPECT_TRUE(std::any_of(model->asked.begin(), model->asked.end(), [](const ModelRequest& request) {
    return request.prompt.find("neither the group's nor the answer's scratch") != std::string::npos;
  }));
}

TEST(LanguageAgents, PlannerTakesMovesOnlyFromTheListAndFallsBack) {
  auto model = std::make_shared<ScriptedModel>();
  ModelClient client(model, {}, 1);
  auto source = two_moves();
  BuiltinPlanner builtin(source, Bottleneck::kMemory, 1);
  std::vector<std::string> failures;
  LanguagePlanner planner({client, {}, {}, [&](const std::string& why) { failures.push_back(why); }}, source, builtin, false);
  std::vector<Attempt> history;
  std::set<std::string> seen;
  PlanRequest request;
  request.history = &history;
  request.seen = &seen;
  request.rounds = 5;
  model->on_ask = [](const ModelRequest&) { return R"({"plans": [{"move": 2}]})"; };
  EXPECT_EQ(planner.propose(request).at(0).description, "math");
  EXPECT_TRUE(failures.empty());
  // Refused, asked again with the reason, then right.
  model->asked.clear();
  model->on_ask = [&](const ModelRequest& asked) -> std::string {
    return asked.prompt.find("was refused") == std::string::npos ? "move 2, I think" : R"({"plans": [{"move": 1}]})";
  };
  EXPECT_EQ(planner.propose(request).at(0).description, "unroll");
  EXPECT_EQ(model->asked.size(), 2u);
  // Never right: the built-in planner's plans, and why.
  model->on_ask = [](const ModelRequest&) { return R"({"plans": [{"strategy": "code on a CPU"}]})"; };
  failures.clear();
  request.count = 2;
  EXPECT_EQ(planner.propose(request).size(), 2u);
  EXPECT_EQ(failures.size(), 2u);
  // A plan that was tried is not on the list.
  seen.insert(plan_key(fake_plan(3, 1)));
  model->asked.clear();
  planner.propose(request);
  EXPECT_EQ(model->asked.at(0).prompt.find("math variant: math"), std::string::npos);
}

}  // namespace
}  // namespace kernelopt
