#include "kernelopt/llm/http_providers.h"

#include <cstdlib>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kernelopt {

using nlohmann::json;

namespace {

constexpr size_t kShownOfMessage = 200;

std::string text_at(const json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}
int64_t number_at(const json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number_integer() ? object[key].get<int64_t>() : 0;
}

// What the server says, short, and without the key should it echo that.
std::string said(const HttpResponse& response, const std::optional<std::string>& key) {
  const auto body = json::parse(response.body, nullptr, false);
  std::string text;
  if (body.is_object() && body.contains("error"))
    text = body["error"].is_string() ? body["error"].get<std::string>() : text_at(body["error"], "message");
  if (key && !key->empty())
    for (size_t at; (at = text.find(*key)) != std::string::npos;) text.replace(at, key->size(), "***");
  return text.substr(0, kShownOfMessage);
}

std::optional<double> retry_after(const HttpResponse& response) {
  const auto found = response.headers.find("retry-after");
  if (found == response.headers.end()) return std::nullopt;
  char* end = nullptr;
  const double seconds = std::strtod(found->second.c_str(), &end);
  return end != found->second.c_str() && seconds >= 0 ? std::optional<double>(seconds) : std::nullopt;
}

using Parse = std::function<std::optional<ModelReply>(const json&)>;

ProviderAnswer exchange(HttpTransport& transport, const HttpRequest& request, const std::optional<std::string>& key,
                        const Parse& parse) {
  auto response = transport.post(request);
  if (!response.ok()) {
    const auto code = response.error().code();
    return ProviderAnswer::failure(std::move(response).error(), code == ErrorCode::kTimeout || code == ErrorCode::kIo);
  }
  const long status = response->status;
  if (status != 200) {
    const auto code = status == 401 || status == 403 ? ErrorCode::kEnvironment : ErrorCode::kIo;
    const bool retry = status == 408 || status == 409 || status == 429 || status >= 500;
    return ProviderAnswer::failure(Error(code, fmt::format("HTTP {}: {}", status, said(*response, key))), retry,
                                   retry_after(*response));
  }
  const auto body = json::parse(response->body, nullptr, false);
  if (body.is_discarded()) return ProviderAnswer::failure(Error(ErrorCode::kIo, "the answer is not JSON"), true);
  auto reply = parse(body);
  if (!reply) return ProviderAnswer::failure(Error(ErrorCode::kIo, "the answer has no text where the format has it"), true);
  if (reply->input_tokens == 0) reply->input_tokens = estimated_tokens(request.body.size());
  if (reply->output_tokens == 0) reply->output_tokens = estimated_tokens(reply->text.size());
  return ProviderAnswer::of(std::move(*reply));
}

class Anthropic final : public Provider {
 public:
  Anthropic(HttpModel model, std::shared_ptr<HttpTransport> transport) : model_(std::move(model)), transport_(std::move(transport)) {}
  std::string name() const override { return "anthropic:" + model_.model; }
  ProviderAnswer ask(const ModelRequest& request) override {
    HttpRequest http{model_.url + "/v1/messages", "", {"content-type: application/json", "expect:", "anthropic-version: 2023-06-01"},
                     request.timeout_seconds};
    if (model_.key) http.headers.push_back("x-api-key: " + *model_.key);
    http.body = json{{"model", model_.model},
                     {"max_tokens", request.most_output_tokens},
                     {"system", request.system},
                     {"messages", {{{"role", "user"}, {"content", request.prompt}}}}}
                    .dump(-1, ' ', false, json::error_handler_t::replace);
    return exchange(*transport_, http, model_.key, [](const json& body) -> std::optional<ModelReply> {
      if (!body.is_object() || !body.contains("content") || !body["content"].is_array()) return std::nullopt;
      ModelReply reply;
      for (const auto& block : body["content"])
        if (text_at(block, "type") == "text") reply.text += text_at(block, "text");
      reply.truncated = text_at(body, "stop_reason") == "max_tokens";
      const auto usage = body.value("usage", json());
      reply.input_tokens = number_at(usage, "input_tokens");
      reply.output_tokens = number_at(usage, "output_tokens");
      return reply;
    });
  }

 private:
  HttpModel model_;
  std::shared_ptr<HttpTransport> transport_;
};

class OpenAi final : public Provider {
 public:
  OpenAi(HttpModel model, std::shared_ptr<HttpTransport> transport) : model_(std::move(model)), transport_(std::move(transport)) {}
  std::string name() const override { return "openai:" + model_.model; }
  ProviderAnswer ask(const ModelRequest& request) override {
    HttpRequest http{model_.url + "/chat/completions", "", {"content-type: application/json", "expect:"}, request.timeout_seconds};
    if (model_.key) http.headers.push_back("authorization: Bearer " + *model_.key);
    http.body = json{{"model", model_.model},
                     {"max_tokens", request.most_output_tokens},
                     {"messages",
                      {{{"role", "system"}, {"content", request.system}}, {{"role", "user"}, {"content", request.prompt}}}}}
                    .dump(-1, ' ', false, json::error_handler_t::replace);
    return exchange(*transport_, http, model_.key, [](const json& body) -> std::optional<ModelReply> {
      if (!body.is_object() || !body.contains("choices") || !body["choices"].is_array() || body["choices"].empty())
        return std::nullopt;
      const auto& choice = body["choices"][0];
      if (!choice.is_object() || !choice.contains("message") || !choice["message"].is_object()) return std::nullopt;
      // A null content is an empty answer (a refusal, or reasoning only), which is the model's and not the server's fault.
      ModelReply reply;
      reply.text = text_at(choice["message"], "content");
      reply.truncated = text_at(choice, "finish_reason") == "length";
      const auto usage = body.value("usage", json());
      reply.input_tokens = number_at(usage, "prompt_tokens");
      reply.output_tokens = number_at(usage, "completion_tokens");
      return reply;
    });
  }

 private:
  HttpModel model_;
  std::shared_ptr<HttpTransport> transport_;
};

}  // namespace

std::unique_ptr<Provider> anthropic_provider(HttpModel model, std::shared_ptr<HttpTransport> transport) {
  return std::make_unique<Anthropic>(std::move(model), std::move(transport));
}
std::unique_ptr<Provider> openai_provider(HttpModel model, std::shared_ptr<HttpTransport> transport) {
  return std::make_unique<OpenAi>(std::move(model), std::move(transport));
}

}  // namespace kernelopt
