#include "kernelopt/llm/prompts.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernelopt/base/check.h"
#include "prompt_files.h"

namespace kernelopt {
namespace {

// Shares of the budget, in characters; together with the templates they stay under kPromptTokens.
constexpr size_t kLoops = 28'000, kBaseline = 24'000, kMoves = 10'000, kBuffers = 6'000, kHistory = 6'000, kOperators = 3'000,
                 kMemory = 3'000, kDiagnosis = 1'000, kDevice = 500, kParent = 4'000, kStrategy = 1'000, kReason = 4'000,
                 kAnswer = 16'000;

std::string facts_text(const GroupFacts& facts) {
  return fill_template(prompt_files::k_facts, {{"device", data_block("device", facts.device, kDevice)},
                                                {"operators", data_block("operators", facts.operators, kOperators)},
                                                {"loops", data_block("loops", facts.loops, kLoops)},
                                                {"buffers", data_block("buffers", facts.buffers, kBuffers)},
                                                {"diagnosis", data_block("diagnosis", facts.diagnosis, kDiagnosis)},
                                                {"baseline", data_block("baseline", facts.baseline, kBaseline)},
                                                {"memory", data_block("memory", facts.memory, kMemory)},
                                                {"history", data_block("history", facts.history, kHistory)}});
}

std::string retry_text(const Retry* retry) {
  if (!retry) return "";
  return fill_template(prompt_files::k_retry, {{"reason", data_block("reason", retry->reason, kReason)},
                                                {"answer", data_block("answer", retry->answer, kAnswer)}});
}

}  // namespace

std::string fill_template(const std::string& text, const std::map<std::string, std::string>& values) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find("{{", at);
    result += text.substr(at, open - at);
    if (open == std::string::npos) break;
    const size_t close = text.find("}}", open);
    KO_CHECK(close != std::string::npos, "a place in a prompt that does not end");
    const auto found = values.find(text.substr(open + 2, close - open - 2));
    KO_CHECK(found != values.end(), text.substr(open, close - open) + " has no value");
    result += found->second;
    at = close + 2;
  }
  return result;
}

std::string data_block(const std::string& name, const std::string& text, size_t most) {
  std::string body = text;
  if (body.size() > most) {
    const size_t head = most * 2 / 3, tail = most - head;
    body = fmt::format("{}\n[{} characters left out]\n{}", body.substr(0, head), body.size() - most, body.substr(body.size() - tail));
  }
  std::string lower = body;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string safe;
  for (size_t i = 0; i < body.size(); ++i) {
    safe += body[i];
    if (body[i] == '<' && (lower.compare(i, 5, "<data") == 0 || lower.compare(i, 6, "</data") == 0)) safe += ' ';
  }
  while (!safe.empty() && safe.back() == '\n') safe.pop_back();
  return fmt::format("<data name=\"{}\">\n{}\n</data>", name, safe);
}

std::string system_prompt() { return prompt_files::k_system; }

std::string planner_prompt(const GroupFacts& facts, const PlannerTask& task, const Retry* retry) {
  std::string moves;
  for (size_t i = 0; i < task.moves.size(); ++i) moves += fmt::format("{}. {}\n", i + 1, task.moves[i]);
  return fill_template(prompt_files::k_planner,
                       {{"facts", facts_text(facts)},
                        {"count", std::to_string(task.count)},
                        {"parent", data_block("parent", task.parent, kParent)},
                        {"moves", data_block("moves", moves, kMoves)},
                        {"strategy_rule", task.code ? "\nInstead of a move, a plan may be a strategy in words (at most 600 characters), after which Triton kernels\n"
                                                      "are written by hand; worth it where no move does what you want.\n" : ""},
                        {"strategy_schema", task.code ? ", where an entry may also be {\"strategy\": TEXT}" : ""}}) +
         retry_text(retry);
}

std::string executor_prompt(const GroupFacts& facts, const std::string& strategy, const Retry* retry) {
  return fill_template(prompt_files::k_executor, {{"facts", facts_text(facts)},
                                                   {"strategy", data_block("strategy", strategy, kStrategy)},
                                                   {"error", retry_text(retry)}});
}

}  // namespace kernelopt
