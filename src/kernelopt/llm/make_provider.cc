#include <cstdlib>

#include "kernelopt/llm/http_providers.h"
#include "kernelopt/llm/local_providers.h"

namespace kernelopt {
namespace {

std::optional<std::string> key_from(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Provider>> make_provider(const std::string& spec, const std::optional<std::string>& url) {
  const auto colon = spec.find(':');
  const auto kind = spec.substr(0, colon), rest = colon == std::string::npos ? std::string() : spec.substr(colon + 1);
  if (rest.empty())
    return Error(ErrorCode::kBadInput, "a language model is anthropic:MODEL, openai:MODEL, command:COMMAND, mailbox:FOLDER or replay:FILE");
  if (kind == "command") return command_provider(rest);
  if (kind == "mailbox") return mailbox_provider(rest);
  if (kind == "replay") return replay_provider(rest);
  if (kind != "anthropic" && kind != "openai") return Error(ErrorCode::kBadInput, "unknown kind of language model: " + kind);
  const bool anthropic = kind == "anthropic";
  const char* variable = anthropic ? "ANTHROPIC_API_KEY" : "OPENAI_API_KEY";
  auto key = key_from(variable);
  // A server of one's own often wants none.
  if (!key && !url) return Error(ErrorCode::kEnvironment, std::string(variable) + " is not set");
  KO_TRY(auto transport, curl_transport());
  std::string base = url.value_or(anthropic ? kAnthropicUrl : kOpenAiUrl);
  while (!base.empty() && base.back() == '/') base.pop_back();
  HttpModel model{rest, base, std::move(key)};
  return anthropic ? anthropic_provider(std::move(model), transport) : openai_provider(std::move(model), transport);
}

}  // namespace kernelopt
