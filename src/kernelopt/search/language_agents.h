// Planner and executor that ask a language model (DESIGN.md section 7). Both fall back on the built-in agents where the model
// fails, and neither is trusted: a plan is one of the space's moves, and what the model writes goes through all gates.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "kernelopt/analyst/roofline.h"
#include "kernelopt/llm/client.h"
#include "kernelopt/llm/prompts.h"
#include "kernelopt/llm/reply.h"
#include "kernelopt/search/agents.h"
#include "kernelopt/search/strategy_memory.h"
#include "kernelopt/target/target.h"

namespace kernelopt {

// One a run. Each may be null: that agent is then the built-in one.
struct LanguageModels {
  std::shared_ptr<ModelClient> planner, executor;
  double timeout_seconds = 300;
};

// What is known of a group before its search; `history` and `memory` are filled in as the search goes.
GroupFacts group_facts(const Program& program, const Group& group, const Work& work, const Roofline& roofline,
                       double baseline_seconds, const nlohmann::json& baseline, const Target& target);
// Attempts as the prompts show them: the best and the last ones.
std::string history_text(const std::vector<Attempt>& history);

// Questions of one group's search.
struct Questions {
  ModelClient& client;
  GroupFacts facts;
  std::function<double()> seconds_left;     // no request waits longer
  std::function<void(const std::string&)> failed;  // why the built-in agent stepped in; may be empty
  double timeout_seconds = 300;
};

inline constexpr int kMaxRefusedAnswers = 2;  // of one question to the planner
inline constexpr size_t kShownMoves = 80;

class LanguagePlanner final : public Planner {
 public:
  // `code`: strategies in words are admitted, because the executor can write them.
  LanguagePlanner(Questions questions, std::shared_ptr<const PlanSource> source, Planner& builtin, bool code)
      : questions_(std::move(questions)), source_(std::move(source)), builtin_(builtin), code_(code) {}
  std::vector<Proposal> propose(const PlanRequest& request) override;

 private:
  Questions questions_;
  std::shared_ptr<const PlanSource> source_;
  Planner& builtin_;
  bool code_;
};

class LanguageExecutor final : public Executor {
 public:
  LanguageExecutor(Questions questions, std::string group, std::vector<GroupBuffer> buffers, Executor& builtin)
      : questions_(std::move(questions)), group_(std::move(group)), buffers_(std::move(buffers)), builtin_(builtin) {}
  void prepare(const std::vector<Proposal>& proposals) override;
  Result<Candidate> write(const Proposal& proposal) override;
  std::optional<Result<Candidate>> repair(const Proposal& proposal, const std::string& reason) override;

 private:
  ModelRequest request(const std::string& brief, const Retry* retry) const;
  Result<Candidate> read(const Proposal& proposal, const Result<ModelReply>& reply);

  Questions questions_;
  std::string group_;
  std::vector<GroupBuffer> buffers_;
  Executor& builtin_;
  std::map<std::string, Result<ModelReply>> prepared_;  // by brief
  std::map<std::string, std::string> last_;             // the last answer, by brief
};

}  // namespace kernelopt
