#include "kernelopt/gates/gates.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "kernelopt/gates/accuracy.h"
#include "kernelopt/gates/static_scan.h"
#include "kernelopt/gates/tolerances.h"

namespace kernelopt {
namespace {

using nlohmann::json;

constexpr int kStatic = 1, kFunctional = 2, kModel = 3, kPerformance = 4;
constexpr const char* kOrdinary = "ordinary";

template <typename Pass>
Decision<Pass> as_decision(std::variant<Rejected, Faulted> failure) {
  return std::visit([](auto&& outcome) { return Decision<Pass>(std::move(outcome)); }, std::move(failure));
}

json rho_json(const std::optional<double>& rho) {
  if (!rho) return nullptr;
  if (std::isnan(*rho)) return "nan";
  if (std::isinf(*rho)) return "inf";
  return *rho;
}

// The larger, with NaN as the largest.
void take_worst(std::optional<double>& worst, const std::optional<double>& rho) {
  if (!rho || (worst && std::isnan(*worst))) return;
  if (!worst || std::isnan(*rho) || *rho > *worst) worst = rho;
}

std::optional<RejectReason> misbehaviour(const GroupRun& run) {
  if (!run.guards_intact) return RejectReason::kOutOfBounds;
  if (!run.inputs_unchanged) return RejectReason::kInputsChanged;
  if (run.unwritten > 0) return RejectReason::kUnwritten;
  if (!run.deterministic) return RejectReason::kNotDeterministic;
  return std::nullopt;
}

// A library call takes scratch alone, which its kernels have filled, and returns the one buffer that it may.
std::optional<std::string> library_call_fault(const CandidateParts& parts, const KernelSource& kernel, const Launch& launch) {
  if (parts.language != "triton" || parts.formats.empty()) return "a library call outside a challenge";
  if (kernel.library->call != "convolution") return "no library call is named " + kernel.library->call;
  if (!kernel.source.empty()) return "library call " + kernel.name + " has a source";
  if (launch.args.size() != 3 || launch.programs != 0) return "library call " + kernel.name + " does not take two buffers and return one";
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const auto buffer = std::find_if(parts.scratch.begin(), parts.scratch.end(), [&](const Scratch& one) { return one.name == launch.args[i]; });
    if (buffer == parts.scratch.end() || buffer->returned != (i == 2) || buffer->dtype != DType::kFloat16)
      return "argument " + launch.args[i] + " of library call " + kernel.name + " is not what such a call takes";
  }
  return std::nullopt;
}

// Every argument of every launch is a parameter's worth, and every scratch buffer has a size.
std::optional<std::string> launch_list_fault(const CandidateParts& parts) {
  if (parts.kernels.empty() || parts.launches.empty()) return "no kernel or no launch";
  std::set<std::string> scratch;
  for (const Scratch& buffer : parts.scratch) {
    if (buffer.elements <= 0) return "scratch " + buffer.name + " holds nothing";
    if (!scratch.insert(buffer.name).second) return "scratch " + buffer.name + " is declared twice";
  }
  for (const Launch& launch : parts.launches) {
    const auto kernel = std::find_if(parts.kernels.begin(), parts.kernels.end(),
                                     [&](const KernelSource& one) { return one.name == launch.kernel; });
    if (kernel == parts.kernels.end()) return "no kernel named " + launch.kernel;
    if (kernel->params.size() != launch.args.size()) return "kernel " + launch.kernel + " takes another number of arguments";
    for (size_t i = 0; i < launch.args.size(); ++i)
      if ((kernel->params[i].role == ParamRole::kScratch) != (scratch.count(launch.args[i]) > 0))
        return "argument " + launch.args[i] + " of " + launch.kernel + " has another role than its parameter";
    if (kernel->library)
      if (const auto fault = library_call_fault(parts, *kernel, launch)) return fault;
  }
  return std::nullopt;
}

// One report for each launch of a kernel with a source, in their order.
bool answers(const std::vector<LaunchResources>& reported, std::vector<Launch> launches) {
  std::erase_if(launches, [](const Launch& launch) { return launch.programs == 0; });  // library calls
  return std::equal(reported.begin(), reported.end(), launches.begin(), launches.end(), [](const LaunchResources& a, const Launch& b) {
    return a.kernel == b.kernel && a.programs == b.programs && a.warps == b.warps && a.cooperative == b.cooperative;
  });
}

json resources_json(const LaunchResources& launch) {
  return {{"kernel", launch.kernel},       {"programs", launch.programs},       {"warps", launch.warps}, {"cooperative", launch.cooperative},
          {"registers", launch.registers}, {"stack_bytes", launch.stack_bytes}, {"shared_bytes", launch.shared_bytes}};
}

std::optional<Rejected> beyond_limits(const LaunchResources& launch, const GpuLimits& gpu) {
  const auto rejected = [&](RejectReason reason, const char* figure, int64_t value, int64_t limit, json data = json::object()) {
    data.update({{"kernel", launch.kernel}, {"figure", figure}, {"value", value}, {"limit", limit}});
    return Rejected{kStatic, reason, std::move(data)};
  };
  const int64_t threads = int64_t{launch.warps} * 32;
  if (threads > gpu.threads_per_program) return rejected(RejectReason::kResources, "threads a program", threads, gpu.threads_per_program);
  if (launch.registers > gpu.registers_per_thread)
    return rejected(RejectReason::kResources, "registers a thread", launch.registers, gpu.registers_per_thread);
  if (launch.shared_bytes > gpu.shared_per_program)
    return rejected(RejectReason::kResources, "bytes of shared memory a program", launch.shared_bytes, gpu.shared_per_program);
  const Residency resident = resident_programs(gpu, launch.registers, launch.shared_bytes, threads);
  json numbers = resources_json(launch);
  numbers.update({{"multiprocessors", gpu.multiprocessors}, {"resident_per_multiprocessor", resident.programs}, {"bound_by", resident.bound_by}});
  if (resident.programs == 0) {  // each figure alone is admitted: registers of all its threads
    const int64_t registers = launch.registers * threads;
    return rejected(RejectReason::kResources, "registers a program", registers, gpu.registers_per_multiprocessor, std::move(numbers));
  }
  if (launch.stack_bytes > tolerance::kMostStackBytes)
    return rejected(RejectReason::kSpills, "bytes of local memory a thread", launch.stack_bytes, tolerance::kMostStackBytes);
  const int64_t at_once = resident.programs * gpu.multiprocessors;
  if (launch.cooperative && launch.programs > at_once)
    return rejected(RejectReason::kNotResident, "programs", launch.programs, at_once, std::move(numbers));
  return std::nullopt;
}

}  // namespace

std::optional<Rejected> Gate1::scan(const Subject& subject) {
  KO_CHECK(subject.candidate != nullptr, "gate 1 without a candidate");
  const CandidateParts& parts = subject.candidate->parts();
  const auto rejected = [](RejectReason reason, json data) { return Rejected{kStatic, reason, std::move(data)}; };
  const bool triton = parts.language == "triton";
  if (!triton && parts.language != "cpp") return rejected(RejectReason::kUnknownLanguage, {{"language", parts.language}});
  for (const std::string& format : parts.formats)
    if (!format_admitted(subject.precision, format))
      return rejected(RejectReason::kFormat, {{"format", format}, {"precision", precision_name(subject.precision)}});
  if (const auto fault = launch_list_fault(parts)) return rejected(RejectReason::kLaunchList, {{"fault", *fault}});
  for (const KernelSource& kernel : parts.kernels) {
    if (kernel.library) continue;
    if (const auto finding = triton ? scan_triton_kernel(kernel) : scan_cpp_kernel(kernel))
      return rejected(finding->entry_point ? RejectReason::kEntryPoint : RejectReason::kForbiddenSource,
                      {{"kernel", kernel.name}, {"line", finding->line}, {"token", finding->token}, {"why", finding->why}});
  }
  return std::nullopt;
}

Decision<Gate1Pass> Gate1::decide(const Subject& subject, const Observed<CompileReport>& report) {
  if (auto rejected = scan(subject)) return std::move(*rejected);
  if (!report.result.ok()) {
    auto failure = judge_failure(kStatic, report.result.error(), report.attempts);
    if (auto* rejected = std::get_if<Rejected>(&failure); rejected && rejected->reason == RejectReason::kRunError)
      rejected->reason = RejectReason::kCompileError;
    return as_decision<Gate1Pass>(std::move(failure));
  }
  // C++ libraries export the one entry point, Triton modules the declared kernels.
  std::set<std::string> expected;
  for (const KernelSource& kernel : subject.candidate->parts().kernels)
    if (!kernel.library) expected.insert(subject.candidate->parts().language == "triton" ? kernel.name : std::string(kEntryPoint));
  std::set<std::string> missing = expected;
  for (const std::string& symbol : report.result->symbols) {
    if (!expected.count(symbol)) return Rejected{kStatic, RejectReason::kExtraSymbol, {{"symbol", symbol}}};
    missing.erase(symbol);
  }
  if (!missing.empty()) return Rejected{kStatic, RejectReason::kEntryPoint, {{"missing", *missing.begin()}}};
  json launches = json::array();
  if (subject.candidate->parts().language == "triton") {
    if (!subject.gpu) return Faulted{kStatic, "the limits of the device are not known", {}};
    const std::vector<Launch>& wanted = subject.candidate->parts().launches;
    if (!answers(report.result->launches, wanted)) return Faulted{kStatic, "the compile report does not answer the launch list", {}};
    for (const LaunchResources& launch : report.result->launches) {
      if (auto rejected = beyond_limits(launch, *subject.gpu)) return std::move(*rejected);
      launches.push_back(resources_json(launch));
    }
  }
  json evidence = {{"compile_seconds", report.result->seconds.count()},
                   {"symbols", report.result->symbols},
                   {"formats", subject.candidate->parts().formats}};
  if (!launches.empty()) evidence["launches"] = std::move(launches);
  return Gate1Pass(subject, std::move(evidence));
}

Decision<Gate2Pass> Gate2::decide(Gate1Pass&& pass, const GroupObservation& observation) {
  KO_CHECK(observation.candidate == pass.digest(), "gate 2 was handed another candidate's observation");
  const Subject& subject = pass.subject();
  const AccuracyRule rule = group_rule(subject.precision, subject.change);
  std::set<uint64_t> fresh;
  bool adversarial = false;
  std::optional<double> rho;
  json runs = json::array();
  // A rejection by one run outweighs a fault of another.
  std::optional<Decision<Gate2Pass>> fault;
  for (const Observed<GroupRun>& observed : observation.runs) {
    if (!observed.result.ok()) {
      auto failure = judge_failure(kFunctional, observed.result.error(), observed.attempts);
      if (std::holds_alternative<Rejected>(failure)) return as_decision<Gate2Pass>(std::move(failure));
      if (!fault) fault.emplace(as_decision<Gate2Pass>(std::move(failure)));
      continue;
    }
    const GroupRun& run = *observed.result;
    const ComparisonVerdict verdict = judge_comparison(run.comparison, rule);
    take_worst(rho, verdict.rho);
    json shown = {{"seed", run.seed}, {"case", run.input_case}, {"rho", rho_json(verdict.rho)}};
    shown.update(verdict.evidence);
    if (const auto reason = misbehaviour(run); reason || verdict.failure) {
      shown["unwritten"] = run.unwritten;
      return Rejected{kFunctional, reason ? *reason : *verdict.failure, std::move(shown)};
    }
    runs.push_back(std::move(shown));
    if (run.runs < tolerance::kMinRuns) continue;
    const bool used = std::count(observation.used_seeds.begin(), observation.used_seeds.end(), run.seed) > 0;
    if (run.input_case == kOrdinary && !used) fresh.insert(run.seed);
    if (run.input_case != kOrdinary) adversarial = true;
  }
  if (fault) return std::move(*fault);
  if (fresh.size() < static_cast<size_t>(tolerance::kMinSeeds))
    return Faulted{kFunctional, "too few fresh seeds, each run twice", {{"fresh", fresh.size()}}};
  if (subject.change == Change::kChallenge && !adversarial)
    return Faulted{kFunctional, "a challenge needs adversarial inputs as well", {}};
  json evidence = {{"seeds", std::vector<uint64_t>(fresh.begin(), fresh.end())}, {"rho", rho_json(rho)}, {"runs", runs}};
  return Gate2Pass(std::move(pass), std::move(evidence));
}

Decision<Gate3Set> Gate3::decide(StitchedSet&& set, const BaselineSound& baseline, const ModelObservation& observation) {
  KO_CHECK(observation.set == set.digest(), "gate 3 was handed another set's observation");
  KO_CHECK(baseline.fingerprint() == set.fingerprint(), "gate 3 was handed another device's baseline audit");
  // The strictest member's rule holds for the model.
  Change change = Change::kRewrite;
  std::set<std::string> groups;
  for (const Gate2Pass& member : set.members()) {
    if (member.subject().change == Change::kChallenge) change = Change::kChallenge;
    groups.insert(member.group());
    if (baseline.excludes(member.group()))
      return Rejected{kModel, RejectReason::kNotStitched, {{"excluded", member.group()}}};
  }
  const Precision precision = set.members()[0].subject().precision;

  if (!observation.stitched.result.ok())
    return as_decision<Gate3Set>(judge_failure(kModel, observation.stitched.result.error(), observation.stitched.attempts));
  std::set<std::string> replaced;
  for (const ReplacedGroup& group : *observation.stitched.result) replaced.insert(group.digest);
  if (replaced != groups)
    return Rejected{kModel, RejectReason::kNotStitched, {{"wanted", groups}, {"replaced", replaced}}};

  AccuracyRule rule = model_rule(precision, change);
  // Where the compiler's program has lost digits, being close to eager is not enough.
  rule.rho_always = !baseline.inaccurate().empty();
  std::set<uint64_t> seeds;
  std::optional<double> rho;
  json runs = json::array();
  std::optional<RejectReason> failure;
  std::optional<Decision<Gate3Set>> unfinished;
  for (const Observed<ModelRun>& observed : observation.runs) {
    if (!observed.result.ok()) {
      auto judged = judge_failure(kModel, observed.result.error(), observed.attempts);
      if (!unfinished || std::holds_alternative<Rejected>(judged))
        unfinished.emplace(as_decision<Gate3Set>(std::move(judged)));
      continue;
    }
    const ModelRun& run = *observed.result;
    const ComparisonVerdict verdict = judge_comparison(run.comparison, rule);
    take_worst(rho, verdict.rho);
    json shown = {{"seed", run.seed}, {"calls", run.calls}, {"rho", rho_json(verdict.rho)}};
    shown.update(verdict.evidence);
    if (verdict.failure && !failure) failure = verdict.failure;
    runs.push_back(std::move(shown));
    seeds.insert(run.seed);
  }
  json evidence = {{"set", set.digest()}, {"rho", rho_json(rho)}, {"bound", rho_bound(precision, change)}, {"runs", runs}};
  // Wrong numbers are the candidates' fault whatever else went wrong.
  if (failure) return Rejected{kModel, *failure, std::move(evidence)};
  if (unfinished) return std::move(*unfinished);
  if (seeds.size() < static_cast<size_t>(tolerance::kMinSeeds))
    return Faulted{kModel, "too few seeds", {{"seeds", seeds.size()}}};

  std::string digest = set.digest();
  std::vector<Gate3Pass> passes;
  for (Gate2Pass& member : std::move(set).into_members())
    passes.push_back(Gate3Pass(std::move(member), digest, evidence));
  return Gate3Set(std::move(passes), std::move(digest));
}

Decision<Gate4Set> Gate4::decide(Gate3Set&& set, const RaceObservation& observation) {
  KO_CHECK(observation.set == set.digest(), "gate 4 was handed another set's observation");
  KO_CHECK(observation.warmup >= tolerance::kWarmup && observation.repetition >= tolerance::kRepetition,
           "gate 4 was handed a race with another warm-up or repetition");
  if (!observation.samples.result.ok())
    return as_decision<Gate4Set>(
        judge_failure(kPerformance, observation.samples.result.error(), observation.samples.attempts));
  const PairedSamples& samples = *observation.samples.result;
  if (samples.pairs() < static_cast<size_t>(tolerance::kMinPairs))
    return Faulted{kPerformance, "too few pairs of time samples", {{"pairs", samples.pairs()}}};

  const RatioEstimate race = estimate_ratio(samples, {.seed = observation.bootstrap_seed});
  json evidence = {{"set", set.digest()},
                   {"baseline_mode", observation.baseline_mode},
                   {"race", ratio_to_json(race)},
                   {"margin", tolerance::kMargin},
                   {"warmup_seconds", observation.warmup.count()},
                   {"repetition_seconds", observation.repetition.count()},
                   {"bootstrap_seed", observation.bootstrap_seed}};
  if (observation.aa)
    evidence["aa"] = {{"race", ratio_to_json(observation.aa->estimate)}, {"clean", observation.aa->clean}};
  if (!(race.ratio <= tolerance::kMargin)) return Rejected{kPerformance, RejectReason::kTooSlow, std::move(evidence)};

  std::string digest = set.digest();
  std::vector<Gate4Pass> passes;
  for (Gate3Pass& member : std::move(set).into_members()) passes.push_back(Gate4Pass(std::move(member), race, evidence));
  return Gate4Set(std::move(passes), std::move(digest));
}

}  // namespace kernelopt
