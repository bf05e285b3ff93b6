#include "kernelopt/worker/rpc.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace kernelopt {

using nlohmann::json;

namespace {

constexpr const char* kWaitingStage = "waiting for the device";

Error error_of_reply(const json& error, const std::string& method) {
  static const std::map<std::string, ErrorCode> kinds = {{"user", ErrorCode::kBadInput},
                                                         {"environment", ErrorCode::kEnvironment},
                                                         {"candidate", ErrorCode::kCandidate},
                                                         {"unsupported", ErrorCode::kUnsupported}};
  const auto found = kinds.find(error.value("kind", "internal"));
  std::string message = error.value("message", "no message");
  for (char& c : message)
    if (c == '\n' || c == '\r') c = ' ';
  Error result(found == kinds.end() ? ErrorCode::kInternal : found->second, message);
  if (result.code() == ErrorCode::kInternal) return std::move(result).with_context(method);
  return result;
}

}  // namespace

ProcessRpc::ProcessRpc(ProcessSpec spec, std::function<void(const Progress&)> on_progress)
    : spec_(std::move(spec)), on_progress_(std::move(on_progress)) {}

Status ProcessRpc::start() {
  if (child_) return ok_status();
  KO_TRY(child_, ChildProcess::spawn(spec_));
  ++generation_;
  return ok_status();
}

void ProcessRpc::stop() {
  if (!child_) return;
  child_->finish(std::chrono::milliseconds(500));
  child_.reset();
}

Result<json> ProcessRpc::call(const std::string& method, const json& params, std::chrono::milliseconds limit) {
  KO_RETURN_IF_ERROR(start());
  const auto begin = Monotonic::now();
  auto reply = exchange(method, params, limit);
  const double seconds = std::chrono::duration<double>(Monotonic::now() - begin).count();
  seconds_ += seconds;
  spdlog::debug("{} {}: {:.3f} s", spec_.name, method, seconds);
  if (reply.ok()) return reply;
  const auto code = reply.error().code();
  if (code == ErrorCode::kWorkerDied || code == ErrorCode::kTimeout || code == ErrorCode::kInterrupted) {
    child_->kill();
    child_.reset();
    return std::move(reply).error().with_context(method);
  }
  return reply;
}

Result<json> ProcessRpc::exchange(const std::string& method, const json& params, std::chrono::milliseconds limit) {
  Deadline deadline = Monotonic::now() + limit;
  const int64_t id = next_id_++;
  // Candidates and messages may hold any bytes; the frame must be valid UTF-8.
  const auto text = json{{"id", id}, {"method", method}, {"params", params}}.dump(-1, ' ', false,
                                                                                  json::error_handler_t::replace);
  KO_RETURN_IF_ERROR(child_->send(text, deadline));
  for (;;) {
    KO_TRY(std::string payload, child_->receive(deadline));
    auto message = json::parse(payload, nullptr, false);
    if (!message.is_object())
      return Error(ErrorCode::kWorkerDied, fmt::format("the {} sent something that is not a JSON object", spec_.name));
    if (message.contains("event")) {
      // Another process of ours has the device: that time is not this request's.
      if (message.value("stage", "") == kWaitingStage) deadline = Monotonic::now() + limit;
      if (on_progress_) on_progress_({message.value("stage", ""), message.value("done", 0), message.value("total", 0)});
      continue;
    }
    if (!message.contains("id") || message["id"] != id)
      return Error(ErrorCode::kWorkerDied, fmt::format("the {} answered another request", spec_.name));
    if (message.contains("error") && message["error"].is_object()) return error_of_reply(message["error"], method);
    if (!message.contains("result"))
      return Error(ErrorCode::kWorkerDied, fmt::format("the {} sent a reply without a result", spec_.name));
    return std::move(message["result"]);
  }
}

}  // namespace kernelopt
