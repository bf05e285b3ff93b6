// The last stage of the pipeline: ranked release through gates 3 and 4 on the re-stitched model (DESIGN.md section 6).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <fmt/format.h>

#include "kernelopt/gates/accuracy.h"
#include "observe.h"
#include "pipeline.h"

namespace kernelopt {

using nlohmann::json;

// A set that passed gates 3 and 4, a rejection, or a fault.
struct Pipeline::Trialled {
  std::variant<TrialPass<Gate4Set>, Rejected, Faulted> answer;
};

namespace {

// At most, both sides together: the race that decides, and those that inform (A/A, max-autotune).
constexpr double kRaceSeconds = 8, kSideRaceSeconds = 3;

StoppingRule release_race(uint64_t seed) {
  StoppingRule rule;
  rule.min_pairs = 20;
  rule.min_total = Seconds(0.4);
  rule.relative_half_width = 0.005;
  rule.thresholds = {1 / tolerance::kMargin, 1.0, tolerance::kMargin};
  rule.bootstrap.seed = seed;
  return rule;
}

Result<PairedSamples> paired(const RawPairs& raw) {
  Samples baseline, candidate;
  for (double sample : raw.baseline) baseline.emplace_back(sample);
  for (double sample : raw.candidate) candidate.emplace_back(sample);
  return PairedSamples::create(std::move(baseline), std::move(candidate));
}

json step_to_json(const ReleaseStep& step, const std::vector<std::string>& groups) {
  static constexpr const char* kKinds[] = {"passed", "rejected", "error", "demoted"};
  json document = {{"result", kKinds[static_cast<int>(step.kind)]}, {"choice", step.choice}};
  if (step.kind == ReleaseStep::Kind::kDemoted) {
    document["groups"] = json::array();
    for (int group : step.groups) document["groups"].push_back(groups[static_cast<size_t>(group)]);
    document["minimal"] = step.minimal;
  }
  if (step.rejected)
    document["rejected"] = {{"gate", step.rejected->gate},
                            {"reason", reject_reason_name(step.rejected->reason)},
                            {"evidence", step.rejected->data}};
  if (step.faulted) document["error"] = step.faulted->message;
  return document;
}

}  // namespace

SetContext Pipeline::set_context() const {
  SetContext context;
  context.torch = state_.hello.value("adapter", "");
  context.fingerprint = state_.hello.value("fingerprint", json(nullptr));
  context.mode = state_.compiled_mode;
  for (const auto& group : state_.groups) context.step_digests[group.group.digest] = group.group.step_digests;
  return context;
}

Result<PairedSamples> Pipeline::race(const std::string& baseline, const std::string& candidate, double most_seconds) {
  auto rule = release_race(context_.options.model.seed);
  rule.max_total = Seconds(most_seconds);
  std::optional<PairedSamples> samples;
  for (Timing timing;; timing = kMoreOfARace) {
    auto raw = observed([&] {
      return context_.worker.time_model(baseline, candidate, context_.options.model.seed, timing);
    });
    if (!raw.result.ok()) return raw.result.error();
    KO_TRY(auto more, paired(*raw.result));
    if (samples) samples->extend(more);
    else samples = std::move(more);
    if (rule.decide(*samples) != StopReason::kContinue) return std::move(*samples);
  }
}

Result<Pipeline::Trialled> Pipeline::try_set(const std::vector<size_t>& groups, const std::vector<int>& choice,
                                             const std::string& baseline, const std::optional<AaControl>& aa) {
  std::vector<Gate2Pass> passes;
  std::vector<const Candidate*> candidates;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (choice[i] == kBaseline) continue;
    const auto& group = state_.groups[groups[i]];
    const auto& digest = group.ranked[static_cast<size_t>(choice[i])];
    const auto& candidate = group.candidates.at(digest);
    candidates.push_back(&candidate);
    if (const auto known = group.evaluator->qualified().find(digest); known != group.evaluator->qualified().end()) {
      KO_TRY(auto pass, known->second.pass());
      passes.push_back(std::move(pass));
      continue;
    }
    // It lost its race to another, or comes from an earlier part of the run: not all of gate 2 was asked yet.
    KO_TRY(auto decision, group.evaluator->requalify(candidate));
    KO_RETURN_IF_ERROR(group.evaluator->drop_inputs());
    if (const auto* rejected = decision.rejected()) return Trialled{*rejected};
    if (const auto* faulted = decision.faulted()) return Trialled{*faulted};
    passes.push_back(std::move(decision).take());
  }
  KO_TRY(auto set, PassSets::stitch(std::move(passes)));

  ModelObservation model;
  model.set = set.digest();
  const auto kernels = trial_kernels(set_context(), candidates);
  auto stitched = observed([&] { return context_.worker.stitch(state_.compiled_mode, kernels); });
  if (!stitched.result.ok()) {
    if (is_interrupt(stitched.result.error())) return stitched.result.error();
    model.stitched = {stitched.result.error(), stitched.attempts};
  } else {
    model.stitched = {read_replaced(stitched.result->reply), stitched.attempts};
    KO_TRY(model.runs, compare_model(stitched.result->handle, context_.options.model.seed));
  }
  auto gate3 = Gate3::decide(std::move(set), *state_.sound, model);
  // A set that did not pass was not taken: it can still be named.
  if (const auto* rejected = gate3.rejected()) {
    keep(context_.recorder.write([&](Journal& journal) { return journal.add_verdict(set, *rejected); }));
    return Trialled{*rejected};
  }
  if (const auto* faulted = gate3.faulted()) {
    keep(context_.recorder.write([&](Journal& journal) { return journal.add_verdict(set, *faulted); }));
    return Trialled{*faulted};
  }
  auto numbers = std::move(gate3).take();
  keep(context_.recorder.write([&](Journal& journal) { return journal.add_pass(numbers); }));

  RaceObservation timing;
  timing.set = model.set;
  timing.baseline_mode = state_.best_mode;
  timing.warmup = tolerance::kWarmup;
  timing.repetition = tolerance::kRepetition;
  timing.bootstrap_seed = context_.options.model.seed;
  timing.aa = aa;
  auto samples = race(baseline, stitched.result->handle, kRaceSeconds);
  if (!samples.ok() && is_interrupt(samples.error())) return samples.error();
  if (samples.ok())
    keep(context_.recorder.write([&](Journal& journal) {
      return journal.add(TimingRecord{TimingKind::kModel, model.set, state_.target.fingerprint, *samples, timing.warmup,
                                      timing.repetition});
    }));
  timing.samples = {std::move(samples), tolerance::kMaxAttempts};
  auto gate4 = Gate4::decide(std::move(numbers), timing);
  KO_RETURN_IF_ERROR(context_.worker.drop(stitched.result->handle));
  if (const auto* rejected = gate4.rejected()) {
    keep(context_.recorder.write([&](Journal& journal) { return journal.add_verdict(numbers, *rejected); }));
    return Trialled{*rejected};
  }
  if (const auto* faulted = gate4.faulted()) {
    keep(context_.recorder.write([&](Journal& journal) { return journal.add_verdict(numbers, *faulted); }));
    return Trialled{*faulted};
  }
  keep(context_.recorder.write([&](Journal& journal) { return journal.add_pass(gate4.pass()); }));
  const double ratio = gate4.pass().members()[0].race().ratio;
  return Trialled{TrialPass<Gate4Set>{std::move(gate4).take(), ratio}};
}

Result<std::string> Pipeline::baseline_handle() {
  if (state_.best_mode == kEagerHandle) return std::string(kEagerHandle);
  auto stitched = observed([&] { return context_.worker.stitch(state_.best_mode, nullptr); });
  if (!stitched.result.ok()) return stitched.result.error();
  return stitched.result->handle;
}

Result<RatioEstimate> Pipeline::race_against_best(const std::string& handle) {
  KO_TRY(const std::string baseline, baseline_handle());
  KO_TRY(auto samples, race(baseline, handle, kRaceSeconds));
  return estimate_ratio(samples, {.seed = context_.options.model.seed});
}

Status Pipeline::release_best() {
  std::vector<size_t> groups;
  std::vector<int> counts;
  std::vector<std::string> names;
  int searched = 0, passed = 0, tried = 0;
  for (size_t i = 0; i < state_.groups.size(); ++i) {
    const auto& group = state_.groups[i];
    if (group.search) {
      searched += std::any_of(group.search->attempts.begin(), group.search->attempts.end(),
                              [](const Attempt& attempt) { return attempt.evaluation.state != AttemptState::kDuplicate; });
      for (const auto& attempt : group.search->attempts) {
        if (attempt.evaluation.state == AttemptState::kDuplicate) continue;
        ++tried;
        passed += attempt.measured();
      }
    }
    if (group.ranked.empty()) continue;
    groups.push_back(i);
    names.push_back(group.group.digest);
    counts.push_back(static_cast<int>(group.ranked.size()));
  }
  if (state_.degenerate) {
    conclude_early(Fallback{state_.best_mode, *state_.degenerate + ": a gain would mean nothing", {}});
    return ok_status();
  }
  if (groups.empty()) {
    if (searched == 0) {
      for (const auto& group : state_.groups)
        if (group.search && group.search->stop == SearchStop::kOutOfTime) {
          conclude_early(Fallback{state_.best_mode, "the time was spent before a candidate was tried", {}});
          return ok_status();
        }
      std::string reason = "there is nothing to gain in the generated kernels";
      for (const auto& group : state_.groups) {
        if (!group.kept.empty()) reason = "group left to the compiler: " + group.kept;
        if (group.search && group.search->stop == SearchStop::kNoPlan) reason = "no kernel plan: " + group.search->stop_reason;
      }
      // Groups that were looked at and cannot pay say more about the model than those that were not.
      for (const auto& group : state_.groups)
        if (group.search && (group.search->stop == SearchStop::kCannotPay || group.search->stop == SearchStop::kAtFloor))
          reason = std::string(search_stop_name(group.search->stop)) + ": " + group.search->stop_reason;
      if (state_.groups.empty()) reason = "the compiler generated no kernel that could be replaced";
      conclude_early(Matched{state_.best_mode, reason, std::nullopt});
    } else if (passed > 0) {
      conclude_early(Matched{state_.best_mode, fmt::format("none of {} candidates was faster than the compiler's kernels", tried),
                             std::nullopt});
    } else {
      conclude_early(Fallback{state_.best_mode, fmt::format("none of {} candidates passed gates 1 and 2", tried), {}});
    }
    return ok_status();
  }

  KO_TRY(const std::string baseline, baseline_handle());
  std::optional<AaControl> aa;
  {
    auto same = race(baseline, baseline, kSideRaceSeconds);
    if (!same.ok()) return same.error();
    aa = evaluate_aa(*same, {.seed = context_.options.model.seed}, tolerance::kAaBias);
  }

  std::optional<Error> interrupt;
  int trials = 0;
  auto result = RankedRelease<Gate4Set>::run(counts, [&](const Choice& choice) -> Trial<Gate4Set> {
    if (interrupt) return Faulted{3, "interrupted", {}};
    show("release", fmt::format("set {}", ++trials));
    auto trialled = try_set(groups, choice, baseline, aa);
    if (!trialled.ok()) {
      if (is_interrupt(trialled.error())) interrupt = trialled.error();
      return Faulted{3, trialled.error().to_string(), {}};
    }
    return std::move(trialled->answer);
  });
  for (const auto& step : result.steps) {
    state_.release_steps.push_back(step_to_json(step, names));
    KO_RETURN_IF_ERROR(context_.recorder.add("release", state_.release_steps.back()));
  }
  if (interrupt) return std::move(*interrupt);
  if (!result.pass) {
    std::string reason = "no set of candidates passed gates 3 and 4";
    for (const auto& step : result.steps)
      if (step.rejected)
        reason = fmt::format("gate {}: {}", step.rejected->gate, reject_reason_name(step.rejected->reason));
    if (result.fault) reason = result.fault->message;
    conclude_early(Fallback{state_.best_mode, reason, {}});
    return ok_status();
  }
  auto concluded = conclude(std::move(result.pass->token));
  if (auto* matched = std::get_if<Matched>(&concluded)) {
    conclude_early(std::move(*matched));
    return ok_status();
  }
  auto optimized = std::get<Optimized>(std::move(concluded));
  show("release", "optimized.py");
  auto written = write_optimized(optimized);
  if (!written.ok()) {
    if (is_interrupt(written.error())) return written;
    state_.notes.push_back("optimized.py: " + written.error().to_string());
    conclude_early(Fallback{state_.best_mode, "the written optimized.py does not hold what was verified: " +
                                                  written.error().to_string(), {}});
    return ok_status();
  }
  conclude_early(std::move(optimized));
  return ok_status();
}

// Writes the file and looks at it once more as the user will: imported, with kernels from the file and nowhere else.
Status Pipeline::write_optimized(const Optimized& optimized) {
  KO_TRY(auto runtime, context_.worker.runtime_source());
  const auto path = std::filesystem::path(context_.options.folder) / "optimized.py";
  const auto temporary = path.string() + ".new";
  {
    std::ofstream file(temporary, std::ios::binary);
    file << optimized_source(model_origin(context_.options.model), runtime,
                             released_kernels(set_context(), optimized.release_set()),
                             fmt::format("optimized, {:.2f} times the speed of torch.compile mode {}",
                                         optimized.win().speedup(), state_.best_mode));
    file.flush();
    if (!file) return Error(ErrorCode::kIo, "cannot write " + temporary);
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) return Error(ErrorCode::kIo, "cannot write " + path.string() + ": " + error.message());

  KO_TRY(auto loaded, context_.worker.load_optimized(path.string()));
  if (loaded.status.value("state", "") != "optimized")
    return Error(ErrorCode::kInternal, "it runs as " + loaded.status.dump());
  // As gate 3 judged the set: one challenge in it binds the whole.
  Change change = Change::kRewrite;
  for (const auto& kernel : optimized.release_set().kernels())
    if (kernel.pass().subject().change == Change::kChallenge) change = Change::kChallenge;
  KO_TRY(auto runs, compare_model(loaded.handle, context_.options.model.seed));
  for (const auto& run : runs) {
    if (!run.result.ok()) return run.result.error();
    AccuracyRule rule = model_rule(context_.options.precision, change);
    rule.rho_always = !state_.sound->inaccurate().empty();
    const auto verdict = judge_comparison(run.result->comparison, rule);
    if (verdict.failure)
      return Error(ErrorCode::kInternal, std::string("its outputs: ") + reject_reason_name(*verdict.failure));
  }
  return race_max_autotune(loaded.handle);
}

Status Pipeline::race_max_autotune(const std::string& handle) {
  constexpr const char* kMaxAutotune = "max-autotune";
  if (!state_.mode(kMaxAutotune)) return ok_status();
  if (context_.seconds_left().value_or(1) <= 0) {
    state_.notes.push_back("no race against max-autotune: the time is spent");
    return ok_status();
  }
  auto compiled = observed([&] { return context_.worker.stitch(kMaxAutotune, nullptr); });
  if (!compiled.result.ok()) {
    if (is_interrupt(compiled.result.error())) return compiled.result.error();
    state_.notes.push_back("no race against max-autotune: " + compiled.result.error().to_string());
    return ok_status();
  }
  auto samples = race(compiled.result->handle, handle, kSideRaceSeconds);
  if (!samples.ok()) {
    if (is_interrupt(samples.error())) return samples.error();
    state_.notes.push_back("no race against max-autotune: " + samples.error().to_string());
    return ok_status();
  }
  state_.against_max_autotune = estimate_ratio(*samples, {.seed = context_.options.model.seed});
  return ok_status();
}

}  // namespace kernelopt
