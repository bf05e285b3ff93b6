#include "kernelopt/llm/client.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "kernelopt/llm/local_providers.h"
#include "kernelopt/worker/interrupt.h"

namespace kernelopt {

namespace {

void sleep_interruptibly(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!interrupted() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace

nlohmann::json ModelUsage::to_json() const {
  return {{"requests", requests}, {"tries", tries}, {"failures", failures}, {"input_tokens", input_tokens},
          {"output_tokens", output_tokens}, {"dollars", dollars}, {"seconds", seconds}};
}

ModelClient::ModelClient(std::shared_ptr<Provider> provider, ModelLimits limits, uint64_t seed, Record record, Sleep sleep)
    : provider_(std::move(provider)), limits_(limits), record_(std::move(record)),
      sleep_(sleep ? std::move(sleep) : Sleep(sleep_interruptibly)), random_(seed) {}

Status ModelClient::reserve(const ModelRequest& request, int64_t& tokens) {
  const int64_t input = estimated_tokens(request.system.size() + request.prompt.size());
  tokens = input + request.most_output_tokens;
  const double dollars = price(input, request.most_output_tokens);
  const std::lock_guard lock(mutex_);
  const int64_t spent = usage_.input_tokens + usage_.output_tokens + reserved_;
  if (spent + tokens > limits_.most_tokens)
    return Error(ErrorCode::kUnsupported, fmt::format("the cap of {} tokens is reached", limits_.most_tokens));
  if (limits_.most_dollars > 0 && usage_.dollars + reserved_dollars_ + dollars > limits_.most_dollars)
    return Error(ErrorCode::kUnsupported, fmt::format("the cap of {} dollars is reached", limits_.most_dollars));
  reserved_ += tokens;
  reserved_dollars_ += dollars;
  return ok_status();
}

double ModelClient::wait_of(int attempt, const std::optional<double>& asked) {
  const std::lock_guard lock(mutex_);
  const double jitter = 0.5 + 0.5 * std::generate_canonical<double, 53>(random_);
  if (asked) return std::min(*asked + jitter, limits_.longest_wait_seconds);
  return std::min(limits_.first_wait_seconds * std::pow(2.0, attempt), limits_.longest_wait_seconds) * jitter;
}

Result<ModelReply> ModelClient::ask(const ModelRequest& request) {
  int64_t reserved = 0;
  KO_RETURN_IF_ERROR(reserve(request, reserved));
  const double reserved_dollars = price(reserved - request.most_output_tokens, request.most_output_tokens);
  const auto begin = std::chrono::steady_clock::now();
  ProviderAnswer answer;
  int tries = 0;
  while (true) {
    answer = provider_->ask(request);
    ++tries;
    if (answer.reply || !answer.retry || tries >= limits_.tries || interrupted()) break;
    sleep_(wait_of(tries - 1, answer.wait_seconds));
    if (interrupted()) break;
  }
  const std::lock_guard lock(mutex_);
  reserved_ -= reserved;
  reserved_dollars_ -= reserved_dollars;
  ++usage_.requests;
  usage_.tries += tries;
  usage_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!answer.reply) {
    ++usage_.failures;
    if (interrupted()) return Error(ErrorCode::kInterrupted, "interrupted");
    return std::move(*answer.error).with_context(provider_->name());
  }
  const auto& reply = *answer.reply;
  if (reply.recorded) {
    --usage_.requests, usage_.tries -= tries;
    return reply;
  }
  usage_.input_tokens += reply.input_tokens;
  usage_.output_tokens += reply.output_tokens;
  usage_.dollars += price(reply.input_tokens, reply.output_tokens);
  if (record_)
    record_({{"purpose", request.purpose}, {"provider", provider_->name()}, {"digest", request_digest(request)},
             {"system", request.system}, {"prompt", request.prompt}, {"reply", reply.text}, {"truncated", reply.truncated},
             {"input_tokens", reply.input_tokens}, {"output_tokens", reply.output_tokens}});
  return reply;
}

std::vector<Result<ModelReply>> ModelClient::ask_all(const std::vector<ModelRequest>& requests) {
  std::vector<std::optional<Result<ModelReply>>> slots(requests.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i) threads.emplace_back([&, i] { slots[i] = ask(requests[i]); });
  for (auto& thread : threads) thread.join();
  std::vector<Result<ModelReply>> answers;
  for (auto& slot : slots) answers.push_back(std::move(*slot));
  return answers;
}

ModelUsage ModelClient::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

}  // namespace kernelopt
