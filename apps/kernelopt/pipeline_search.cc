// The stages of the pipeline that judge the baseline and search (DESIGN.md sections 6 and 7).
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "kernelopt/gates/tolerances.h"
#include "kernelopt/search/beam_search.h"
#include "kernelopt/search/builtin_planner.h"
#include "kernelopt/search/executor.h"
#include "kernelopt/search/challenge_sources.h"
#include "kernelopt/worker/interrupt.h"
#include "observe.h"
#include "pipeline.h"

namespace kernelopt {

using nlohmann::json;

namespace {

constexpr size_t kRankedPerGroup = 3;      // candidates of one group that the release may fall back on
constexpr double kReleaseShare = 0.4;     // of the time left when the search begins, at most, kept for the release
constexpr double kWorthReleasing = 0.995;  // a group's own ratio above which a replacement is not worth its risk

// Where the plans of a group come from. kUnsupported where there are none.
Result<std::shared_ptr<const PlanSource>> plan_source(const Program& program, const Group& group, const Target& target) {
  if (group.challenge) {
    if (const auto product = group_product(program, group))
      return std::shared_ptr<const PlanSource>(std::make_shared<ProductSource>(*product));
    if (const auto convolution = group_convolution(program, group))
      return std::shared_ptr<const PlanSource>(std::make_shared<ConvolutionSource>(*convolution));
    // Any other is recorded as what a generated step could be (depthwise convolutions).
  }
  KO_TRY(auto space, PlanSpace::create(program, group, target));
  return std::shared_ptr<const PlanSource>(std::make_shared<SpacePlanSource>(std::move(space)));
}

// Prints, and keeps what was printed.
class KeepingExecutor final : public Executor {
 public:
  KeepingExecutor(Executor& inner, std::map<std::string, Candidate>& kept) : inner_(inner), kept_(kept) {}
  void prepare(const std::vector<Proposal>& proposals) override { inner_.prepare(proposals); }
  Result<Candidate> write(const Proposal& proposal) override { return keep(inner_.write(proposal)); }
  std::optional<Result<Candidate>> repair(const Proposal& proposal, const std::string& reason) override {
    auto again = inner_.repair(proposal, reason);
    return again ? std::optional<Result<Candidate>>(keep(std::move(*again))) : std::nullopt;
  }

 private:
  Result<Candidate> keep(Result<Candidate> candidate) {
    if (candidate.ok()) kept_.insert_or_assign(candidate->digest(), *candidate);
    return candidate;
  }

  Executor& inner_;
  std::map<std::string, Candidate>& kept_;
};

// Answers for candidates that an earlier part of the run has finished; errors are tried again.
class ResumingEvaluator final : public Evaluator {
 public:
  ResumingEvaluator(Evaluator& inner, std::map<std::string, Evaluation> finished)
      : inner_(inner), finished_(std::move(finished)) {}
  Result<std::vector<Evaluation>> evaluate(const std::vector<Candidate>& candidates) override {
    std::vector<Candidate> open;
    for (const auto& candidate : candidates)
      if (!finished_.count(candidate.digest())) open.push_back(candidate);
    std::vector<Evaluation> fresh;
    if (!open.empty()) {
      KO_TRY(fresh, inner_.evaluate(open));
    }
    std::vector<Evaluation> result;
    size_t next = 0;
    for (const auto& candidate : candidates) {
      const auto found = finished_.find(candidate.digest());
      result.push_back(found != finished_.end() ? found->second : std::move(fresh[next++]));
    }
    return result;
  }

 private:
  Evaluator& inner_;
  std::map<std::string, Evaluation> finished_;
};

class Journaling final : public SearchObserver {
 public:
  Journaling(Recorder& recorder, std::string group, const std::map<std::string, Candidate>& candidates,
             std::set<std::string> known, std::function<void(const Attempt&)> show)
      : recorder_(recorder), group_(std::move(group)), candidates_(candidates), known_(std::move(known)),
        show_(std::move(show)) {}
  void attempted(const Attempt& attempt) override {
    show_(attempt);
    if (known_.count(attempt.plan_key) || !status.ok()) return;
    status = recorder_.write([&](Journal& journal) -> Status {
      KO_TRY(const int64_t row,
             journal.add(AttemptRecord{group_, attempt.round, attempt.chain, transform_name(attempt.kind), attempt.description,
                                       attempt.plan_key, attempt.shape_key, plan_to_json(attempt.plan), std::nullopt}));
      const auto written = candidates_.find(attempt.digest);
      if (written == candidates_.end()) return ok_status();
      return journal.add(written->second, row);
    });
    // Last: it is what a resume looks for.
    if (status.ok()) status = recorder_.add("attempt", attempt_to_json(attempt, group_));
  }
  void round_done(int round, const std::vector<Attempt>& attempts, const std::vector<int>& beam) override {
    json kept = json::array();
    for (int index : beam) kept.push_back(attempts[static_cast<size_t>(index)].digest);
    if (status.ok()) status = recorder_.add("round", {{"group", group_}, {"round", round}, {"beam", kept}});
  }
  Status status = ok_status();

 private:
  Recorder& recorder_;
  std::string group_;
  const std::map<std::string, Candidate>& candidates_;
  std::set<std::string> known_;
  std::function<void(const Attempt&)> show_;
};

json usage_of(const LanguageModels& models) {
  json usage = nullptr;
  if (models.planner) usage["planner"] = {{"model", models.planner->name()}, {"usage", models.planner->usage().to_json()}};
  if (models.executor == models.planner) {
    if (models.planner) usage["planner"]["also"] = "executor";
  } else if (models.executor) {
    usage["executor"] = {{"model", models.executor->name()}, {"usage", models.executor->usage().to_json()}};
  }
  return usage;
}

}  // namespace

json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

json attempt_to_json(const Attempt& attempt, const std::string& group) {
  json document = {{"group", group},
                   {"number", attempt.number},
                   {"round", attempt.round},
                   {"chain", attempt.chain},
                   {"kind", transform_name(attempt.kind)},
                   {"description", attempt.description},
                   {"plan", plan_to_json(attempt.plan)},
                   {"plan_key", attempt.plan_key},
                   {"shape_key", attempt.shape_key},
                   {"digest", attempt.digest},
                   {"state", attempt_state_name(attempt.evaluation.state)},
                   {"reason", attempt.evaluation.reason},
                   {"predicted_ratio", attempt.predicted ? json(std::exp(*attempt.predicted)) : json(nullptr)},
                   {"measured", nullptr}};
  if (!attempt.brief.empty()) document["brief"] = attempt.brief;
  if (const auto& measured = attempt.evaluation.measured)
    document["measured"] = {{"ratio", measured->ratio},
                            {"interval", {measured->low, measured->high}},
                            {"baseline_seconds", measured->baseline_seconds},
                            {"candidate_seconds", measured->candidate_seconds}};
  return document;
}

Evaluation evaluation_of(const json& attempt) {
  Evaluation evaluation;
  const auto state = attempt.at("state").get<std::string>();
  for (auto known : {AttemptState::kPassed, AttemptState::kSlower, AttemptState::kRejected, AttemptState::kError, AttemptState::kDuplicate})
    if (state == attempt_state_name(known)) evaluation.state = known;
  evaluation.reason = attempt.at("reason");
  if (const auto& measured = attempt.at("measured"); !measured.is_null())
    evaluation.measured = Measured{measured.at("ratio"), measured.at("interval").at(0), measured.at("interval").at(1),
                                   measured.at("baseline_seconds"), measured.at("candidate_seconds")};
  return evaluation;
}

Result<std::vector<Observed<Comparison>>> Pipeline::audit_group(const GroupState& group) {
  std::vector<Observed<Comparison>> comparisons;
  for (int i = 0; i < tolerance::kStartSeeds; ++i) {
    const uint64_t seed = context_.options.model.seed + 11 + static_cast<uint64_t>(i);
    auto inputs = observed([&] { return context_.judge.group_inputs(group.ref, seed, "ordinary"); });
    if (!inputs.result.ok()) {
      if (is_interrupt(inputs.result.error())) return inputs.result.error();
      comparisons.push_back({inputs.result.error(), inputs.attempts});
      break;
    }
    GroupRequest request;
    request.group = group.ref;
    request.candidate = *group.baseline;
    request.inputs = *inputs.result;
    request.seed = seed;
    auto output = observed([&] { return context_.worker.run_group(request); });
    if (!output.result.ok()) {
      if (is_interrupt(output.result.error())) return output.result.error();
      comparisons.push_back({output.result.error(), output.attempts});
      break;
    }
    auto compared = observed([&] {
      return context_.judge.compare_group(group.ref, seed, "ordinary", output.result->outputs, tolerances_request());
    });
    if (!compared.result.ok()) {
      if (is_interrupt(compared.result.error())) return compared.result.error();
      comparisons.push_back({compared.result.error(), compared.attempts});
      break;
    }
    comparisons.push_back({read_comparison(*compared.result), compared.attempts});
    KO_RETURN_IF_ERROR(context_.judge.drop_files(*inputs.result));
  }
  return comparisons;
}

Result<std::vector<Observed<ModelRun>>> Pipeline::compare_model(const std::string& handle, uint64_t base) {
  std::vector<Observed<ModelRun>> runs;
  for (const auto& [seed, calls] : model_seeds(base)) {
    auto run = observed([&] { return context_.worker.run_model(handle, seed, calls); });
    if (!run.result.ok()) {
      const auto& error = run.result.error();
      if (is_interrupt(error)) return error;
      // Eager has run on these inputs, so a model that raises now does so because of what was compiled.
      const bool raised = error.code() == ErrorCode::kBadInput;
      runs.push_back({Error(raised ? ErrorCode::kCandidate : error.code(), error.to_string()), run.attempts});
      break;
    }
    auto compared = observed([&] { return context_.judge.compare_model(seed, calls, *run.result, tolerances_request()); });
    if (!compared.result.ok()) {
      if (is_interrupt(compared.result.error())) return compared.result.error();
      // The judge never runs a candidate: its failures are never the candidate's fault.
      runs.push_back({Error(ErrorCode::kInternal, compared.result.error().to_string()), compared.attempts});
      continue;
    }
    KO_TRY(auto comparison, read_comparison(*compared.result));
    runs.push_back({ModelRun{seed, calls, std::move(comparison)}, run.attempts});
  }
  return runs;
}

Status Pipeline::audit() {
  AuditObservation observation;
  observation.fingerprint = state_.target.fingerprint;
  observation.precision = context_.options.precision;
  for (const auto& reference : state_.references) observation.references.push_back({read_reference_facts(reference), 1});

  // The whole program first: most disagreements show here. Meanwhile the judge looks which steps the loop IR's reference is
  // known to be right about.
  auto [lowerings, stitched] = aside_.both(
      [&] {
        std::vector<Observed<json>> checked;
        for (size_t index = 0; index < state_.programs.size(); ++index)
          checked.push_back(observed([&] {
            return context_.judge.check_lowering(state_.program_files[index], state_.programs[index]->graph);
          }));
        return checked;
      },
      [&] { return observed([&] { return context_.worker.stitch(state_.compiled_mode, nullptr); }); });
  if (!stitched.result.ok()) {
    if (is_interrupt(stitched.result.error())) return stitched.result.error();
    observation.runs.push_back({Error(ErrorCode::kCandidate, stitched.result.error().to_string()), stitched.attempts});
  } else {
    KO_TRY(observation.runs, compare_model(stitched.result->handle, context_.options.model.seed));
    KO_RETURN_IF_ERROR(context_.worker.drop(stitched.result->handle));
  }

  std::map<std::pair<int, std::string>, double> distance;
  for (size_t index = 0; index < state_.programs.size(); ++index) {
    const auto& checked = lowerings[index];
    if (!checked.result.ok()) {
      if (is_interrupt(checked.result.error())) return checked.result.error();
      state_.notes.push_back("the reference of the groups could not be checked against eager: " +
                             checked.result.error().to_string());
      continue;
    }
    for (const auto& step : checked.result->value("steps", json::array()))
      if (step.contains("d") && step["d"].is_number())
        distance[{state_.programs[index]->graph, step.at("step")}] = step["d"];
  }
  int number = 0;
  for (auto& group : state_.groups) {
    if (!group.representative || !group.kept.empty()) continue;
    show("audit", fmt::format("group {} of {}", ++number, state_.groups.size()));
    GroupAudit audit;
    audit.group = group.group.digest;
    int confirmed = 0;
    bool far = false;
    for (const auto& step : group.ref.steps)
      if (const auto found = distance.find({group.ref.graph, step}); found != distance.end()) {
        ++confirmed;
        far |= !(found->second <= tolerance::kStart);
      }
    audit.reference_confirmed = confirmed > 0 && !far;
    KO_TRY(audit.comparisons, audit_group(group));
    observation.groups.push_back(std::move(audit));
  }

  auto decision = BaselineAudit::decide(observation);
  if (auto* fallback = std::get_if<EagerFallback>(&decision)) {
    conclude_early(std::move(*fallback));
    return context_.recorder.add("audit", {{"sound", false}, {"reason", std::get<EagerFallback>(*state_.outcome).message}});
  }
  if (auto* fault = std::get_if<Faulted>(&decision)) {
    // Nothing can be compared, so nothing may be replaced, and the compiler's program is not known to be right either.
    conclude_early(EagerFallback{EagerReason::kUnverifiable, fault->message, fault->data});
    return context_.recorder.add("audit", {{"sound", false}, {"reason", fault->message}});
  }
  state_.sound.emplace(std::get<BaselineSound>(std::move(decision)));
  for (auto& group : state_.groups)
    for (const auto& [digest, why] : state_.sound->excluded_groups())
      if (group.group.digest == digest && group.kept.empty()) group.kept = "its reference is not confirmed: " + why;
  return context_.recorder.add("audit", {{"sound", true}, {"evidence", state_.sound->evidence()}});
}

Status Pipeline::search() {
  std::vector<size_t> open;
  double possible = 0;
  for (size_t i = 0; i < state_.groups.size(); ++i) {
    auto& group = state_.groups[i];
    if (!group.representative || !group.kept.empty() || !group.evaluator) continue;
    open.push_back(i);
    possible += group.outlook.possible_gain();
  }
  const auto skip = [&](GroupState& group, SearchStop stop, const std::string& reason) {
    SearchResult result;
    result.stop = stop;
    result.stop_reason = reason;
    group.search = std::move(result);
    return context_.recorder.add("search", {{"group", group.group.digest},
                                            {"stop", search_stop_name(stop)},
                                            {"reason", reason},
                                            {"attempts", 0}});
  };
  std::string reason;
  if (state_.degenerate) reason = *state_.degenerate;
  else if (possible < kModelGainWorth)
    reason = fmt::format("all generated kernels together could give {:.1f} % at most", possible * 100);
  if (!reason.empty()) {
    for (size_t i : open) KO_RETURN_IF_ERROR(skip(state_.groups[i], SearchStop::kCannotPay, reason));
    return ok_status();
  }
  std::stable_sort(open.begin(), open.end(), [&](size_t a, size_t b) {
    return state_.groups[a].outlook.possible_gain() > state_.groups[b].outlook.possible_gain();
  });
  KO_RETURN_IF_ERROR(load_memory());
  KO_RETURN_IF_ERROR(profile(open));
  double reserve = 0;
  // The release stitches and compares like the audit, a few times over.
  if (const auto left = context_.seconds_left())
    reserve = std::min(kReleaseShare * std::max(0.0, *left), 12 + 2 * state_.stage_seconds["audit"]);
  for (size_t n = 0; n < open.size(); ++n) {
    if (interrupted()) return Error(ErrorCode::kInterrupted, "interrupted");
    auto& group = state_.groups[open[n]];
    if (auto early = early_stop(group.outlook, 1.0)) {
      KO_RETURN_IF_ERROR(skip(group, early->stop, early->reason));
      continue;
    }
    double seconds = INFINITY;
    if (const auto left = context_.seconds_left()) {
      std::vector<Outlook> rest;
      for (size_t i = n; i < open.size(); ++i) rest.push_back(state_.groups[open[i]].outlook);
      seconds = split_time(rest, std::max(0.0, *left - reserve))[0];
    }
    show("search", fmt::format("group {} of {}", n + 1, open.size()));
    KO_RETURN_IF_ERROR(search_group(open[n], seconds));
  }
  state_.model_usage = usage_of(context_.models);
  return save_memory();
}

// As the memory, a resumed run goes on with the numbers of its first part: they decide what is proposed.
Status Pipeline::profile(const std::vector<size_t>& open) {
  std::vector<ProfileJob> jobs;
  std::vector<size_t> places;
  for (size_t i : open) {
    const auto& group = state_.groups[i];
    if (early_stop(group.outlook, 1.0)) continue;
    jobs.push_back({group.ref, *group.baseline, group.work.bytes_read + group.work.bytes_written});
    places.push_back(i);
  }
  if (jobs.empty()) return ok_status();
  std::map<std::string, size_t> by_digest;
  for (size_t i : places) by_digest.emplace(state_.groups[i].group.digest, i);
  KO_TRY(auto recorded, context_.recorder.all("profile"));
  if (!recorded.empty()) {
    state_.profile = profile_of_json(recorded.front());
    const auto digests = recorded.front().at("digests").get<std::vector<std::string>>();
    for (size_t n = 0; n < digests.size() && n < state_.profile->groups.size(); ++n)
      if (const auto found = by_digest.find(digests[n]); found != by_digest.end())
        state_.groups[found->second].profile = state_.profile->groups[n];
    return ok_status();
  }
  show("profile");
  const double seconds = ncu_seconds(context_.profiler.choice, context_.options.minutes, context_.seconds_left());
  KO_TRY(state_.profile, profile_groups(jobs, context_.profiler, state_.target.kind == DeviceKind::kCuda, seconds,
                                        context_.options.model.seed, context_.worker, context_.judge));
  state_.stage_seconds["search: profile"] += state_.profile->seconds;
  auto document = profile_to_json(*state_.profile);
  document["digests"] = json::array();
  for (size_t n = 0; n < places.size(); ++n) {
    auto& group = state_.groups[places[n]];
    group.profile = state_.profile->groups[n];
    document["digests"].push_back(group.group.digest);
  }
  return context_.recorder.add("profile", document);
}

// A resumed run has to propose what its first part did, so it goes on with the memory of then.
Status Pipeline::load_memory() {
  KO_TRY(auto recorded, context_.recorder.all("memory"));
  if (!recorded.empty()) {
    KO_TRY(state_.memory, StrategyMemory::from_json(recorded.front()));
    return ok_status();
  }
  if (context_.options.memory) {
    std::string note;
    state_.memory = MemoryStore(*context_.options.memory).load(state_.target.fingerprint, &note);
    if (!note.empty()) state_.notes.push_back(note);
  }
  return context_.recorder.add("memory", state_.memory.to_json());
}

Status Pipeline::save_memory() {
  if (!context_.options.memory || state_.learned.empty()) return ok_status();
  KO_TRY(auto saved, context_.recorder.all("memory saved"));
  if (!saved.empty()) return ok_status();
  auto status = MemoryStore(*context_.options.memory).add(state_.target.fingerprint, state_.target.name, state_.learned);
  // A run does not fail for what later ones would have read.
  if (!status.ok()) state_.notes.push_back("the device's memory was not kept: " + status.error().to_string());
  else KO_RETURN_IF_ERROR(context_.recorder.add("memory saved", {{"folder", *context_.options.memory}}));
  return ok_status();
}

Status Pipeline::search_group(size_t index, double seconds) {
  auto& group = state_.groups[index];
  const Program& program = *state_.programs[static_cast<size_t>(group.program)];
  const std::string& digest = group.group.digest;

  auto plans = plan_source(program, group.group, state_.target);
  if (!plans.ok()) {
    SearchResult result;
    result.stop = SearchStop::kNoPlan;
    result.stop_reason = plans.error().to_string();
    group.search = std::move(result);
    return context_.recorder.add("search", {{"group", digest},
                                            {"stop", search_stop_name(SearchStop::kNoPlan)},
                                            {"reason", group.search->stop_reason},
                                            {"attempts", 0}});
  }

  // What an earlier part of this run has finished.
  std::map<std::string, Evaluation> finished;
  std::set<std::string> known;
  KO_TRY(auto earlier, context_.recorder.all("attempt"));
  for (const auto& attempt : earlier) {
    if (attempt.at("group") != digest) continue;
    auto evaluation = evaluation_of(attempt);
    if (evaluation.state == AttemptState::kError) continue;
    known.insert(attempt.at("plan_key").get<std::string>());
    if (evaluation.state != AttemptState::kDuplicate && !attempt.at("digest").get<std::string>().empty())
      finished.insert_or_assign(attempt.at("digest").get<std::string>(), std::move(evaluation));
  }

  const auto begin = std::chrono::steady_clock::now();
  double best = 1.0;
  std::vector<std::string> model_failures;  // of language models
  const Bottleneck bottleneck = bottleneck_of(group.diagnosis());
  LearningPredictor predictor(bottleneck, &state_.memory.model());
  BuiltinPlanner builtin(*plans, bottleneck, context_.options.model.seed, &state_.memory, &predictor);
  PrintingExecutor printer(program, group.group, state_.target);
  const auto& models = context_.models;
  const bool code = models.executor && state_.target.kind == DeviceKind::kCuda;
  const auto failed = [&](const std::string& why) { model_failures.push_back(why); };
  auto questions = [&](ModelClient& client) {
    Questions asked{client, group_facts(program, group.group, group.work, group.roofline, group.outlook.baseline_seconds,
                                        group.baseline.value_or(json()), state_.target),
                    [&] { return seconds - std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); }, failed,
                    models.timeout_seconds};
    if (group.metrics())
      asked.facts.diagnosis += fmt::format("; measured by Nsight Compute: {} ({})", diagnosis_name(group.diagnosis()), metrics_text(*group.metrics()));
    asked.facts.memory = state_.memory.empty() ? "nothing yet" : state_.memory.text();
    asked.facts.history = "nothing yet";
    return asked;
  };
  std::unique_ptr<Planner> asking_planner;
  std::unique_ptr<Executor> asking_executor;
  if (models.planner) asking_planner = std::make_unique<LanguagePlanner>(questions(*models.planner), *plans, builtin, code);
  if (code)
    asking_executor = std::make_unique<LanguageExecutor>(questions(*models.executor), digest,
                                                         group_buffers(program, group.group), printer);
  Planner& planner = asking_planner ? *asking_planner : builtin;
  KeepingExecutor executor(asking_executor ? *asking_executor : printer, group.candidates);
  ResumingEvaluator evaluator(*group.evaluator, std::move(finished));
  Journaling observer(context_.recorder, digest, group.candidates, std::move(known), [&](const Attempt& attempt) {
    ++candidates_;
    if (attempt.passed()) best = std::min(best, attempt.ratio());
    ProgressState progress;
    progress.stage = "search";
    progress.detail = fmt::format("round {} of {}", attempt.round, context_.options.sizes.rounds);
    progress.candidates = candidates_;
    progress.best_speedup = 1 / best;
    progress.seconds_left = context_.seconds_left();
    context_.display.update(progress);
  });
  BeamSearch loop;
  loop.sizes = context_.options.sizes;
  loop.outlook = group.outlook;
  loop.predictor = &predictor;
  // The clock is looked at between batches. Beside a GPU every core compiles.
  if (std::isfinite(seconds)) loop.batch = state_.target.kind == DeviceKind::kCuda ? 4 : 2;
  loop.stop_requested = [] { return interrupted(); };
  loop.out_of_time = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >= seconds;
  };
  group.search = loop.run(planner, executor, evaluator, observer);
  KO_RETURN_IF_ERROR(std::move(observer.status));
  for (const auto& why : model_failures)
    KO_RETURN_IF_ERROR(context_.recorder.add("language model", {{"group", digest}, {"failed", why}}));
  KO_RETURN_IF_ERROR(context_.recorder.add("search", {{"group", digest},
                                                      {"stop", search_stop_name(group.search->stop)},
                                                      {"reason", group.search->stop_reason},
                                                      {"rounds", group.search->rounds},
                                                      {"attempts", group.search->attempts.size()}}));
  for (const auto& [activity, spent] : group.evaluator->seconds()) state_.stage_seconds["search: " + activity] += spent;
  if (group.search->stop == SearchStop::kInterrupted) return Error(ErrorCode::kInterrupted, "interrupted");
  StrategyMemory learned;
  for (const auto& attempt : group.search->attempts) learned.learn(attempt, bottleneck);
  state_.memory.merge(learned);
  state_.learned.merge(learned);
  for (int place : ranked(group.search->attempts)) {
    const auto& attempt = group.search->attempts[static_cast<size_t>(place)];
    if (group.ranked.size() >= kRankedPerGroup || attempt.ratio() > kWorthReleasing) break;
    group.ranked.push_back(attempt.digest);
  }
  return group.evaluator->drop_inputs();
}

}  // namespace kernelopt
