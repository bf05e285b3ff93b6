#include "kernelopt/worker/remote.h"

#include <fmt/format.h>

namespace kernelopt {

using nlohmann::json;

namespace {

constexpr int kProtocol = 1;

json or_null(const std::optional<std::string>& text) { return text ? json(*text) : json(nullptr); }

json group_json(const GroupRef& group) {
  return {{"graph", group.graph}, {"program", group.program}, {"group", group.steps}, {"names", group.names}};
}

json with(json object, const json& more) {
  object.update(more);
  return object;
}

// Parses with `read`, turning a malformed reply into kInternal: it is our own other half that wrote it.
template <typename Read>
auto parsed(const std::string& method, const json& reply, Read&& read) -> Result<decltype(read(reply))> {
  try {
    return read(reply);
  } catch (const json::exception& error) {
    return Error(ErrorCode::kInternal, fmt::format("{}: malformed reply: {}", method, error.what()));
  }
}

template <typename T>
T optional_value(const json& object, const char* key, T fallback) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? fallback : found->get<T>();
}

std::vector<double> samples_of(const json& list) { return list.get<std::vector<double>>(); }

RawPairs pair_of(const json& reply) {
  const auto& samples = reply.at("samples");
  return {samples_of(samples.at(0)), samples_of(samples.at(1)), reply};
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

// "error" is a line or {"kind", "message"}.
std::string error_text(const json& error) {
  return one_line(error.is_object() ? error.value("message", error.dump()) : error.is_string() ? error.get<std::string>()
                                                                                             : error.dump());
}

}  // namespace

RemoteProcess::RemoteProcess(std::unique_ptr<Rpc> rpc, std::string role, Deadlines deadlines)
    : rpc_(std::move(rpc)), role_(std::move(role)), deadlines_(deadlines) {}

Result<json> RemoteProcess::hello() {
  KO_RETURN_IF_ERROR(ready(false));
  return hello_;
}

Status RemoteProcess::ready(bool with_model) {
  KO_RETURN_IF_ERROR(rpc_->start());
  if (hello_generation_ != rpc_->generation()) {
    auto reply = rpc_->call("hello", json::object(), deadlines_.hello);
    if (!reply.ok()) {
      auto error = std::move(reply).error();
      // A process that ends before it has said anything lacks something: its last words name it.
      if (error.code() == ErrorCode::kWorkerDied && hello_generation_ == 0)
        return Error(ErrorCode::kEnvironment, error.message());
      return error;
    }
    if (reply->value("protocol", 0) != kProtocol || reply->value("role", "") != role_)
      return Error(ErrorCode::kEnvironment,
                   fmt::format("the {} speaks protocol {} as {}, this engine speaks {}", role_,
                               reply->value("protocol", 0), reply->value("role", "nobody"), kProtocol));
    hello_ = std::move(reply).value();
    hello_generation_ = rpc_->generation();
  }
  if (with_model && model_ && model_generation_ != rpc_->generation()) KO_RETURN_IF_ERROR(send_model());
  return ok_status();
}

Result<LoadedModel> RemoteProcess::load_model(const ModelSpec& spec) {
  KO_RETURN_IF_ERROR(ready(false));
  model_ = spec;
  auto loaded = send_model();
  if (!loaded.ok()) model_.reset();
  return loaded;
}

Result<LoadedModel> RemoteProcess::send_model() {
  KO_TRY(json reply, rpc_->call("load_model",
                                {{"path", model_->path},
                                 {"device", model_->device},
                                 {"dtype", or_null(model_->dtype)},
                                 {"seed", model_->seed},
                                 {"inputs", or_null(model_->inputs)},
                                 {"state_dict", or_null(model_->state_dict)}},
                                deadlines_.load));
  model_generation_ = rpc_->generation();
  return parsed("load_model", reply, [](const json& j) {
    LoadedModel model;
    model.parameters = optional_value<int64_t>(j, "parameters", 0);
    model.inputs = j.value("inputs", json::array());
    model.needs = optional_value<std::vector<std::string>>(j, "needs", {});
    return model;
  });
}

Result<json> RemoteProcess::call(const std::string& method, const json& params, std::chrono::seconds limit) {
  KO_RETURN_IF_ERROR(ready(true));
  return rpc_->call(method, params, limit);
}

Status RemoteProcess::drop_files(const json& tree) {
  if (hello_generation_ != rpc_->generation()) return ok_status();
  KO_RETURN_IF_ERROR(rpc_->call("drop_files", {{"tree", tree}}, deadlines_.other));
  return ok_status();
}

RemoteWorker::RemoteWorker(std::unique_ptr<Rpc> rpc, Deadlines deadlines)
    : process_(std::move(rpc), "worker", deadlines) {}

Result<LoadedModel> RemoteWorker::load_model(const ModelSpec& spec) {
  capture_.reset();
  handles_.clear();
  return process_.load_model(spec);
}

Result<json> RemoteWorker::measure_peaks() {
  return process_.call("measure_peaks", json::object(), process_.deadlines().other);
}

Result<Capture> RemoteWorker::capture(const std::string& mode, const std::string& folder) {
  KO_TRY(json reply, process_.call("capture", {{"mode", mode}, {"out", folder}}, process_.deadlines().capture));
  capture_ = {mode, folder};
  capture_generation_ = process_.generation();
  return parsed("capture", reply, [](const json& j) {
    Capture capture;
    capture.programs = j.at("programs").get<std::vector<std::string>>();
    for (const auto& reason : j.value("graph_breaks", json::array())) capture.graph_breaks.push_back(error_text(reason));
    for (const auto& graph : j.value("refused", json::array())) {
      const auto reason = graph.is_object() ? graph.value("reason", json("?")) : graph;
      capture.refused.push_back(graph.is_object() && graph.contains("graph")
                                    ? fmt::format("graph {}: {}", graph["graph"].dump(), error_text(reason))
                                    : error_text(reason));
    }
    capture.compile_seconds = optional_value<double>(j, "compile_seconds", 0);
    return capture;
  });
}

Status RemoteWorker::need_capture() {
  KO_CHECK(capture_.has_value(), "groups are described after a capture");
  KO_RETURN_IF_ERROR(process_.hello());
  if (capture_generation_ == process_.generation()) return ok_status();
  const auto [mode, folder] = *capture_;
  KO_RETURN_IF_ERROR(capture(mode, folder));
  return ok_status();
}

Result<std::vector<GroupDescription>> RemoteWorker::describe_groups(
    int graph, const std::vector<std::vector<std::string>>& groups) {
  KO_RETURN_IF_ERROR(need_capture());
  KO_TRY(json reply, process_.call("describe_groups", {{"graph", graph}, {"groups", groups}},
                                   process_.deadlines().describe));
  return parsed("describe_groups", reply, [](const json& j) {
    std::vector<GroupDescription> result;
    for (const auto& item : j.at("groups")) {
      GroupDescription group;
      group.digest = optional_value<std::string>(item, "digest", "");
      group.step_digests = optional_value<std::vector<std::string>>(item, "step_digests", {});
      group.names = optional_value<std::vector<std::string>>(item, "names", {});
      group.external = optional_value<std::vector<std::string>>(item, "external", {});
      if (item.contains("baseline") && !item["baseline"].is_null()) group.baseline = item["baseline"];
      if (item.contains("refused") && !item["refused"].is_null()) group.refused = error_text(item["refused"]);
      result.push_back(std::move(group));
    }
    return result;
  });
}

Result<std::vector<ModeTiming>> RemoteWorker::baseline_modes(const std::vector<std::string>& modes, Timing timing) {
  KO_TRY(json reply, process_.call("baseline_modes",
                                   {{"modes", modes}, {"warmup_ms", timing.warmup_ms}, {"rep_ms", timing.rep_ms}},
                                   process_.deadlines().baseline));
  return parsed("baseline_modes", reply, [&](const json& j) {
    std::vector<ModeTiming> result;
    for (const auto& mode : modes) {
      ModeTiming timed;
      timed.mode = mode;
      const auto& all = j.at("modes");
      if (!all.contains(mode)) {
        timed.error = "not measured";
      } else if (const auto& item = all[mode]; item.contains("error") && !item["error"].is_null()) {
        timed.error = error_text(item["error"]);
      } else {
        timed.samples = samples_of(item.at("samples"));
        timed.compile_seconds = optional_value<double>(item, "compile_seconds", 0);
        timed.first_call_seconds = optional_value<double>(item, "first_call_seconds", 0);
        timed.peak_bytes = optional_value<int64_t>(item, "peak_bytes", 0);
      }
      result.push_back(std::move(timed));
    }
    return result;
  });
}

Result<std::vector<CompileOutcome>> RemoteWorker::compile(const std::vector<json>& candidates) {
  KO_TRY(json reply, process_.call("compile", {{"candidates", candidates}},
                                   process_.deadlines().compile * static_cast<int>(candidates.size() + 1) / 2));
  return parsed("compile", reply, [&](const json& j) {
    std::vector<CompileOutcome> result;
    for (const auto& item : j.at("candidates")) {
      CompileOutcome outcome;
      outcome.entry = item;
      if (item.contains("error") && !item["error"].is_null()) {
        const auto& error = item["error"];
        const bool candidate = !error.is_object() || error.value("kind", "candidate") == "candidate";
        outcome.error = Error(candidate ? ErrorCode::kCandidate : ErrorCode::kInternal, error_text(error));
      } else {
        outcome.library = optional_value<std::string>(item, "library", "");
        outcome.seconds = optional_value<double>(item, "seconds", 0);
        outcome.cached = optional_value<bool>(item, "cached", false);
      }
      result.push_back(std::move(outcome));
    }
    if (result.size() != candidates.size()) throw json::other_error::create(501, "wrong number of candidates", &j);
    return result;
  });
}

Result<GroupOutput> RemoteWorker::run_group(const GroupRequest& request) {
  KO_TRY(json reply, process_.call("run_group",
                                   with(group_json(request.group), {{"candidate", request.candidate},
                                                                    {"inputs", request.inputs},
                                                                    {"seed", request.seed},
                                                                    {"input_case", request.input_case},
                                                                    {"guard_bytes", request.guard_bytes},
                                                                    {"runs", request.runs}}),
                                   process_.deadlines().run_group));
  return parsed("run_group", reply, [](const json& j) {
    GroupOutput run;
    run.outputs = j.at("outputs");
    run.reply = j;
    return run;
  });
}

Result<RawPairs> RemoteWorker::time_group(const GroupRef& group, const json& baseline, const json& candidate,
                                               const json& inputs, uint64_t seed, Timing timing) {
  KO_TRY(json reply, process_.call("time_group",
                                   with(group_json(group), {{"candidates", json::array({baseline, candidate})},
                                                            {"inputs", inputs},
                                                            {"seed", seed},
                                                            {"warmup_ms", timing.warmup_ms},
                                                            {"rep_ms", timing.rep_ms}}),
                                   process_.deadlines().time_group));
  return parsed("time_group", reply, pair_of);
}

Result<json> RemoteWorker::realise(Handle& handle) {
  KO_TRY(json reply, process_.call(handle.method, handle.params, process_.deadlines().stitch));
  auto remote = parsed(handle.method, reply, [](const json& j) { return j.at("handle").get<std::string>(); });
  if (!remote.ok()) return std::move(remote).error();
  handle.remote = *remote;
  handle.generation = process_.generation();
  return reply;
}

Result<Stitched> RemoteWorker::make(const std::string& method, json params) {
  Handle handle{method, std::move(params), "", 0};
  KO_TRY(json reply, realise(handle));
  const auto name = fmt::format("h{}", next_handle_++);
  handles_[name] = std::move(handle);
  return parsed(method, reply, [&](const json& j) {
    Stitched stitched;
    stitched.handle = name;
    for (const auto& item : j.value("replaced", json::array()))
      stitched.replaced.push_back({item.value("graph", 0), item.at("steps").get<std::vector<std::string>>(),
                                   item.at("digest").get<std::string>()});
    stitched.compile_seconds = optional_value<double>(j, "compile_seconds", 0);
    stitched.status = j.value("status", json(nullptr));
    stitched.reply = j;
    return stitched;
  });
}

Result<Stitched> RemoteWorker::stitch(const std::string& mode, const json& kernels) {
  return make("stitch", {{"mode", mode}, {"kernels", kernels}});
}

Result<Stitched> RemoteWorker::load_optimized(const std::string& path) { return make("load_optimized", {{"path", path}}); }

Result<std::string> RemoteWorker::runtime_source() {
  KO_TRY(json reply, process_.call("runtime_source", json::object(), process_.deadlines().other));
  return parsed("runtime_source", reply, [](const json& j) { return j.at("source").get<std::string>(); });
}

Result<std::string> RemoteWorker::remote_handle(const std::string& name) {
  if (name == kEagerHandle) return name;
  const auto found = handles_.find(name);
  KO_CHECK(found != handles_.end(), "unknown handle " + name);
  KO_RETURN_IF_ERROR(process_.hello());
  if (found->second.generation != process_.generation()) KO_RETURN_IF_ERROR(realise(found->second));
  return found->second.remote;
}

Result<ModelOutput> RemoteWorker::run_model(const std::string& handle, uint64_t seed, int calls) {
  KO_TRY(std::string remote, remote_handle(handle));
  KO_TRY(json reply, process_.call("run_model", {{"handle", remote}, {"seed", seed}, {"calls", calls}},
                                   process_.deadlines().run_model));
  return parsed("run_model", reply, [](const json& j) {
    return ModelOutput{j.at("outputs"), j.value("inputs", json(nullptr)), j.value("buffers", json(nullptr))};
  });
}

Result<RawPairs> RemoteWorker::time_model(const std::string& baseline, const std::string& candidate, uint64_t seed,
                                               Timing timing) {
  KO_TRY(std::string left, remote_handle(baseline));
  KO_TRY(std::string right, remote_handle(candidate));
  KO_TRY(json reply, process_.call("time_model",
                                   {{"handles", {left, right}},
                                    {"warmup_ms", timing.warmup_ms},
                                    {"rep_ms", timing.rep_ms},
                                    {"seed", seed}},
                                   process_.deadlines().time_model));
  return parsed("time_model", reply, pair_of);
}

Status RemoteWorker::drop(const std::string& name) {
  const auto found = handles_.find(name);
  if (found == handles_.end()) return ok_status();
  const Handle handle = found->second;
  handles_.erase(found);
  if (handle.generation != process_.generation()) return ok_status();
  KO_RETURN_IF_ERROR(process_.call("drop", {{"handle", handle.remote}}, process_.deadlines().other));
  return ok_status();
}

RemoteJudge::RemoteJudge(std::unique_ptr<Rpc> rpc, Deadlines deadlines)
    : process_(std::move(rpc), "judge", deadlines) {}

Result<json> RemoteJudge::reference_model(uint64_t seed, int calls) {
  return process_.call("reference_model", {{"seed", seed}, {"calls", calls}}, process_.deadlines().reference);
}

Result<json> RemoteJudge::compare_model(uint64_t seed, int calls, const ModelOutput& run, const json& tolerances) {
  return process_.call("compare_model",
                       {{"seed", seed},
                        {"calls", calls},
                        {"outputs", run.outputs},
                        {"inputs", run.inputs},
                        {"buffers", run.buffers},
                        {"tolerances", tolerances}},
                       process_.deadlines().reference);
}

Result<json> RemoteJudge::group_inputs(const GroupRef& group, uint64_t seed, const std::string& input_case) {
  KO_TRY(json reply, process_.call("group_inputs", with(group_json(group), {{"seed", seed}, {"input_case", input_case}}),
                                   process_.deadlines().compare));
  return parsed("group_inputs", reply, [](const json& j) { return json(j.at("inputs")); });
}

Result<json> RemoteJudge::compare_group(const GroupRef& group, uint64_t seed, const std::string& input_case,
                                        const json& outputs, const json& tolerances) {
  return process_.call("compare_group",
                       with(group_json(group), {{"seed", seed},
                                                {"input_case", input_case},
                                                {"outputs", outputs},
                                                {"tolerances", tolerances}}),
                       process_.deadlines().compare);
}

Result<json> RemoteJudge::check_lowering(const std::string& program, int graph) {
  return process_.call("check_lowering", {{"program", program}, {"graph", graph}}, process_.deadlines().reference);
}

}  // namespace kernelopt
