#include "commands.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <unistd.h>

#include <fmt/format.h>

#include "environment.h"
#include "journal_recorder.h"
#include "kernelopt/base/digest.h"
#include "kernelopt/journal/reader.h"
#include "kernelopt/llm/local_providers.h"
#include "kernelopt/worker/interrupt.h"
#include "observe.h"
#include "pipeline.h"
#include "report.h"
#include "run_options.h"

namespace kernelopt {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

bool is_module_spec(const std::string& path) { return path.find(':') != std::string::npos && !fs::exists(path); }

// Files that were named must be there before any process starts, and paths must outlive a change of folder.
Status settle_paths(ModelSpec& model) {
  std::error_code error;
  if (!is_module_spec(model.path)) {
    if (!fs::exists(model.path, error)) return Error(ErrorCode::kBadInput, "no such file: " + model.path);
    if (!fs::is_regular_file(model.path, error)) return Error(ErrorCode::kBadInput, "not a file: " + model.path);
    model.path = fs::absolute(model.path).string();
  }
  for (auto* file : {&model.inputs, &model.state_dict}) {
    if (!*file) continue;
    if (!fs::is_regular_file(**file, error)) return Error(ErrorCode::kBadInput, "no such file: " + **file);
    *file = fs::absolute(**file).string();
  }
  return ok_status();
}

Status make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Error(ErrorCode::kBadInput, fmt::format("cannot make {}: {}", folder, error.message()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return Error(ErrorCode::kBadInput, fmt::format("cannot write to {}", folder));
  return ok_status();
}

Status require_run(const std::string& folder) {
  if (!fs::is_directory(folder)) return Error(ErrorCode::kBadInput, "no such run folder: " + folder);
  return ok_status();
}

Result<Processes> start(const Options& options, Display& display) {
  return start_processes({options.python, true, [&display](const Progress& progress) {
                            ProgressState state;
                            state.stage = progress.stage;
                            if (progress.total > 0) state.detail = fmt::format("{} of {}", progress.done, progress.total);
                            display.update(state);
                          }, options.model.device});
}

void stop(Processes& processes) {
  processes.worker->stop();
  if (processes.judge) processes.judge->stop();
}

// The device is not known yet; rows that depend on it carry its fingerprint themselves.
SessionStart session(const Options& options, SessionKind kind) {
  std::ifstream file(options.model.path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return {kind, KERNELOPT_VERSION, options.model.path, sha256_hex(text), "", run_to_json(options)};
}

Status copy_model(const Options& options) {
  const auto target = fs::path(options.folder) / "model.py";
  if (is_module_spec(options.model.path)) return ok_status();
  std::error_code error;
  if (fs::equivalent(options.model.path, target, error)) return ok_status();
  fs::copy_file(options.model.path, target, fs::copy_options::overwrite_existing, error);
  if (error) return Error(ErrorCode::kBadInput, fmt::format("cannot write {}: {}", target.string(), error.message()));
  return ok_status();
}

// What ships when no kernel does.
Status write_plain(const Options& options, const json& report) {
  const auto ships = report.at("ships").get<std::string>();
  return write_text((fs::path(options.folder) / "optimized.py").string(),
                    plain_source(model_origin(options.model), ships, report.at("outcome").get<std::string>(),
                                 report.at("reason").get<std::string>()));
}

int finish(const Options& options, const json& report, Display& display) {
  display.clear();
  if (options.json) fmt::print("{}\n", report.dump(1));
  else fmt::print("{}\n{}\n", report_text(report), verdict_line(report));
  std::fflush(stdout);
  return 0;
}

// Planner and executor share a client, with its caps, where they are the same model. What is said is kept in the run folder.
Result<LanguageModels> make_models(const Options& options) {
  LanguageModels models;
  models.timeout_seconds = options.llm.timeout_seconds;
  const auto file = fs::path(options.folder) / "llm.jsonl";
  const auto client = [&](const std::string& spec) -> Result<std::shared_ptr<ModelClient>> {
    KO_TRY(std::shared_ptr<Provider> provider, make_provider(spec, options.llm.url));
    return std::make_shared<ModelClient>(resuming_provider(std::move(provider), file), options.llm.limits, options.model.seed,
                                         [file](const json& row) {
                                           std::ofstream(file, std::ios::app)
                                               << row.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
                                         });
  };
  if (options.llm.planner) {
    KO_TRY(models.planner, client(*options.llm.planner));
  }
  if (options.llm.executor == options.llm.planner) {
    models.executor = models.planner;
  } else if (options.llm.executor) {
    KO_TRY(models.executor, client(*options.llm.executor));
  }
  return models;
}

Result<int> run_pipeline(const Options& options, Recorder& recorder) {
  Display display;
  KO_TRY(const auto models, make_models(options));
  KO_RETURN_IF_ERROR(copy_model(options));
  const auto begin = std::chrono::steady_clock::now();
  KO_TRY(auto processes, start(options, display));
  const ProfilerSettings profiler{options.profiler, {processes.python, "-m", "kernelopt.worker.profile"}, processes.environment,
                                  processes.exchange->path()};
  Pipeline pipeline({*processes.worker, *processes.judge, recorder, display, options, begin, models, profiler});
  auto status = pipeline.optimize();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  stop(processes);
  const bool interrupt = !status.ok() && is_interrupt(status.error());
  if (!status.ok() && !interrupt) {
    display.clear();
    return std::move(status).error();
  }
  KO_TRY(json report, make_report(pipeline.state(), options, recorder, seconds, interrupt));
  const auto path = (fs::path(options.folder) / "report.json").string();
  if (interrupt) {
    KO_RETURN_IF_ERROR(write_text(path, report.dump(1) + "\n"));
    display.clear();
    double best = 1;
    for (const auto& candidate : report["candidates"])
      if (candidate["measured"].is_object()) best = std::min(best, candidate["measured"]["ratio"].get<double>());
    fmt::print(stderr, "interrupted; {} candidates are kept, the best {:.2f}x faster than its group's compiler kernels; go on with: kernelopt resume {}\n",
               report["candidates"].size(), 1 / best, options.folder);
    return exit_status(ErrorCode::kInterrupted);
  }
  if (report["outcome"] != "optimized") KO_RETURN_IF_ERROR(write_plain(options, report));
  KO_RETURN_IF_ERROR(write_text(path, report.dump(1) + "\n"));
  KO_RETURN_IF_ERROR(recorder.write([&](Journal& journal) { return journal.add_outcome(*pipeline.state().outcome); }));
  KO_RETURN_IF_ERROR(recorder.add("finished", {{"verdict", report["verdict"]}}));
  return finish(options, report, display);
}

}  // namespace

Result<int> run_inspect(const Options& given) {
  Options options = given;
  KO_RETURN_IF_ERROR(settle_paths(options.model));
  Display display;
  KO_TRY(auto scratch, ExchangeFolder::create());
  if (!options.folder_given) options.folder = scratch->path();
  KO_RETURN_IF_ERROR(make_folder(options.folder));
  KO_TRY(auto processes, start(options, display));
  MemoryRecorder recorder;
  Pipeline pipeline({*processes.worker, *processes.judge, recorder, display, options});
  auto status = pipeline.inspect();
  stop(processes);
  display.clear();
  KO_RETURN_IF_ERROR(std::move(status));
  const auto& state = pipeline.state();
  json map = make_dispatch_map(state);
  map["notes"] = state.notes;
  if (state.outcome) {
    const auto* eager = std::get_if<EagerFallback>(&*state.outcome);
    const auto* fallback = std::get_if<Fallback>(&*state.outcome);
    map["notes"].push_back(eager ? eager->message : fallback ? fallback->reason : std::string());
  }
  if (options.json) {
    fmt::print("{}\n", map.dump(1));
    return 0;
  }
  fmt::print("{}", dispatch_text(map));
  for (const auto& note : map["notes"]) fmt::print("note: {}\n", note.get<std::string>());
  fmt::print("model: {:.3f} ms in mode {}\n", state.mode_seconds(state.best_mode) * 1e3, state.best_mode);
  return 0;
}

Result<int> run_optimize(const Options& given) {
  Options options = given;
  KO_RETURN_IF_ERROR(settle_paths(options.model));
  KO_RETURN_IF_ERROR(make_folder(options.folder));
  options.folder = fs::absolute(options.folder).string();
  KO_TRY(auto recorder, open_recorder(options.folder, session(options, SessionKind::kStart)));
  return run_pipeline(options, *recorder);
}

Result<int> run_resume(const Options& given) {
  KO_RETURN_IF_ERROR(require_run(given.folder));
  KO_TRY(json run, recorded_run(given.folder));
  Options options = options_of_run(run, given);
  options.folder = fs::absolute(given.folder).string();
  KO_TRY(auto reader, JournalReader::open(options.folder));
  KO_TRY(auto finished, reader.notes("finished"));
  const auto report = fs::path(options.folder) / "report.json";
  if (!finished.empty() && fs::exists(report)) {
    Display display;
    KO_TRY(json document, read_json(report.string()));
    return finish(options, document, display);
  }
  // The model may have gone; its copy in the run folder is the same.
  const auto copy = fs::path(options.folder) / "model.py";
  if (!is_module_spec(options.model.path) && !fs::exists(options.model.path) && fs::exists(copy))
    options.model.path = copy.string();
  KO_RETURN_IF_ERROR(settle_paths(options.model));
  KO_RETURN_IF_ERROR(make_folder(options.folder));
  KO_TRY(auto recorder, open_recorder(options.folder, session(options, SessionKind::kResume)));
  return run_pipeline(options, *recorder);
}

Result<int> run_report(const Options& options) {
  KO_RETURN_IF_ERROR(require_run(options.folder));
  const auto path = (fs::path(options.folder) / "report.json").string();
  if (!fs::exists(path))
    return Error(ErrorCode::kBadInput, fmt::format("{} has no report yet; go on with: kernelopt resume {}", options.folder,
                                                   options.folder));
  KO_TRY(json report, read_json(path));
  if (report.value("format", "") != "kernelopt.report" || report.value("version", 0) != kReportVersion)
    return Error(ErrorCode::kBadInput, fmt::format("{} is not a report of version {}", path, kReportVersion));
  Display display;
  return finish(options, report, display);
}

Result<int> run_ask(const Options& options) {
  KO_TRY(auto prompts, open_prompts(options.folder));
  json document = json::array();
  for (const auto& prompt : prompts) {
    document.push_back({{"id", prompt.id}, {"prompt", prompt.text}});
    if (!options.json) fmt::print("=== {}\n{}\n", prompt.id, prompt.text);
  }
  if (options.json) fmt::print("{}\n", document.dump(1, ' ', false, json::error_handler_t::replace));
  return 0;
}

Result<int> run_tell(const Options& options) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  KO_RETURN_IF_ERROR(answer_prompt(options.folder, options.prompt_id, text));
  return 0;
}

Result<int> run_memory(const Options& options) {
  if (!options.memory) return Error(ErrorCode::kBadInput, "no folder for a memory is known; name one with --memory");
  const auto devices = MemoryStore(*options.memory).all();
  if (options.json) {
    fmt::print("{}\n", json(devices).dump(1));
    return 0;
  }
  for (const auto& device : devices) {
    KO_TRY(auto memory, StrategyMemory::from_json(device.at("memory")));
    fmt::print("{} ({})\n{}\n", device.value("device", "?"), device.value("fingerprint", "?").substr(0, 12), memory.text());
  }
  if (devices.empty()) fmt::print("nothing is remembered in {}\n", *options.memory);
  return 0;
}

Result<int> run_doctor(const Options& options) {
  struct Line {
    std::string what, found;
    bool good;
  };
  std::vector<Line> lines;
  const auto python = find_python(options.python);
  auto started = start_processes({options.python, false, {}});
  std::optional<Error> failure;
  if (!started.ok()) {
    failure = started.error();
  } else {
    auto hello = started->worker->hello();
    if (!hello.ok()) {
      if (is_interrupt(hello.error())) return hello.error();
      failure = hello.error();
    } else {
      const auto device = hello->value("device", json::object());
      lines.push_back({"python", fmt::format("{} ({})", hello->value("python", "?"), python), true});
      lines.push_back({"torch", fmt::format("{}, adapter {}", hello->value("torch", "?"), hello->value("adapter", "?")), true});
      lines.push_back({"compiler", device.value("compiler", "?") + " " + device.value("compiler_version", ""), true});
      lines.push_back({"device", fmt::format("{}, {}, {} threads", device.value("name", "?"), device.value("isa", "?"),
                                             device.value("threads", 0)), true});
      // Compiles and runs a kernel with OpenMP.
      auto peaks = started->worker->measure_peaks();
      lines.push_back({"OpenMP kernel", peaks.ok() ? fmt::format("{:.1f} GB/s copy", peaks->value("copy_bytes_per_second", 0.0) / 1e9)
                                                   : peaks.error().to_string(), peaks.ok()});
    }
    started->worker->stop();
  }
  if (failure) lines.push_back({"python, torch and compiler", failure->to_string(), false});
  const bool writable = ::access(".", W_OK) == 0;
  lines.push_back({"write access here", writable ? "yes" : "no: name a run folder with --out", writable});
  auto exchange = ExchangeFolder::create();
  lines.push_back({"exchange folder", exchange.ok() ? fs::path((*exchange)->path()).parent_path().string()
                                                    : exchange.error().to_string(), exchange.ok()});
  bool good = true;
  json document = json::array();
  for (const auto& line : lines) {
    good &= line.good;
    document.push_back({{"check", line.what}, {"found", line.found}, {"good", line.good}});
    if (!options.json) fmt::print("{:<5} {}: {}\n", line.good ? "ok" : "LACKS", line.what, line.found);
  }
  if (options.json) fmt::print("{}\n", json{{"kernelopt", KERNELOPT_VERSION}, {"good", good}, {"checks", document}}.dump(1));
  else fmt::print("kernelopt {}: {}\n", KERNELOPT_VERSION, good ? "everything is there" : "something is missing");
  return good ? 0 : exit_status(ErrorCode::kEnvironment);
}

}  // namespace kernelopt
