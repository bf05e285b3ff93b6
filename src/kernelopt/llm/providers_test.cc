#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernelopt/llm/client.h"
#include "kernelopt/llm/http_providers.h"
#include "kernelopt/llm/local_providers.h"
#include "kernelopt/llm/testing/http_server.h"

namespace kernelopt {
namespace {

using nlohmann::json;
using testing::HttpServer;
namespace fs = std::filesystem;

const std::string kKey = "sk-secret-5551";

ModelRequest question(const std::string& prompt = "how?") { return {"planner", "rules", prompt, 100, 5}; }

fs::path fresh_folder(const std::string& name) {
  const auto folder = fs::path(::testing::TempDir()) / ("kernelopt_" + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

enum class Kind { kAnthropic, kOpenAi };

// The two formats as the real servers speak them.
struct HttpCase : ::testing::TestWithParam<Kind> {
  std::string good(const std::string& text, bool cut = false) const {
    if (GetParam() == Kind::kAnthropic)
      return json{{"id", "msg_1"}, {"type", "message"}, {"role", "assistant"}, {"model", "m"},
                  {"content", {{{"type", "text"}, {"text", text}}}}, {"stop_reason", cut ? "max_tokens" : "end_turn"},
                  {"usage", {{"input_tokens", 11}, {"output_tokens", 7}}}}.dump();
    return json{{"id", "c1"}, {"object", "chat.completion"},
                {"choices", {{{"index", 0}, {"message", {{"role", "assistant"}, {"content", text}}}, {"finish_reason", cut ? "length" : "stop"}}}},
                {"usage", {{"prompt_tokens", 11}, {"completion_tokens", 7}, {"total_tokens", 18}}}}.dump();
  }
  std::unique_ptr<Provider> provider(const std::string& url) const {
    auto transport = curl_transport();
    if (!transport.ok()) return nullptr;
    HttpModel model{"m", url, kKey};
    return GetParam() == Kind::kAnthropic ? anthropic_provider(model, *transport) : openai_provider(model, *transport);
  }
  // One request against a server that always answers so.
  ProviderAnswer ask(const std::string& raw, double timeout = 5) const {
    HttpServer server([&](const std::string&, const std::string&) { return raw; });
    auto asked = provider(server.url());
    auto request = question();
    request.timeout_seconds = timeout;
    return asked->ask(request);
  }
  void SetUp() override {
    if (!curl_transport().ok()) GTEST_SKIP() << "libcurl is missing";
  }
};

TEST_P(HttpCase, SpeaksTheFormat) {
  std::string head, body;
  HttpServer server([&](const std::string& h, const std::string& b) {
    head = h;
    body = b;
    return HttpServer::response(200, good("an answer"));
  });
  const auto answer = provider(server.url())->ask(question());
  ASSERT_TRUE(answer.reply) << answer.error->to_string();
  EXPECT_EQ(answer.reply->text, "an answer");
  EXPECT_FALSE(answer.reply->truncated);
  EXPECT_EQ(answer.reply->input_tokens, 11);
  EXPECT_EQ(answer.reply->output_tokens, 7);
  const auto sent = json::parse(body);
  EXPECT_EQ(sent["model"], "m");
  EXPECT_EQ(sent["max_tokens"], 100);
  if (GetParam() == Kind::kAnthropic) {
    EXPECT_EQ(head.rfind("POST /v1/messages ", 0), 0u) << head;
    EXPECT_NE(head.find("x-api-key: " + kKey), std::string::npos);
    EXPECT_NE(head.find("anthropic-version: 2023-06-01"), std::string::npos);
    EXPECT_EQ(sent["system"], "rules");
    EXPECT_EQ(sent["messages"], json::parse(R"([{"role": "user", "content": "how?"}])"));
  } else {
    EXPECT_EQ(head.rfind("POST /chat/completions ", 0), 0u) << head;
    EXPECT_NE(head.find("authorization: Bearer " + kKey), std::string::npos);
    EXPECT_EQ(sent["messages"][0]["content"], "rules");
    EXPECT_EQ(sent["messages"][1]["content"], "how?");
  }
}

TEST_P(HttpCase, EveryFailureSaysWhetherToTryAgain) {
  const std::string error = R"({"error": {"type": "x", "message": "no, )" + kKey + R"("}})";
  for (int status : {408, 429, 500, 502, 503, 529}) EXPECT_TRUE(ask(HttpServer::response(status, error)).retry) << status;
  for (int status : {400, 401, 403, 404}) {
    const auto answer = ask(HttpServer::response(status, error));
    ASSERT_TRUE(answer.error);
    EXPECT_FALSE(answer.retry) << status;
    // The server echoes the key; messages must not.
    EXPECT_EQ(answer.error->to_string().find(kKey), std::string::npos);
    EXPECT_NE(answer.error->to_string().find(std::to_string(status)), std::string::npos);
  }
  EXPECT_DOUBLE_EQ(*ask(HttpServer::response(429, error, "Retry-After: 7\r\n")).wait_seconds, 7);
  for (const std::string body : {"", "<html>", "[]", "{}", R"({"content": "text"})", R"({"choices": []})", R"({"choices": [3]})", "{\"content\": [", "null"}) {
    const auto answer = ask(HttpServer::response(200, body));
    EXPECT_FALSE(answer.reply) << body;
    EXPECT_TRUE(answer.retry) << body;
  }
  // A body that breaks off, a server that closes at once, one that is too slow, none at all.
  auto half = HttpServer::response(200, good("an answer"));
  half.resize(half.size() - 20);
  EXPECT_TRUE(ask(half).retry);
  EXPECT_TRUE(ask("").retry);
  HttpServer slow([&](const std::string&, const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    return HttpServer::response(200, good("late"));
  });
  auto request = question();
  request.timeout_seconds = 0.2;
  const auto late = provider(slow.url())->ask(request);
  ASSERT_TRUE(late.error);
  EXPECT_EQ(late.error->code(), ErrorCode::kTimeout);
  EXPECT_TRUE(late.retry);
  EXPECT_TRUE(provider("http://127.0.0.1:1")->ask(question()).retry);
  EXPECT_TRUE(ask(HttpServer::response(200, good("half a", true))).reply->truncated);
}

TEST_P(HttpCase, TheClientWaitsAsAskedAndCounts) {
  std::atomic<int> calls = 0;
  HttpServer server([&](const std::string&, const std::string&) {
    switch (++calls) {
      case 1: return HttpServer::response(429, "{}", "retry-after: 3\r\n");
      case 2: return HttpServer::response(503, "{}");
      case 3: return std::string("HTTP/1.1 200 X\r\ncontent-length: 50\r\n\r\nhalf");
      default: return HttpServer::response(200, good("at last"));
    }
  });
  std::vector<double> waits;
  std::vector<json> rows;
  ModelLimits limits;
  limits.input_price = 3;
  limits.output_price = 15;
  ModelClient client(provider(server.url()), limits, 1, [&](const json& row) { rows.push_back(row); },
                     [&](double seconds) { waits.push_back(seconds); });
  const auto reply = client.ask(question());
  ASSERT_TRUE(reply.ok()) << reply.error().to_string();
  EXPECT_EQ(reply->text, "at last");
  ASSERT_EQ(waits.size(), 3u);
  EXPECT_GE(waits[0], 3);
  EXPECT_LE(waits[0], 4);
  EXPECT_GE(waits[1], 1);   // 2 s doubled once, with jitter
  EXPECT_LE(waits[1], 2);
  EXPECT_GT(waits[2], waits[1] * 0.9);
  EXPECT_EQ(client.usage().requests, 1);
  EXPECT_EQ(client.usage().tries, 4);
  EXPECT_EQ(client.usage().input_tokens, 11);
  EXPECT_NEAR(client.usage().dollars, (11 * 3 + 7 * 15) / 1e6, 1e-12);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].dump().find(kKey), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Http, HttpCase, ::testing::Values(Kind::kAnthropic, Kind::kOpenAi));

class Scripted final : public Provider {
 public:
  std::function<ProviderAnswer(const ModelRequest&)> on_ask;
  ProviderAnswer ask(const ModelRequest& request) override { return on_ask(request); }
  std::string name() const override { return "scripted"; }
};

TEST(ModelClient, CapsHoldBeforeTheyAreSpent) {
  auto provider = std::make_shared<Scripted>();
  int asked = 0;
  provider->on_ask = [&](const ModelRequest&) {
    ++asked;
    return ProviderAnswer::of({"x", false, 50, 50});
  };
  ModelLimits tokens;
  tokens.most_tokens = 250;
  ModelClient client(provider, tokens, 1);
  EXPECT_TRUE(client.ask(question()).ok());
  EXPECT_TRUE(client.ask(question()).ok());
  const auto third = client.ask(question());
  ASSERT_FALSE(third.ok());
  EXPECT_NE(third.error().to_string().find("cap of 250 tokens"), std::string::npos);
  EXPECT_EQ(asked, 2);
  ModelLimits money;
  money.most_dollars = 1e-3;
  money.output_price = 15;
  ModelClient poor(provider, money, 1);
  EXPECT_FALSE(poor.ask(question()).ok());
  EXPECT_EQ(asked, 2);
}

TEST(ModelClient, TriesAreBoundedAndAskedSideBySide) {
  auto provider = std::make_shared<Scripted>();
  std::atomic<int> asked = 0, at_once = 0, most = 0;
  provider->on_ask = [&](const ModelRequest& request) {
    ++asked;
    const int now = ++at_once;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    --at_once;
    if (request.prompt == "fail") return ProviderAnswer::failure(Error(ErrorCode::kIo, "HTTP 500"), true);
    return ProviderAnswer::of({request.prompt, false, 1, 1});
  };
  ModelClient client(provider, {}, 1, {}, [](double) {});
  EXPECT_FALSE(client.ask(question("fail")).ok());
  EXPECT_EQ(asked, ModelLimits().tries);
  const auto answers = client.ask_all({question("a"), question("b"), question("c")});
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0]->text, "a");
  EXPECT_EQ(answers[2]->text, "c");
  EXPECT_EQ(most, 3);
}

TEST(CommandProvider, DrivesAChildProcess) {
  auto answer = command_provider("tr a-z A-Z")->ask(question());
  ASSERT_TRUE(answer.reply) << answer.error->to_string();
  EXPECT_EQ(answer.reply->text, "RULES\n\nHOW?");
  // More than a pipe holds, answered before it is read.
  auto big = question(std::string(300'000, 'x'));
  answer = command_provider("echo first; wc -c")->ask(big);
  ASSERT_TRUE(answer.reply);
  EXPECT_NE(answer.reply->text.find("300007"), std::string::npos) << answer.reply->text;
  answer = command_provider("echo done; exec 0<&-")->ask(big);
  ASSERT_TRUE(answer.reply);
  answer = command_provider("exit 3")->ask(question());
  EXPECT_TRUE(answer.retry);
  EXPECT_NE(answer.error->to_string().find("status 3"), std::string::npos);
  EXPECT_FALSE(command_provider("/no/such/program")->ask(question()).retry);
  auto impatient = question();
  impatient.timeout_seconds = 0.3;
  const auto begin = std::chrono::steady_clock::now();
  answer = command_provider("sleep 30 & sleep 30")->ask(impatient);
  EXPECT_EQ(answer.error->code(), ErrorCode::kTimeout);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(MailboxProvider, FilesGoBothWays) {
  const auto folder = fresh_folder("mailbox");
  auto provider = mailbox_provider(folder);
  std::thread person([&] {
    for (int i = 0; i < 100; ++i) {
      auto prompts = open_prompts(folder);
      if (prompts.ok() && prompts->size() == 1) {
        EXPECT_EQ(prompts->front().text, "rules\n\nhow?");
        EXPECT_FALSE(answer_prompt(folder, "planner-none", "x").ok());
        EXPECT_TRUE(answer_prompt(folder, "", "so").ok());
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const auto answer = provider->ask(question());
  person.join();
  ASSERT_TRUE(answer.reply) << answer.error->to_string();
  EXPECT_EQ(answer.reply->text, "so");
  EXPECT_TRUE(open_prompts(folder)->empty());
  EXPECT_TRUE(provider->ask(question()).reply);  // the same question, already answered
  auto other = question("else?");
  other.timeout_seconds = 0.1;
  EXPECT_EQ(provider->ask(other).error->code(), ErrorCode::kTimeout);
  EXPECT_FALSE(open_prompts(folder / "none").ok());
}

TEST(ReplayProvider, ARecordedRunAnswersAgain) {
  const auto file = fresh_folder("replay") / "llm.jsonl";
  auto scripted = std::make_shared<Scripted>();
  int asked = 0;
  scripted->on_ask = [&](const ModelRequest& request) {
    ++asked;
    return ProviderAnswer::of({request.prompt + "!", false, 1, 2});
  };
  const auto record = [&](const json& row) { std::ofstream(file, std::ios::app) << row.dump() << "\n"; };
  {
    ModelClient client(scripted, {}, 1, record);
    EXPECT_TRUE(client.ask(question("a")).ok());
    EXPECT_TRUE(client.ask(question("b")).ok());
  }
  auto replay = replay_provider(file);
  ASSERT_TRUE(replay.ok()) << replay.error().to_string();
  EXPECT_EQ((*replay)->ask(question("b")).reply->text, "b!");
  EXPECT_FALSE((*replay)->ask(question("c")).reply);
  // A resumed run asks only what is new, and counts only that.
  ModelClient resumed(resuming_provider(scripted, file), {}, 1, record);
  EXPECT_EQ(resumed.ask(question("a"))->text, "a!");
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(resumed.usage().requests, 0);
  EXPECT_EQ(resumed.ask(question("c"))->text, "c!");
  EXPECT_EQ(resumed.usage().requests, 1);
  std::ofstream(file, std::ios::app) << "{\n";
  EXPECT_FALSE(replay_provider(file).ok());
}

TEST(MakeProvider, KeysComeFromTheEnvironmentOnly) {
  ::unsetenv("ANTHROPIC_API_KEY");
  EXPECT_EQ(make_provider("anthropic:m", std::nullopt).error().code(), ErrorCode::kEnvironment);
  EXPECT_EQ(make_provider("oracle:m", std::nullopt).error().code(), ErrorCode::kBadInput);
  EXPECT_EQ(make_provider("command:", std::nullopt).error().code(), ErrorCode::kBadInput);
  ::setenv("ANTHROPIC_API_KEY", kKey.c_str(), 1);
  if (auto provider = make_provider("anthropic:m", std::nullopt); provider.ok()) {
    EXPECT_EQ((*provider)->name(), "anthropic:m");
  }
  ::unsetenv("ANTHROPIC_API_KEY");
}

}  // namespace
}  // namespace kernelopt
