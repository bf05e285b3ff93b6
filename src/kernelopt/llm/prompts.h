// Prompts: templates under prompts/ (compiled in), filled with what is known of a group, within a budget of tokens.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernelopt/llm/provider.h"

namespace kernelopt {

// Replaces {{name}} once through: what is filled in is not looked at again. Every name must be known: our own bug otherwise.
std::string fill_template(const std::string& text, const std::map<std::string, std::string>& values);

// A block of foreign text that cannot end itself: "<data" and "</data" inside are broken up. Longer than `most` characters,
// its middle is left out, and the block says how much.
std::string data_block(const std::string& name, const std::string& text, size_t most);

// What is known of a group, as texts. Each goes into a data block.
struct GroupFacts {
  std::string device, operators, loops, buffers, diagnosis, baseline, memory, history;
};

struct PlannerTask {
  std::string parent;
  std::vector<std::string> moves;  // descriptions, numbered from 1
  int count = 4;
  bool code = false;               // strategies in words are admitted
};

struct Retry {
  std::string reason, answer;
};

inline constexpr int64_t kPromptTokens = 24'000;  // of one prompt, estimated_tokens(); a retry adds at most a quarter

std::string system_prompt();
std::string planner_prompt(const GroupFacts& facts, const PlannerTask& task, const Retry* retry = nullptr);
std::string executor_prompt(const GroupFacts& facts, const std::string& strategy, const Retry* retry = nullptr);

}  // namespace kernelopt
