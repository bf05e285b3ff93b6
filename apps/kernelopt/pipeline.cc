#include "pipeline.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "kernelopt/base/digest.h"
#include "kernelopt/gates/tolerances.h"
#include "kernelopt/plan/challenges.h"
#include "kernelopt/plan/convolution.h"
#include "kernelopt/worker/interrupt.h"

namespace kernelopt {

using nlohmann::json;

namespace {

const std::vector<std::string> kModes = {"eager", "default", "max-autotune", "max-autotune-no-cudagraphs"};
const std::vector<std::string> kCompiledModes = {"default", "max-autotune-no-cudagraphs", "max-autotune"};

// Longer than a race's samples: which mode is the best is decided here, once.
constexpr Timing kModeTiming{50, 500};

// Cached data is faster than memory's copy rate; a floor from that rate would end searches too soon.
constexpr double kCacheSpeedup = 4;

// A model that takes its own process down is the model's fault, not ours.
Error blame_model(Error error) {
  if (error.code() == ErrorCode::kWorkerDied || error.code() == ErrorCode::kTimeout) {
    const bool killed = error.to_string().find("signal 9") != std::string::npos;
    return Error(ErrorCode::kBadInput, "the model cannot be run: " + error.message() + (killed ? " (out of memory?)" : ""));
  }
  return error;
}

json modes_to_json(const std::vector<ModeTiming>& modes, const std::string& fingerprint) {
  json list = json::array();
  for (const auto& timing : modes)
    list.push_back({{"mode", timing.mode},
                    {"samples", timing.samples},
                    {"compile_seconds", timing.compile_seconds},
                    {"first_call_seconds", timing.first_call_seconds},
                    {"peak_bytes", timing.peak_bytes},
                    {"error", timing.error ? json(*timing.error) : json(nullptr)}});
  return {{"fingerprint", fingerprint}, {"modes", list}};
}

std::vector<ModeTiming> modes_of(const json& document) {
  std::vector<ModeTiming> modes;
  for (const auto& item : document.at("modes")) {
    ModeTiming timing;
    timing.mode = item.at("mode");
    timing.samples = item.at("samples").get<std::vector<double>>();
    timing.compile_seconds = item.at("compile_seconds");
    timing.first_call_seconds = item.at("first_call_seconds");
    timing.peak_bytes = item.at("peak_bytes");
    if (!item.at("error").is_null()) timing.error = item["error"].get<std::string>();
    modes.push_back(std::move(timing));
  }
  return modes;
}

double median_seconds(const std::vector<double>& samples) {
  if (samples.empty()) return 0;
  auto sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

double ModelState::mode_seconds(const std::string& name) const {
  const auto* timing = mode(name);
  return timing ? median_seconds(timing->samples) : 0;
}

void challenge(GroupContext& context, const Program& program, const Group& group) {
  if (!group.challenge) return;
  context.change = Change::kChallenge;
  context.adversarial = {"positive", "wide", "large"};
  // What libraries make of infinities in a convolution depends on the algorithm that they choose.
  if (group_product(program, group)) context.adversarial.push_back("special");
}

std::vector<SeedCalls> model_seeds(uint64_t seed) {
  std::vector<SeedCalls> result;
  for (int i = 0; i < tolerance::kMinSeeds; ++i)
    result.push_back({seed + 101 + static_cast<uint64_t>(i), i + 1 == tolerance::kMinSeeds ? 3 : 1});
  return result;
}

ModelOrigin model_origin(const ModelSpec& spec) {
  const auto colon = spec.path.rfind(':');
  if (colon == std::string::npos || std::filesystem::exists(spec.path)) return {"model.py", "", ""};
  return {"", spec.path.substr(0, colon), spec.path.substr(colon + 1)};
}

StoppingRule search_race(uint64_t seed) {
  StoppingRule rule;
  rule.min_pairs = 10;
  rule.min_total = Seconds(0.15);
  rule.max_total = Seconds(1.0);
  rule.relative_half_width = 0.015;
  rule.lost_above = 1.05;
  rule.bootstrap.seed = seed;
  return rule;
}

std::optional<double> PipelineContext::seconds_left() const {
  if (!options.minutes) return std::nullopt;
  return *options.minutes * 60 - std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Pipeline::show(const std::string& stage, const std::string& detail) {
  ProgressState progress;
  progress.stage = stage;
  progress.detail = detail;
  progress.candidates = candidates_;
  progress.seconds_left = context_.seconds_left();
  context_.display.update(progress);
}

Status Pipeline::stage(const std::string& name, const std::function<Status()>& run) {
  if (finished()) return ok_status();
  if (interrupted()) return Error(ErrorCode::kInterrupted, "interrupted");
  show(name);
  const auto begin = std::chrono::steady_clock::now();
  auto status = run();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  state_.stage_seconds[name] += seconds;
  state_.seconds_waited = context_.worker.seconds_waited() + context_.judge.seconds_waited() - aside_.overlap();
  keep(context_.recorder.write([&](Journal& journal) { return journal.add(StageSeconds{name, Seconds(seconds)}); }));
  if (!status.ok()) spdlog::debug("{}: {}", name, status.error().to_string());
  if (status.ok() && !journal_status_.ok()) return journal_status_;
  return status;
}

void Pipeline::conclude_early(ModelOutcome outcome) {
  // A compiler's program that has lost digits is no program to ship.
  if (state_.sound && !state_.sound->inaccurate().empty() && state_.best_mode != kEagerHandle &&
      (std::holds_alternative<Matched>(outcome) || std::holds_alternative<Fallback>(outcome))) {
    const auto& paths = state_.sound->inaccurate();
    outcome = EagerFallback{EagerReason::kDisagrees,
                            fmt::format("the compiler's program is within tolerance of eager, but {} has lost digits that eager keeps", paths.front()),
                            {{"inaccurate", paths}}};
  }
  state_.outcome.emplace(std::move(outcome));
}

Status Pipeline::inspect() {
  KO_RETURN_IF_ERROR(stage("load", [&] { return load(); }));
  KO_RETURN_IF_ERROR(stage("baseline", [&] { return time_modes(); }));
  KO_RETURN_IF_ERROR(stage("capture", [&] { return capture(); }));
  KO_RETURN_IF_ERROR(stage("decompose", [&] { return decompose_programs(); }));
  return stage("time groups", [&] { return time_groups(); });
}

Status Pipeline::optimize() {
  KO_RETURN_IF_ERROR(stage("load", [&] { return load(); }));
  if (state_.target.kind == DeviceKind::kCuda) {
    // The modes are timed under the device's lock, so the judge may work meanwhile.
    KO_RETURN_IF_ERROR(stage("baseline", [&]() -> Status {
      auto [references, timed] = aside_.both([&] { return fetch_references(); }, [&] { return time_modes(); });
      if (finished() && timed.ok()) return timed;
      KO_RETURN_IF_ERROR(std::move(timed));
      return check_reference(references);
    }));
  } else {
    KO_RETURN_IF_ERROR(stage("reference", [&] { return check_reference(fetch_references()); }));
    KO_RETURN_IF_ERROR(stage("baseline", [&] { return time_modes(); }));
  }
  KO_RETURN_IF_ERROR(stage("capture", [&] { return capture(); }));
  KO_RETURN_IF_ERROR(stage("decompose", [&] { return decompose_programs(); }));
  KO_RETURN_IF_ERROR(stage("audit", [&] { return audit(); }));
  KO_RETURN_IF_ERROR(stage("time groups", [&] { return time_groups(); }));
  KO_RETURN_IF_ERROR(stage("search", [&] { return search(); }));
  return stage("release", [&] { return release_best(); });
}

Status Pipeline::prepare_verify(const std::string& captured_mode, const std::string& best_mode, bool groups) {
  state_.compiled_mode = captured_mode;
  state_.best_mode = best_mode;
  KO_RETURN_IF_ERROR(stage("load", [&] { return load(); }));
  if (!groups) return ok_status();
  KO_RETURN_IF_ERROR(stage("capture", [&] { return capture(); }));
  return stage("decompose", [&] { return decompose_programs(); });
}

Status Pipeline::load() {
  // Both import torch and make the model, which takes longest here; nothing is timed before both are there.
  auto [judged, loaded] = aside_.both([&] { return context_.judge.load_model(context_.options.model); },
                                      [&]() -> Result<LoadedModel> {
                                        KO_TRY(state_.hello, context_.worker.hello());
                                        return context_.worker.load_model(context_.options.model);
                                      });
  if (!loaded.ok() && state_.hello.empty()) return loaded.error();  // there was no model yet to blame
  if (!loaded.ok()) return blame_model(loaded.error());
  state_.loaded = std::move(loaded).value();
  if (!judged.ok()) return blame_model(judged.error());
  json facts = state_.hello;
  // An opaque identity to the engine, whatever it holds.
  if (facts.contains("fingerprint") && !facts["fingerprint"].is_string())
    facts["fingerprint"] = sha256_hex(facts["fingerprint"].dump());
  auto& device = facts["device"];
  // Not every machine has a third level.
  if (device.is_object() && device.contains("l3_bytes") && device["l3_bytes"] == 0) device.erase("l3_bytes");
  auto peaks = context_.worker.measure_peaks();
  if (peaks.ok()) {
    state_.peaks = *peaks;
    for (const auto& [key, value] : state_.peaks.items()) facts["device"][key] = value;
  } else if (peaks.error().code() == ErrorCode::kInterrupted || peaks.error().code() == ErrorCode::kEnvironment) {
    return peaks.error();
  } else {
    state_.notes.push_back("peaks of the device are not known: " + peaks.error().to_string());
  }
  KO_TRY(state_.target, read_target(facts));
  return ok_status();
}

Pipeline::References Pipeline::fetch_references() {
  References references;
  for (const auto& [seed, calls] : model_seeds(context_.options.model.seed)) {
    references.push_back(context_.judge.reference_model(seed, calls));
    if (!references.back().ok() || interrupted()) break;
  }
  return references;
}

Status Pipeline::check_reference(const References& references) {
  bool independent = false, constant = false;
  for (const auto& reference : references) {
    if (!reference.ok()) return blame_model(reference.error());
    KO_TRY(auto facts, read_reference_facts(*reference));
    state_.references.push_back(*reference);
    if (!facts.deterministic) {
      const auto reason = facts.reasons.empty() ? std::string("eager disagrees with itself") : facts.reasons.front();
      conclude_early(EagerFallback{EagerReason::kUnverifiable, reason, {{"reasons", facts.reasons}}});
      return ok_status();
    }
    independent |= facts.independent_of_inputs;
    constant |= facts.constant_output;
  }
  if (independent || constant) {
    state_.degenerate = independent ? "the output does not depend on the inputs" : "the output is constant";
    state_.notes.push_back("degenerate model: " + *state_.degenerate);
  }
  return ok_status();
}

Status Pipeline::time_modes() {
  // A resumed run keeps what it measured before.
  KO_TRY(auto earlier, context_.recorder.all("modes"));
  if (!earlier.empty() && earlier.back().value("fingerprint", "") == state_.target.fingerprint) {
    state_.modes = modes_of(earlier.back());
    state_.retimed = false;
  } else {
    KO_TRY(state_.modes, context_.worker.baseline_modes(kModes, kModeTiming));
    KO_RETURN_IF_ERROR(context_.recorder.add("modes", modes_to_json(state_.modes, state_.target.fingerprint)));
    for (const auto& timing : state_.modes) {
      BaselineTime row{timing.mode, {}, timing.compile_seconds, timing.first_call_seconds, timing.peak_bytes, timing.error};
      for (double sample : timing.samples) row.samples.emplace_back(sample);
      KO_RETURN_IF_ERROR(context_.recorder.write([&](Journal& journal) { return journal.add(row); }));
    }
  }
  for (const auto& timing : state_.modes)
    if (timing.error) state_.notes.push_back("mode " + timing.mode + ": " + *timing.error);
  const auto fastest = [&](const std::vector<std::string>& names) {
    std::string best;
    for (const auto& name : names)
      if (const double seconds = state_.mode_seconds(name);
          seconds > 0 && (best.empty() || seconds < state_.mode_seconds(best)))
        best = name;
    return best;
  };
  state_.best_mode = fastest(kModes);
  state_.compiled_mode = fastest(kCompiledModes);
  if (state_.compiled_mode.empty()) {
    std::string why = "torch.compile failed in every mode";
    for (const auto& timing : state_.modes)
      if (timing.mode == "default" && timing.error) why = "torch.compile failed: " + *timing.error;
    conclude_early(EagerFallback{EagerReason::kCompilerFailed, why, json::object()});
  }
  return ok_status();
}

Status Pipeline::capture() {
  const auto folder = std::filesystem::path(context_.options.folder) / "programs";
  auto captured = context_.worker.capture(state_.compiled_mode, folder.string());
  if (!captured.ok()) {
    const auto& error = captured.error();
    if (error.code() == ErrorCode::kInterrupted || error.code() == ErrorCode::kEnvironment) return error;
    // The compiler runs and cannot be looked into: its program ships as it is.
    conclude_early(Fallback{state_.best_mode, "the compiler's program could not be captured: " + error.to_string(), {}});
    return ok_status();
  }
  state_.capture = std::move(captured).value();
  for (const auto& reason : state_.capture.graph_breaks) state_.notes.push_back("graph break: " + reason);
  for (const auto& reason : state_.capture.refused) state_.notes.push_back("left to the compiler: " + reason);
  for (const auto& path : state_.capture.programs) {
    auto program = read_program_file(path);
    if (!program.ok()) {
      state_.notes.push_back("left to the compiler: " + program.error().to_string());
      continue;
    }
    state_.programs.push_back(std::make_unique<Program>(std::move(program).value()));
    state_.program_files.push_back(path);
    std::ifstream file(path, std::ios::binary);
    const std::string document{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    KO_RETURN_IF_ERROR(context_.recorder.write([&](Journal& journal) {
      return journal.add(ProgramRecord{state_.compiled_mode, state_.programs.back()->graph, document});
    }));
  }
  return ok_status();
}

Status Pipeline::decompose_programs() {
  for (size_t index = 0; index < state_.programs.size(); ++index) {
    const Program& program = *state_.programs[index];
    auto decomposition = decompose(program, state_.target.kind == DeviceKind::kCuda ? challenge_sets(program)
                                                                                       : std::vector<std::vector<int>>{});
    for (auto& refusal : decomposition.refusals) state_.merge_refusals.push_back(std::move(refusal));
    for (auto& kept : decomposition.kept) state_.not_optimizable.push_back(std::move(kept));
    std::vector<std::vector<std::string>> names;
    for (const auto& group : decomposition.groups) {
      names.emplace_back();
      for (int step : group.steps) names.back().push_back(program.steps[static_cast<size_t>(step)].name);
    }
    if (names.empty()) continue;
    KO_TRY(auto described, context_.worker.describe_groups(program.graph, names));
    if (described.size() != names.size()) return Error(ErrorCode::kInternal, "describe_groups lost groups");
    for (size_t i = 0; i < names.size(); ++i) {
      GroupState state;
      state.program = static_cast<int>(index);
      state.group = std::move(decomposition.groups[i]);
      state.group.digest = described[i].digest;
      state.group.step_digests = described[i].step_digests;
      state.group.names = described[i].names;
      state.ref = {program.graph, state_.program_files[index], names[i], described[i].names};
      state.baseline = described[i].baseline;
      if (described[i].refused) state.kept = *described[i].refused;
      else if (!state.baseline) state.kept = "the compiler's kernels for it are not known";
      state.work = group_work(program, state.group);
      state_.groups.push_back(std::move(state));
    }
  }
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < state_.groups.size(); ++i) {
    auto& group = state_.groups[i];
    if (group.group.digest.empty()) continue;
    const auto [found, fresh] = first.try_emplace(group.group.digest, i);
    group.representative = fresh;
    if (!fresh) ++state_.groups[found->second].copies;
  }
  return ok_status();
}

void Pipeline::keep(Status status) {
  if (!status.ok() && journal_status_.ok()) journal_status_ = std::move(status);
}

class Pipeline::Gates final : public GateObserver {
 public:
  explicit Gates(Pipeline& pipeline) : pipeline_(pipeline) {}
  void on_pass(const Gate1Pass& pass) override {
    keep_document(*pass.subject().candidate);
    write([&](Journal& journal) { return journal.add_pass(pass); });
  }
  void on_pass(const Gate2Pass& pass) override {
    write([&](Journal& journal) { return journal.add_pass(pass); });
  }
  void on_verdict(const Candidate& candidate, const Rejected& rejected) override {
    keep_document(candidate);
    write([&](Journal& journal) { return journal.add_verdict(candidate, fingerprint(), rejected); });
  }
  void on_verdict(const Candidate& candidate, const Faulted& faulted) override {
    write([&](Journal& journal) { return journal.add_verdict(candidate, fingerprint(), faulted); });
  }
  void on_timed(const Candidate& candidate, const PairedSamples& samples) override {
    write([&](Journal& journal) {
      return journal.add(TimingRecord{TimingKind::kGroup, candidate.digest(), fingerprint(), samples, tolerance::kWarmup,
                                      tolerance::kRepetition});
    });
  }

 private:
  const std::string& fingerprint() const { return pipeline_.state_.target.fingerprint; }
  void write(const std::function<Status(Journal&)>& row) { pipeline_.keep(pipeline_.context_.recorder.write(row)); }
  void keep_document(const Candidate& candidate) {
    // For people and for `verify`.
    const auto folder = std::filesystem::path(pipeline_.context_.options.folder) / "candidates";
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    std::ofstream(folder / (candidate.digest() + ".json"))
        << candidate.to_json().dump(1, ' ', false, json::error_handler_t::replace);
  }
  Pipeline& pipeline_;
};

Pipeline::Pipeline(PipelineContext context) : context_(context), gates_(std::make_shared<Gates>(*this)) {}

Status Pipeline::time_groups() {
  int number = 0;
  const double model_seconds = state_.mode_seconds(state_.best_mode);
  for (auto& group : state_.groups) {
    if (!group.representative || !group.kept.empty()) continue;
    show("time groups", fmt::format("group {} of {}", ++number, state_.groups.size()));
    GroupContext context;
    context.group = group.ref;
    context.baseline = *group.baseline;
    context.fingerprint = state_.target.fingerprint;
    context.gpu = state_.target.gpu;
    context.precision = context_.options.precision;
    challenge(context, *state_.programs[static_cast<size_t>(group.program)], group.group);
    context.seed = context_.options.model.seed;
    context.race = search_race(context_.options.model.seed);
    group.evaluator = std::make_unique<GroupEvaluator>(context_.worker, context_.judge, std::move(context), gates_.get());
    auto time = group.evaluator->time_baseline();
    KO_RETURN_IF_ERROR(group.evaluator->drop_inputs());  // one group's tensors at a time
    if (!time.ok()) {
      if (time.error().code() == ErrorCode::kInterrupted) return time.error();
      group.kept = "the compiler's kernels could not be timed: " + time.error().to_string();
      continue;
    }
    group.time = *time;
    group.roofline = analyze(group.work, time->baseline, state_.target);
    auto floor = group.roofline.floor;
    const int64_t bytes = group.work.bytes_read + group.work.bytes_written;
    if (bytes <= state_.target.l3_bytes) floor.memory /= kCacheSpeedup;
    if (group.group.challenge) {
      const Program& program = *state_.programs[static_cast<size_t>(group.program)];
      if (const auto product = group_product(program, group.group)) floor = challenge_floor(product_work(*product), state_.target);
      if (const auto convolution = group_convolution(program, group.group))
        floor = challenge_floor({bytes, convolution_operations(*convolution), 4}, state_.target);
    }
    group.floor_seconds = std::min(floor.total().count(), time->baseline.count());
    group.outlook = {model_seconds, group.copies, time->baseline.count(), group.floor_seconds};
    KO_RETURN_IF_ERROR(context_.recorder.write([&](Journal& journal) {
      return journal.add(GroupRecord{group.ref.graph,
                                     group.group.digest,
                                     group.ref.steps,
                                     group.kept.empty() ? std::nullopt : std::optional<std::string>(group.kept),
                                     {{"copies", group.copies},
                                      {"bytes", group.work.bytes_read + group.work.bytes_written},
                                      {"operations", group.work.operations},
                                      {"seconds", time->baseline.count()},
                                      {"floor_seconds", group.floor_seconds}}});
    }));
  }
  return ok_status();
}

}  // namespace kernelopt
