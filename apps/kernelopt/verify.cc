// `kernelopt verify DIR`: the checks of gates 1 to 4 again, in fresh processes and with fresh seeds, on what stands in the run
// folder. Mints nothing; says what holds.
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <fmt/format.h>

#include "commands.h"
#include "environment.h"
#include "journal_recorder.h"
#include "kernelopt/gates/accuracy.h"
#include "observe.h"
#include "pipeline.h"
#include "report.h"
#include "run_options.h"

namespace kernelopt {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kFreshSeeds = 50021;  // away from those of the run

struct Check {
  std::string what;
  bool passed;
  std::string detail;
};

Check check_kernels(Pipeline& pipeline, PipelineContext& context, const json& report, const std::string& folder) {
  Check check{"gates 1 and 2 of every shipped kernel", true, fmt::format("{} kernels", report["kernels"].size())};
  const auto fail = [&](const std::string& detail) {
    check.passed = false;
    check.detail = detail;
    return check;
  };
  for (const auto& kernel : report["kernels"]) {
    const auto digest = kernel.at("digest").get<std::string>();
    auto document = read_json((fs::path(folder) / "candidates" / (digest + ".json")).string());
    if (!document.ok()) return fail(document.error().to_string());
    auto candidate = read_candidate(*document);
    if (!candidate.ok()) return fail(candidate.error().to_string());
    if (candidate->digest() != digest) return fail("candidate " + digest.substr(0, 12) + " was changed on disk");
    const GroupState* found = nullptr;
    for (const auto& group : pipeline.state().groups)
      if (group.group.digest == candidate->parts().group && group.baseline) found = &group;
    if (!found) return fail("no group of the model has the digest " + candidate->parts().group.substr(0, 12));
    GroupContext group{found->ref, *found->baseline, pipeline.state().target.fingerprint, context.options.precision,
                       Change::kRewrite, {}, context.options.model.seed + kFreshSeeds, search_race(0)};
    group.gpu = pipeline.state().target.gpu;
    challenge(group, *pipeline.state().programs[static_cast<size_t>(found->program)], found->group);
    GroupEvaluator evaluator(context.worker, context.judge, std::move(group));
    auto decision = evaluator.requalify(*candidate);
    if (!decision.ok()) return fail(decision.error().to_string());
    if (const auto* rejected = decision->rejected())
      return fail(fmt::format("gate {}: {}", rejected->gate, reject_reason_name(rejected->reason)));
    if (const auto* faulted = decision->faulted()) return fail(fmt::format("gate {}: {}", faulted->gate, faulted->message));
  }
  return check;
}

Result<std::vector<Check>> all_checks(PipelineContext& context, const json& report, const std::string& folder) {
  std::vector<Check> checks;
  const auto outcome = report.at("outcome").get<std::string>();
  const bool optimized = outcome == "optimized";
  Pipeline pipeline(context);
  KO_RETURN_IF_ERROR(pipeline.prepare_verify(report.value("captured_mode", "default"), report.value("best_mode", "eager"),
                                             optimized));

  auto loaded = observed([&] { return context.worker.load_optimized((fs::path(folder) / "optimized.py").string()); });
  if (!loaded.result.ok()) {
    if (is_interrupt(loaded.result.error())) return loaded.result.error();
    checks.push_back({"optimized.py loads", false, loaded.result.error().to_string()});
    return checks;
  }
  const auto status = loaded.result->status.value("state", "?");
  checks.push_back({"optimized.py loads", !optimized || status == "optimized", "runs as " + status});

  auto reference = context.judge.reference_model(context.options.model.seed + kFreshSeeds, 1);
  if (!reference.ok()) return reference.error();
  KO_TRY(auto facts, read_reference_facts(*reference));
  if (!facts.deterministic) {
    checks.push_back({"outputs equal eager's", outcome == "eager", "eager differs from itself: nothing to compare with"});
  } else {
    KO_TRY(auto runs, pipeline.compare_model(loaded.result->handle, context.options.model.seed + kFreshSeeds));
    Check check{"gate 3: outputs equal eager's", true, fmt::format("{} seeds", runs.size())};
    // Challenges name the number formats that they use; rewrites use none.
    const Change change = report.value("formats", json::array()).empty() ? Change::kRewrite : Change::kChallenge;
    for (const auto& run : runs) {
      if (!run.result.ok()) {
        check.passed = false;
        check.detail = run.result.error().to_string();
        break;
      }
      const auto verdict = judge_comparison(run.result->comparison, model_rule(context.options.precision, change));
      if (verdict.rho) check.detail = fmt::format("{} seeds, rho {:.2f}", runs.size(), *verdict.rho);
      if (verdict.failure) {
        check.passed = false;
        check.detail = fmt::format("seed {}: {}", run.result->seed, reject_reason_name(*verdict.failure));
        break;
      }
    }
    checks.push_back(std::move(check));
  }
  if (!optimized) return checks;

  checks.push_back(check_kernels(pipeline, context, report, folder));
  KO_TRY(auto ratio, pipeline.race_against_best(loaded.result->handle));
  checks.push_back({"gate 4: not slower than " + report.value("best_mode", ""), ratio.ratio <= tolerance::kMargin,
                    fmt::format("{:.2f}x [{:.2f}, {:.2f}]", ratio.speedup(), 1 / ratio.interval.high, 1 / ratio.interval.low)});
  return checks;
}

}  // namespace

Result<int> run_verify(const Options& given) {
  if (!fs::is_directory(given.folder)) return Error(ErrorCode::kBadInput, "no such run folder: " + given.folder);
  const auto folder = fs::absolute(given.folder).string();
  if (!fs::exists(fs::path(folder) / "report.json") || !fs::exists(fs::path(folder) / "optimized.py"))
    return Error(ErrorCode::kBadInput, given.folder + " holds no finished run");
  KO_TRY(json report, read_json((fs::path(folder) / "report.json").string()));
  if (!report.is_object() || !report.contains("outcome") || !report["outcome"].is_string())
    return Error(ErrorCode::kBadInput, given.folder + " holds no finished run");
  KO_TRY(json run, recorded_run(folder));
  Options options = options_of_run(run, given);
  if (const auto copy = fs::path(folder) / "model.py"; fs::exists(copy)) options.model.path = copy.string();
  options.minutes.reset();

  Display display;
  KO_TRY(auto scratch, ExchangeFolder::create());
  options.folder = scratch->path();
  KO_TRY(auto processes, start_processes({options.python, true, {}, options.model.device}));
  MemoryRecorder recorder;
  PipelineContext context{*processes.worker, *processes.judge, recorder, display, options};
  auto checks = all_checks(context, report, folder);
  processes.worker->stop();
  processes.judge->stop();
  display.clear();
  if (!checks.ok()) return checks.error();

  bool passed = true;
  json document = json::array();
  for (const auto& check : *checks) {
    passed &= check.passed;
    document.push_back({{"check", check.what}, {"passed", check.passed}, {"detail", check.detail}});
    if (!options.json) fmt::print("{:<6} {}: {}\n", check.passed ? "passed" : "FAILED", check.what, check.detail);
  }
  if (options.json) fmt::print("{}\n", json{{"passed", passed}, {"checks", document}}.dump(1));
  else fmt::print("{}\n", passed ? "verified" : "verification failed");
  return passed ? 0 : 1;
}

}  // namespace kernelopt
