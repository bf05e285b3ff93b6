// Provider: one way to ask a language model. Providers send one request and say what came of it; patience, caps and counting
// are the client's (client.h). Answers are text that nobody trusts (reply.h, and the gates).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernelopt/base/result.h"

namespace kernelopt {

struct ModelRequest {
  std::string purpose;         // "planner", "executor"
  std::string system, prompt;
  int64_t most_output_tokens = 8192;
  double timeout_seconds = 300;
};

struct ModelReply {
  std::string text;
  bool truncated = false;      // the model stopped at its limit of tokens
  int64_t input_tokens = 0, output_tokens = 0;
  bool recorded = false;       // read back from this run's own recording: neither counted nor recorded again
};

// Either a reply or a failure; a failure says whether another try may help, and when the server wants it.
struct ProviderAnswer {
  std::optional<ModelReply> reply;
  std::optional<Error> error;
  bool retry = false;
  std::optional<double> wait_seconds;

  static ProviderAnswer of(ModelReply reply) { return {std::move(reply), std::nullopt, false, std::nullopt}; }
  static ProviderAnswer failure(Error error, bool retry, std::optional<double> wait = std::nullopt) {
    return {std::nullopt, std::move(error), retry, wait};
  }
};

class Provider {
 public:
  virtual ~Provider() = default;
  // May be called by several threads at once.
  virtual ProviderAnswer ask(const ModelRequest& request) = 0;
  // For reports; never holds a key.
  virtual std::string name() const = 0;
};

// Four characters a token, rounded up: an estimate for budgets and for providers that do not count.
inline int64_t estimated_tokens(size_t characters) { return static_cast<int64_t>((characters + 3) / 4); }

// "anthropic:MODEL", "openai:MODEL", "command:COMMAND LINE", "mailbox:FOLDER" or "replay:FILE"; `url` replaces the address of
// the first two. Keys come from ANTHROPIC_API_KEY and OPENAI_API_KEY. kBadInput for anything else; kEnvironment where the
// key or libcurl is missing.
Result<std::unique_ptr<Provider>> make_provider(const std::string& spec, const std::optional<std::string>& url);

}  // namespace kernelopt
