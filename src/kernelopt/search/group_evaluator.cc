#include "kernelopt/search/group_evaluator.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernelopt/gates/accuracy.h"
#include "kernelopt/gates/tolerances.h"

namespace kernelopt {

using nlohmann::json;

namespace {

constexpr const char* kOrdinary = "ordinary";
// A race is over when a candidate is so much slower than the best, which may be the baseline: its place is known then.
constexpr double kLost = 1.02;

bool is_cooperative(const Candidate& candidate) {
  return std::any_of(candidate.parts().launches.begin(), candidate.parts().launches.end(), [](const Launch& launch) { return launch.cooperative; });
}

class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), begin_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  double& total_;
  std::chrono::steady_clock::time_point begin_;
};

bool is_interrupt(const Error& error) { return error.code() == ErrorCode::kInterrupted; }

// A failure that another try may mend.
bool is_transient(const Error& error) {
  return error.code() == ErrorCode::kWorkerDied || error.code() == ErrorCode::kTimeout;
}

template <typename Request>
auto observe(Request&& request) -> Observed<std::decay_t<decltype(request().value())>> {
  int attempts = 1;
  auto result = request();
  while (!result.ok() && is_transient(result.error()) && attempts < tolerance::kMaxAttempts) {
    result = request();
    ++attempts;
  }
  return {std::move(result), attempts};
}

Result<PairedSamples> paired(const RawPairs& raw) {
  const auto seconds = [](const std::vector<double>& samples) {
    Samples result;
    for (double sample : samples) result.emplace_back(sample);
    return result;
  };
  return PairedSamples::create(seconds(raw.baseline), seconds(raw.candidate));
}

}  // namespace

Result<Gate2Pass> Qualified::pass() const {
  auto gate1 = Gate1::decide(subject, compiled);
  if (!gate1.passed()) return Error(ErrorCode::kInternal, "gate 1 decided otherwise the second time");
  auto gate2 = Gate2::decide(std::move(gate1).take(), functional);
  if (!gate2.passed()) return Error(ErrorCode::kInternal, "gate 2 decided otherwise the second time");
  return std::move(gate2).take();
}

GroupEvaluator::GroupEvaluator(Worker& worker, Judge& judge, GroupContext context, GateObserver* observer)
    : worker_(worker), judge_(judge), context_(std::move(context)), observer_(observer) {}

Status GroupEvaluator::prepare(int seeds, bool adversarial) {
  if (std::exchange(judge_restarts_, judge_.restarts()) != judge_.restarts()) inputs_.clear();
  for (int i = 0; i < seeds; ++i) KO_RETURN_IF_ERROR(draw(context_.seed + 1 + static_cast<uint64_t>(i), kOrdinary));
  if (adversarial)
    for (const auto& input_case : context_.adversarial) KO_RETURN_IF_ERROR(draw(context_.seed + 1, input_case));
  judge_restarts_ = judge_.restarts();
  return ok_status();
}

Status GroupEvaluator::draw(uint64_t seed, const std::string& input_case) {
  for (const auto& drawn : inputs_)
    if (drawn.seed == seed && drawn.input_case == input_case) return ok_status();
  auto drawn = observe([&] { return judge_.group_inputs(context_.group, seed, input_case); });
  if (!drawn.result.ok()) return drawn.result.error();
  inputs_.push_back({seed, input_case, std::move(drawn.result).value()});
  return ok_status();
}

Status GroupEvaluator::drop_inputs() {
  const auto dropped = std::exchange(inputs_, {});
  if (judge_restarts_ != judge_.restarts()) return ok_status();
  for (const auto& drawn : dropped) KO_RETURN_IF_ERROR(judge_.drop_files(drawn.inputs));
  return ok_status();
}

template <typename Pass>
bool GroupEvaluator::note(const Candidate& candidate, int gate, const Decision<Pass>& decision, Evaluation& evaluation) {
  if (const auto* rejected = decision.rejected()) {
    evaluation = {AttemptState::kRejected, fmt::format("gate {}: {}", gate, reject_reason_name(rejected->reason)),
                  std::nullopt};
    if (observer_) observer_->on_verdict(candidate, *rejected);
  } else if (const auto* faulted = decision.faulted()) {
    evaluation = {AttemptState::kError, fmt::format("gate {}: {}", gate, faulted->message), std::nullopt};
    if (observer_) observer_->on_verdict(candidate, *faulted);
  } else if (observer_) {
    observer_->on_pass(decision.pass());
  }
  return decision.passed();
}

Result<std::vector<Observed<CompileReport>>> GroupEvaluator::compile(const std::vector<const Candidate*>& candidates) {
  std::vector<Observed<CompileReport>> reports;
  if (candidates.empty()) return reports;
  std::vector<json> documents;
  for (const auto* candidate : candidates) documents.push_back(candidate->to_json());
  Stopwatch watch(seconds_["compile"]);
  auto compiled = observe([&] { return worker_.compile(documents); });
  if (!compiled.result.ok() && is_interrupt(compiled.result.error())) return compiled.result.error();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (compiled.result.ok()) {
      reports.push_back({read_compile_report((*compiled.result)[i].entry), 1});
    } else if (candidates.size() > 1) {
      // One of them took the whole batch down; alone, each answers for itself.
      auto alone = observe([&] { return worker_.compile({documents[i]}); });
      if (!alone.result.ok() && is_interrupt(alone.result.error())) return alone.result.error();
      if (alone.result.ok()) reports.push_back({read_compile_report(alone.result->front().entry), 1});
      else reports.push_back({alone.result.error(), alone.attempts});
    } else {
      reports.push_back({compiled.result.error(), compiled.attempts});
    }
  }
  return reports;
}

Result<bool> GroupEvaluator::run_seeds(const json& document, size_t first, size_t last, GroupObservation& observation) {
  Stopwatch watch(seconds_["gate 2"]);
  for (size_t n = first; n < last && n < inputs_.size(); ++n) {
    const auto& [seed, input_case, inputs] = inputs_[n];
    GroupRequest request;
    request.input_case = input_case;
    request.group = context_.group;
    request.candidate = document;
    request.inputs = inputs;
    request.seed = seed;
    request.runs = tolerance::kMinRuns;
    auto output = observe([&] { return worker_.run_group(request); });
    if (!output.result.ok()) {
      if (is_interrupt(output.result.error())) return output.result.error();
      observation.runs.push_back({output.result.error(), output.attempts});
      return false;  // what one input shows is enough to refuse it
    }
    auto compared = observe([&] {
      return judge_.compare_group(context_.group, seed, request.input_case, output.result->outputs, tolerances_request());
    });
    if (!compared.result.ok()) {
      if (is_interrupt(compared.result.error())) return compared.result.error();
      // The judge never runs a candidate: its failures are never the candidate's fault.
      observation.runs.push_back({Error(ErrorCode::kInternal, compared.result.error().to_string()), compared.attempts});
      return false;
    }
    auto run = read_group_run(seed, request.input_case, request.runs, output.result->reply, *compared.result);
    const bool fine = run.ok() && !judge_comparison(run->comparison, group_rule(context_.precision, context_.change)).failure;
    observation.runs.push_back({std::move(run), 1});
    if (!fine) return false;
  }
  return true;
}

bool GroupEvaluator::decide(const Candidate& candidate, Gate1Pass pass, const Subject& subject,
                            const Observed<CompileReport>& compiled, GroupObservation observation, Evaluation& evaluation) {
  auto decision = Gate2::decide(std::move(pass), observation);
  if (!note(candidate, 2, decision, evaluation)) return false;
  qualified_.insert_or_assign(candidate.digest(), Qualified{subject, compiled, std::move(observation)});
  return true;
}

Result<PairedSamples> GroupEvaluator::race(const json& candidate, const StoppingRule& rule) {
  Stopwatch watch(seconds_["race"]);
  std::optional<PairedSamples> samples;
  for (Timing timing;; timing = kMoreOfARace) {
    auto raw = observe([&] {
      return worker_.time_group(context_.group, context_.baseline, candidate, inputs_.front().inputs, inputs_.front().seed,
                                timing);
    });
    if (!raw.result.ok()) return raw.result.error();
    KO_TRY(PairedSamples more, paired(*raw.result));
    if (samples) samples->extend(more);
    else samples = std::move(more);
    if (rule.decide(*samples) != StopReason::kContinue) break;
  }
  return std::move(*samples);
}

Result<RatioEstimate> GroupEvaluator::time_baseline() {
  KO_RETURN_IF_ERROR(prepare(1));
  KO_TRY(auto samples, race(context_.baseline, context_.race));
  return estimate_ratio(samples, context_.race.bootstrap);
}

Result<std::vector<Evaluation>> GroupEvaluator::evaluate(const std::vector<Candidate>& candidates) {
  KO_RETURN_IF_ERROR(prepare(tolerance::kMinSeeds, context_.change == Change::kChallenge));
  std::vector<Evaluation> evaluations(candidates.size());
  std::vector<Subject> subjects;
  std::vector<const Candidate*> to_compile;
  std::vector<size_t> places;
  for (size_t i = 0; i < candidates.size(); ++i) {
    subjects.push_back({std::make_shared<const Candidate>(candidates[i]), context_.fingerprint, context_.precision,
                        context_.change, context_.gpu});
    if (auto refused = Gate1::scan(subjects[i])) {
      note(candidates[i], 1, Decision<Gate1Pass>(std::move(*refused)), evaluations[i]);
    } else {
      to_compile.push_back(&candidates[i]);
      places.push_back(i);
    }
  }
  KO_TRY(auto reports, compile(to_compile));
  for (size_t n = 0; n < places.size(); ++n) {
    const size_t i = places[n];
    auto gate1 = Gate1::decide(subjects[i], reports[n]);
    if (!note(candidates[i], 1, gate1, evaluations[i])) continue;
    if (cooperative_hung_ && is_cooperative(candidates[i])) {
      evaluations[i] = {AttemptState::kRejected, "not run: a candidate of this group whose programs wait for each other hung", std::nullopt};
      continue;
    }
    GroupObservation observation;
    observation.candidate = candidates[i].digest();
    const auto document = candidates[i].to_json();
    // Right on one input first, then the race, then the other inputs: most candidates lose.
    KO_TRY(const bool right, run_seeds(document, 0, 1, observation));
    if (!right) {
      const auto& last = observation.runs.back().result;
      cooperative_hung_ |= is_cooperative(candidates[i]) && !last.ok() && last.error().code() == ErrorCode::kTimeout;
      decide(candidates[i], std::move(gate1).take(), subjects[i], reports[n], std::move(observation), evaluations[i]);
      continue;
    }
    auto rule = context_.race;
    rule.lost_above = std::min(rule.lost_above, useless_above_ * kLost);
    auto samples = race(document, rule);
    if (!samples.ok()) {
      if (is_interrupt(samples.error())) return samples.error();
      // It was right and then fell over while it was timed: whoever is at fault, it is not shipped.
      const bool candidate = is_transient(samples.error()) || samples.error().code() == ErrorCode::kCandidate;
      evaluations[i] = {candidate ? AttemptState::kRejected : AttemptState::kError,
                        "timing: " + samples.error().to_string(), std::nullopt};
      continue;
    }
    const auto estimate = estimate_ratio(*samples, context_.race.bootstrap);
    const Measured measured{estimate.ratio, estimate.interval.low, estimate.interval.high, estimate.baseline.count(),
                            estimate.candidate.count()};
    if (measured.low > useless_above_) {
      if (observer_) observer_->on_timed(candidates[i], *samples);
      evaluations[i] = {AttemptState::kSlower, "", measured};
      continue;
    }
    KO_RETURN_IF_ERROR(run_seeds(document, 1, inputs_.size(), observation));
    if (!decide(candidates[i], std::move(gate1).take(), subjects[i], reports[n], std::move(observation), evaluations[i])) continue;
    if (observer_) observer_->on_timed(candidates[i], *samples);
    evaluations[i] = {AttemptState::kPassed, "", measured};
    useless_above_ = std::min(useless_above_, measured.high);
  }
  return evaluations;
}

Result<Decision<Gate2Pass>> GroupEvaluator::requalify(const Candidate& candidate) {
  if (const auto known = refused_.find(candidate.digest()); known != refused_.end()) return Decision<Gate2Pass>(known->second);
  KO_RETURN_IF_ERROR(prepare(tolerance::kMinSeeds, context_.change == Change::kChallenge));
  Evaluation evaluation;
  Subject subject{std::make_shared<const Candidate>(candidate), context_.fingerprint, context_.precision, context_.change, context_.gpu};
  KO_TRY(auto reports, compile({&candidate}));
  auto gate1 = Gate1::decide(subject, reports[0]);
  if (!note(candidate, 1, gate1, evaluation)) {
    if (gate1.rejected()) refused_.emplace(candidate.digest(), *gate1.rejected());
    return gate1.rejected() ? Decision<Gate2Pass>(*gate1.rejected()) : Decision<Gate2Pass>(*gate1.faulted());
  }
  GroupObservation observation;
  observation.candidate = candidate.digest();
  KO_RETURN_IF_ERROR(run_seeds(candidate.to_json(), 0, inputs_.size(), observation));
  auto gate2 = Gate2::decide(std::move(gate1).take(), observation);
  if (note(candidate, 2, gate2, evaluation))
    qualified_.insert_or_assign(candidate.digest(), Qualified{subject, reports[0], std::move(observation)});
  else if (gate2.rejected()) refused_.emplace(candidate.digest(), *gate2.rejected());
  return gate2;
}

}  // namespace kernelopt
