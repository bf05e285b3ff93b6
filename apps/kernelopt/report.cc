#include "report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <sys/resource.h>

#include <fmt/format.h>

#include "kernelopt/search/select.h"

namespace kernelopt {

using nlohmann::json;

namespace {

json engine_json(double seconds) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {{"seconds", seconds}, {"peak_bytes", usage.ru_maxrss * int64_t{1024}}};
}

json optional_json(const std::optional<std::string>& text) { return text ? json(*text) : json(nullptr); }

json ratio_json(const RatioEstimate& race, const std::string& against) {
  return {{"against", against},
          {"value", race.speedup()},
          {"interval", {1 / race.interval.high, 1 / race.interval.low}},
          {"baseline_seconds", race.baseline.count()},
          {"seconds", race.candidate.count()},
          {"pairs", race.pairs}};
}

json worst(const json& rho, const json& other) {
  // "nan" and "inf" are worse than any number.
  if (rho.is_null()) return other;
  if (other.is_null() || rho.is_string()) return rho;
  if (other.is_string()) return other;
  return std::max(rho.get<double>(), other.get<double>());
}

std::string step_kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::kGenerated: return "generated";
    case StepKind::kExtern: return "extern";
    case StepKind::kTemplate: return "template";
    case StepKind::kNop: return "nop";
  }
  return "?";
}

// Attempts of the journal with the verdicts of the gates, in the order tried.
Result<json> candidates_json(const Recorder& recorder) {
  std::map<std::string, json> gates;
  KO_TRY(auto verdicts, recorder.verdicts());
  for (auto& verdict : verdicts)
    gates[verdict.at("candidate").get<std::string>()][std::to_string(verdict.at("gate").get<int>())] = {
        {"verdict", verdict.at("verdict")}, {"reason", verdict.at("reason")}, {"evidence", verdict.at("evidence")}};
  KO_TRY(auto attempts, recorder.all("attempt"));
  json list = json::array();
  for (auto& attempt : attempts) {
    json entry = attempt;
    const auto digest = attempt.at("digest").get<std::string>();
    const auto found = gates.find(digest);
    entry["gates"] = found == gates.end() ? json::object() : found->second;
    json rho = nullptr;
    for (const auto& [gate, verdict] : entry["gates"].items())
      if (verdict["evidence"].is_object()) rho = worst(rho, verdict["evidence"].value("rho", json(nullptr)));
    entry["rho"] = rho;
    list.push_back(std::move(entry));
  }
  return list;
}

struct OutcomeParts {
  std::string name, ships, reason;
  json speedup = nullptr, rho = nullptr, data = nullptr, kernels = json::array();
  json formats = json::array();
};

OutcomeParts outcome_parts(const ModelState& state) {
  OutcomeParts parts;
  parts.name = outcome_name(*state.outcome);
  if (const auto* optimized = std::get_if<Optimized>(&*state.outcome)) {
    parts.ships = "optimized.py";
    parts.reason = "passed all four gates and is measurably faster";
    parts.speedup = ratio_json(optimized->win().race(), state.best_mode);
    std::set<std::string> formats;
    for (const auto& kernel : optimized->release_set().kernels()) {
      const auto evidence = kernel.evidence();
      parts.kernels.push_back({{"group", kernel.candidate().parts().group},
                               {"digest", kernel.candidate().digest()},
                               {"gates", evidence}});
      for (const auto& format : kernel.candidate().parts().formats) formats.insert(format);
      parts.rho = worst(parts.rho, kernel.pass().prior().evidence().value("rho", json(nullptr)));
    }
    parts.formats = formats;
  } else if (const auto* matched = std::get_if<Matched>(&*state.outcome)) {
    parts.ships = matched->ships;
    parts.reason = matched->reason;
    if (matched->race) parts.speedup = ratio_json(*matched->race, state.best_mode);
  } else if (const auto* fallback = std::get_if<Fallback>(&*state.outcome)) {
    parts.ships = fallback->ships;
    parts.reason = fallback->reason;
    parts.data = fallback->data;
  } else {
    const auto& eager = std::get<EagerFallback>(*state.outcome);
    parts.ships = "eager";
    parts.reason = std::string(eager_reason_name(eager.reason)) + ": " + eager.message;
    parts.data = eager.data;
  }
  return parts;
}

json modes_json(const ModelState& state) {
  json modes = json::object();
  for (const auto& timing : state.modes) {
    if (timing.error) {
      modes[timing.mode] = {{"error", *timing.error}};
      continue;
    }
    modes[timing.mode] = {{"seconds", state.mode_seconds(timing.mode)},
                          {"samples", timing.samples.size()},
                          {"compile_seconds", timing.compile_seconds},
                          {"first_call_seconds", timing.first_call_seconds},
                          {"peak_bytes", timing.peak_bytes}};
  }
  return modes;
}

// After how many calls the shipped model has paid for its longer first call, against running eagerly.
json calls_to_pay(const ModelState& state, double seconds) {
  const auto* eager = state.mode("eager");
  const auto* compiled = state.mode(state.compiled_mode);
  if (!eager || !compiled) return nullptr;
  const double gain = state.mode_seconds("eager") - seconds;
  if (gain <= 0) return nullptr;
  return std::ceil(std::max(0.0, compiled->first_call_seconds - eager->first_call_seconds) / gain);
}

std::string milliseconds(const json& seconds) {
  return seconds.is_number() ? fmt::format("{:.3f}", seconds.get<double>() * 1e3) : "-";
}

}  // namespace

namespace {
// What the planner was told, and what this run adds; the cost model's sums are for programs.
json memory_json(const ModelState& state, const Options& options) {
  const auto plain = [](const StrategyMemory& memory) {
    json document = memory.to_json();
    return json{{"experiences", document["experiences"]}, {"strategies", document["strategies"]}};
  };
  return {{"folder", optional_json(options.memory)}, {"known", plain(state.memory)}, {"learned", plain(state.learned)}};
}

constexpr const char* kSubstitute = "time over floor";

json profiler_json(const ModelState& state, const Options& options) {
  if (!state.profile) return nullptr;  // nothing was searched
  return {{"asked", profiler_choice_name(options.profiler)},
          {"used", state.profile->counted ? "ncu" : kSubstitute},
          {"reason", state.profile->reason.empty() ? json(nullptr) : json(state.profile->reason)},
          {"seconds", state.profile->seconds}};
}

json ranking_json(const SearchResult& search) {
  const auto quality = ranking_quality(search.attempts);
  return {{"spearman", quality.spearman ? json(*quality.spearman) : json(nullptr)}, {"attempts", quality.attempts}};
}
}  // namespace

json make_dispatch_map(const ModelState& state) {
  const double model_seconds = state.mode_seconds(state.best_mode);
  json graphs = json::array();
  for (size_t index = 0; index < state.programs.size(); ++index) {
    const Program& program = *state.programs[index];
    std::map<std::string, int> group_of;
    for (size_t g = 0; g < state.groups.size(); ++g)
      if (state.groups[g].program == static_cast<int>(index))
        for (const auto& step : state.groups[g].ref.steps) group_of[step] = static_cast<int>(g);
    json steps = json::array();
    for (const auto& step : program.steps) {
      const auto group = group_of.find(step.name);
      steps.push_back({{"step", step.name},
                       {"kind", step_kind_name(step.kind)},
                       {"origins", step.origins},
                       {"call", step.kind == StepKind::kExtern || step.kind == StepKind::kTemplate
                                    ? json(step.extern_call.op.empty() ? step.extern_call.call : step.extern_call.op)
                                    : json(nullptr)},
                       {"group", group == group_of.end() ? json(nullptr) : json(group->second)},
                       {"refused", optional_json(step.refused)}});
    }
    graphs.push_back({{"graph", program.graph}, {"steps", steps}});
  }
  json groups = json::array();
  std::map<std::string, size_t> first;
  for (size_t g = 0; g < state.groups.size(); ++g) {
    const auto& group = state.groups[g];
    const auto [found, fresh] = first.try_emplace(group.group.digest.empty() ? std::to_string(g) : group.group.digest, g);
    json entry = {{"group", g},
                  {"graph", group.ref.graph},
                  {"digest", group.group.digest},
                  {"steps", group.ref.steps},
                  {"equal_to", fresh ? json(nullptr) : json(found->second)},
                  {"copies", group.copies},
                  {"kept", group.kept.empty() ? json(nullptr) : json(group.kept)},
                  {"bytes", group.work.bytes_read + group.work.bytes_written},
                  {"operations", group.work.operations},
                  {"seconds", nullptr},
                  {"share", nullptr},
                  {"floor_seconds", nullptr},
                  {"headroom", nullptr},
                  {"diagnosis", nullptr},
                  {"profile", nullptr}};
    if (group.time) {
      const double seconds = group.time->baseline.count();
      entry["seconds"] = seconds;
      if (model_seconds > 0) entry["share"] = std::min(1.0, seconds * group.copies / model_seconds);
      if (group.floor_seconds > 0) {
        entry["floor_seconds"] = group.floor_seconds;
        entry["headroom"] = seconds / group.floor_seconds;
      }
      entry["diagnosis"] = diagnosis_name(group.diagnosis());
    }
    if (group.profile)
      entry["profile"] = {{"profiler", group.metrics() ? "ncu" : kSubstitute},
                          {"metrics", group.metrics() ? metrics_to_json(*group.metrics()) : json(nullptr)},
                          {"memory_use", group.roofline.memory_use},
                          {"compute_use", group.roofline.compute_use},
                          {"resources", group.profile->resources}};
    if (group.search)
      entry["search"] = {{"stop", search_stop_name(group.search->stop)},
                         {"reason", group.search->stop_reason},
                         {"rounds", group.search->rounds},
                         {"attempts", group.search->attempts.size()},
                         {"cost_model", ranking_json(*group.search)}};
    groups.push_back(std::move(entry));
  }
  json refusals = json::array(), kept = json::array();
  for (const auto& refusal : state.merge_refusals)
    refusals.push_back({{"graph", refusal.graph}, {"left", refusal.left}, {"right", refusal.right}, {"reason", refusal.reason}});
  for (const auto& step : state.not_optimizable)
    kept.push_back({{"graph", step.graph}, {"step", step.step}, {"reason", step.reason}});
  return {{"graphs", graphs}, {"groups", groups},        {"refused_merges", refusals},
          {"kept", kept},     {"model_seconds", model_seconds}, {"graph_breaks", state.capture.graph_breaks}};
}

Result<json> make_report(const ModelState& state, const Options& options, const Recorder& recorder, double seconds,
                         bool interrupted) {
  KO_TRY(json candidates, candidates_json(recorder));
  json report = {{"format", "kernelopt.report"},
                 {"version", kReportVersion},
                 {"model",
                  {{"path", options.model.path},
                   {"device", options.model.device},
                   {"dtype", optional_json(options.model.dtype)},
                   {"seed", options.model.seed},
                   {"parameters", state.loaded.parameters},
                   {"inputs", state.loaded.inputs},
                   {"needs", state.loaded.needs}}},
                 {"device", state.hello.value("device", json::object())},
                 {"torch", state.hello.value("torch", "")},
                 {"fingerprint", state.hello.value("fingerprint", json(nullptr))},
                 {"precision", precision_name(options.precision)},
                 {"search",
                  {{"rounds", options.sizes.rounds},
                   {"plans", options.sizes.plans},
                   {"chains", options.sizes.chains},
                   {"beam", options.sizes.beam},
                   {"minutes", options.minutes ? json(*options.minutes) : json(nullptr)}}},
                 {"modes", modes_json(state)},
                 {"best_mode", state.best_mode},
                 {"captured_mode", state.compiled_mode},
                 {"interrupted", interrupted},
                 {"outcome", nullptr},
                 {"ships", nullptr},
                 {"reason", nullptr},
                 {"speedup", nullptr},
                 {"speedup_max_autotune", nullptr},
                 {"rho", nullptr},
                 {"formats", json::array()},
                 {"kernels", json::array()},
                 {"decomposition", make_dispatch_map(state)},
                 {"candidates", candidates},
                 {"release", state.release_steps},
                 {"audit", state.sound ? state.sound->evidence() : json(nullptr)},
                 {"stage_seconds", state.stage_seconds},
                 {"seconds", seconds},
                 {"engine", engine_json(seconds - state.seconds_waited)},
                 {"first_call_seconds", nullptr},
                 {"calls_to_pay", nullptr},
                 {"language_models", state.model_usage},
                 {"memory", memory_json(state, options)},
                 {"profiler", profiler_json(state, options)},
                 {"notes", state.notes}};
  const double best = state.mode_seconds(state.best_mode), max_autotune = state.mode_seconds("max-autotune");
  report["mode_choice_gain"] = best > 0 && max_autotune > 0 ? json(max_autotune / best) : json(nullptr);
  if (const auto* compiled = state.mode(state.compiled_mode)) report["first_call_seconds"] = compiled->first_call_seconds;
  if (state.outcome) {
    auto parts = outcome_parts(state);
    report["outcome"] = parts.name;
    report["ships"] = parts.ships;
    report["reason"] = parts.reason;
    report["speedup"] = parts.speedup;
    report["rho"] = parts.rho;
    report["formats"] = parts.formats;
    report["kernels"] = parts.kernels;
    report["evidence"] = parts.data;
    const double shipped = parts.name == "optimized" ? parts.speedup["seconds"].get<double>() : best;
    report["calls_to_pay"] = parts.ships == "eager" ? json(nullptr) : calls_to_pay(state, shipped);
    if (state.against_max_autotune) report["speedup_max_autotune"] = ratio_json(*state.against_max_autotune, "max-autotune");
  }
  report["verdict"] = verdict_line(report);
  return report;
}

std::string verdict_line(const json& report) {
  if (report.value("interrupted", false))
    return "interrupted: nothing ships yet";
  const auto outcome = report.at("outcome").is_null() ? std::string("unfinished") : report["outcome"].get<std::string>();
  std::string formats = "no narrower formats";
  if (!report.at("formats").empty()) {
    formats = "formats";
    for (const auto& format : report["formats"]) formats += " " + format.get<std::string>();
  }
  if (outcome == "optimized") {
    const auto& speedup = report.at("speedup");
    return fmt::format("optimized: {:.2f}x over {} [{:.2f}, {:.2f}], {} kernel{} replaced, {}",
                       speedup.at("value").get<double>(), speedup.at("against").get<std::string>(),
                       speedup.at("interval").at(0).get<double>(), speedup.at("interval").at(1).get<double>(),
                       report.at("kernels").size(), report.at("kernels").size() == 1 ? "" : "s", formats);
  }
  std::string ships = report.at("ships").is_string() ? report["ships"].get<std::string>() : "nothing";
  if (ships != "eager" && ships != "nothing") ships = "torch.compile (" + ships + ")";
  return fmt::format("{}: {} ships, gain 1.00x, {}; {}", outcome, ships, formats,
                     report.at("reason").is_string() ? report["reason"].get<std::string>() : "");
}

std::string dispatch_text(const json& map) {
  std::string text;
  for (const auto& graph : map.at("graphs")) {
    text += fmt::format("graph {}\n", graph.at("graph").get<int>());
    for (const auto& step : graph.at("steps")) {
      std::string what = step.at("kind").get<std::string>();
      if (step["call"].is_string()) what += " " + step["call"].get<std::string>();
      if (step["group"].is_number()) what += fmt::format(" -> group {}", step["group"].get<int>());
      if (step["refused"].is_string()) what += " (" + step["refused"].get<std::string>() + ")";
      std::string origins;
      for (const auto& origin : step.at("origins")) origins += (origins.empty() ? "" : " ") + origin.get<std::string>();
      if (origins.size() > 60) origins = origins.substr(0, 57) + "...";
      text += fmt::format("  {:<24} {:<40} {}\n", step.at("step").get<std::string>().substr(0, 24), what, origins);
    }
  }
  if (!map.at("groups").empty()) {
    text += fmt::format("\n{:>5} {:>6} {:>6} {:>10} {:>7} {:>12} {:>10} {:>9}  {}\n", "group", "steps", "copies", "ms", "share",
                        "bytes", "floor ms", "headroom", "");
    for (const auto& group : map["groups"]) {
      if (group.at("equal_to").is_number()) continue;  // shown once
      std::string note = group["kept"].is_string() ? "kept: " + group["kept"].get<std::string>()
                         : group["diagnosis"].is_string() ? group["diagnosis"].get<std::string>() : "";
      if (const auto profile = group.value("profile", json()); profile.is_object() && profile["metrics"].is_object())
        note += " (" + metrics_text(metrics_of_json(profile["metrics"])) + ")";
      if (group.contains("search"))
        note += fmt::format("; search: {} after {} ({})", group["search"]["stop"].get<std::string>(),
                            group["search"]["attempts"].get<int>(), group["search"]["reason"].get<std::string>());
      text += fmt::format("{:>5} {:>6} {:>6} {:>10} {:>7} {:>12} {:>10} {:>9}  {}\n", group.at("group").get<int>(),
                          group.at("steps").size(), group.at("copies").get<int>(), milliseconds(group["seconds"]),
                          group["share"].is_number() ? fmt::format("{:.0f} %", group["share"].get<double>() * 100) : "-",
                          group["bytes"].get<int64_t>(), milliseconds(group["floor_seconds"]),
                          group["headroom"].is_number() ? fmt::format("{:.2f}x", group["headroom"].get<double>()) : "-", note);
    }
  }
  for (const auto& refusal : map.at("refused_merges"))
    text += fmt::format("not merged: {} and {}: {}\n", refusal.at("left").get<std::string>(),
                        refusal.at("right").get<std::string>(), refusal.at("reason").get<std::string>());
  for (const auto& step : map.at("kept"))
    text += fmt::format("the compiler's: {}: {}\n", step.at("step").get<std::string>(), step.at("reason").get<std::string>());
  for (const auto& reason : map.at("graph_breaks")) text += fmt::format("graph break: {}\n", reason.get<std::string>());
  return text;
}

std::string report_text(const json& report) {
  std::string text = fmt::format("{} on {}, torch {}\n\n", report.at("model").at("path").get<std::string>(),
                                 report.at("device").value("name", "?"), report.value("torch", "?"));
  text += fmt::format("{:<28} {:>10} {:>12}\n", "mode", "ms", "first call s");
  for (const auto& [mode, timing] : report.at("modes").items()) {
    if (timing.contains("error")) text += fmt::format("{:<28} {}\n", mode, timing["error"].get<std::string>());
    else
      text += fmt::format("{:<28} {:>10} {:>12.2f}{}\n", mode, milliseconds(timing.at("seconds")),
                          timing.at("first_call_seconds").get<double>(), mode == report["best_mode"] ? "  best" : "");
  }
  text += "\n" + dispatch_text(report.at("decomposition"));
  std::map<std::string, int> states;
  for (const auto& candidate : report.at("candidates")) ++states[candidate.at("state").get<std::string>()];
  text += fmt::format("\ncandidates: {}", report["candidates"].size());
  for (const auto& [state, count] : states) text += fmt::format(", {} {}", count, state);
  text += "\n";
  for (const auto& group : report.at("decomposition").at("groups"))
    if (const auto model = group.value("search", json::object()).value("cost_model", json()); model.is_object() && model["spearman"].is_number())
      text += fmt::format("cost model on group {}: Spearman {:.2f} over {} plans\n", group.at("group").get<int>(),
                          model["spearman"].get<double>(), model["attempts"].get<int>());
  if (const auto models = report.value("language_models", json()); models.is_object())
    for (const auto& [agent, model] : models.items())
      text += fmt::format("{} {}: {} requests, {} tokens in, {} out, {:.2f} dollars\n", agent, model["model"].get<std::string>(),
                          model["usage"]["requests"].get<int64_t>(), model["usage"]["input_tokens"].get<int64_t>(),
                          model["usage"]["output_tokens"].get<int64_t>(), model["usage"]["dollars"].get<double>());
  if (const auto profiler = report.value("profiler", json()); profiler.is_object()) {
    text += fmt::format("profiler: {}, {:.1f} s", profiler["used"].get<std::string>(), profiler["seconds"].get<double>());
    text += profiler["reason"].is_string() ? " (" + profiler["reason"].get<std::string>() + ")\n" : "\n";
  }
  if (!report.at("speedup_max_autotune").is_null())
    text += fmt::format("against max-autotune: {:.2f}x\n", report["speedup_max_autotune"]["value"].get<double>());
  if (report.at("rho").is_number()) text += fmt::format("rho: {:.2f}\n", report["rho"].get<double>());
  if (report.at("calls_to_pay").is_number())
    text += fmt::format("pays after {:.0f} calls (first call {:.1f} s)\n", report["calls_to_pay"].get<double>(),
                        report["first_call_seconds"].get<double>());
  for (const auto& note : report.at("notes")) text += fmt::format("note: {}\n", note.get<std::string>());
  return text;
}

Status write_text(const std::string& path, const std::string& text) {
  const auto temporary = path + ".new";
  {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    file.flush();
    if (!file) return Error(ErrorCode::kIo, "cannot write " + temporary);
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) return Error(ErrorCode::kIo, "cannot write " + path + ": " + error.message());
  return ok_status();
}

Result<json> read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(ErrorCode::kBadInput, "cannot read " + path);
  std::stringstream buffer;
  buffer << file.rdbuf();
  auto document = json::parse(buffer.str(), nullptr, false);
  if (document.is_discarded()) return Error(ErrorCode::kBadInput, path + " is not JSON");
  return document;
}

}  // namespace kernelopt
