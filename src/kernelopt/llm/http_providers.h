// Providers that speak JSON over HTTP: Anthropic Messages, and OpenAI-compatible chat completions (vLLM, Ollama, llama.cpp's
// server, gateways). 408, 409, 429 and 5xx, a connection that fails or breaks off, slowness, and bodies that are no such
// answer may be tried again; everything else the server says no to may not.
#pragma once

#include <memory>

#include "kernelopt/llm/http.h"
#include "kernelopt/llm/provider.h"

namespace kernelopt {

struct HttpModel {
  std::string model;
  std::string url;                 // base address, without the path
  std::optional<std::string> key;  // sent, and never shown
};
inline constexpr const char* kAnthropicUrl = "https://api.anthropic.com";
inline constexpr const char* kOpenAiUrl = "https://api.openai.com/v1";

std::unique_ptr<Provider> anthropic_provider(HttpModel model, std::shared_ptr<HttpTransport> transport);
std::unique_ptr<Provider> openai_provider(HttpModel model, std::shared_ptr<HttpTransport> transport);

}  // namespace kernelopt
