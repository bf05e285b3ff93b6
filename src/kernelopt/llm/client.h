// ModelClient: asks a provider with patience and within limits, counts what it costs, and keeps what was said.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/llm/provider.h"

namespace kernelopt {

struct ModelLimits {
  int64_t most_tokens = 1'000'000;  // input and output together, over the run
  double most_dollars = 0;          // 0: no limit
  double input_price = 0, output_price = 0;  // dollars per million tokens
  int tries = 5;                    // of one request
  double first_wait_seconds = 1, longest_wait_seconds = 60;
};

struct ModelUsage {
  int64_t requests = 0, tries = 0, failures = 0, input_tokens = 0, output_tokens = 0;
  double dollars = 0, seconds = 0;
  nlohmann::json to_json() const;
};

class ModelClient {
 public:
  // Injected for tests: how to wait (seconds), and the seed of the jitter.
  using Sleep = std::function<void(double)>;
  // One recorded request and its reply: purpose, digest, prompt, reply, tokens; never a header or a key.
  using Record = std::function<void(const nlohmann::json&)>;

  ModelClient(std::shared_ptr<Provider> provider, ModelLimits limits, uint64_t seed, Record record = {}, Sleep sleep = {});

  // Waits between tries: what the server asks for, else doubling with jitter, never longer than the limit. kUnsupported when
  // a cap is reached: a request whose estimate does not fit is not sent.
  Result<ModelReply> ask(const ModelRequest& request);
  // At once, on a thread each; answers in the order of the requests.
  std::vector<Result<ModelReply>> ask_all(const std::vector<ModelRequest>& requests);

  ModelUsage usage() const;
  std::string name() const { return provider_->name(); }

 private:
  Status reserve(const ModelRequest& request, int64_t& tokens);
  double wait_of(int attempt, const std::optional<double>& asked);
  double price(int64_t input, int64_t output) const {
    return (static_cast<double>(input) * limits_.input_price + static_cast<double>(output) * limits_.output_price) / 1e6;
  }

  std::shared_ptr<Provider> provider_;
  ModelLimits limits_;
  Record record_;
  Sleep sleep_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  ModelUsage usage_;
  int64_t reserved_ = 0;          // tokens that requests on their way may still use
  double reserved_dollars_ = 0;
};

}  // namespace kernelopt
