#include "kernelopt/search/language_agents.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "kernelopt/codegen/canonical_names.h"
#include "kernelopt/search/select.h"

namespace kernelopt {

using nlohmann::json;

namespace {

constexpr size_t kShownBest = 6, kShownLast = 8, kShownReason = 200;

std::string numbers(const std::vector<int64_t>& values) { return fmt::format("({})", fmt::join(values, ", ")); }

double patience(const Questions& questions) {
  return std::max(1.0, std::min(questions.timeout_seconds, questions.seconds_left ? questions.seconds_left() : questions.timeout_seconds));
}

std::string attempt_line(const Attempt& attempt) {
  const auto result = attempt.measured() ? fmt::format("{:.3f}", attempt.ratio())
                                         : fmt::format("{}: {}", attempt_state_name(attempt.evaluation.state),
                                                       attempt.evaluation.reason.substr(0, kShownReason));
  return fmt::format("{}. {}: {} -> {}\n", attempt.number, transform_name(attempt.kind), attempt.description, result);
}

}  // namespace

std::string history_text(const std::vector<Attempt>& history) {
  std::set<size_t> shown;
  for (int index : ranked(history))
    if (shown.size() < kShownBest) shown.insert(static_cast<size_t>(index));
  for (size_t i = history.size() - std::min(history.size(), kShownLast); i < history.size(); ++i) shown.insert(i);
  std::string text;
  for (size_t i : shown) text += attempt_line(history[i]);
  return text.empty() ? "nothing yet" : text;
}

GroupFacts group_facts(const Program& program, const Group& group, const Work& work, const Roofline& roofline,
                       double baseline_seconds, const json& baseline, const Target& target) {
  GroupFacts facts;
  facts.device = fmt::format("{} ({}), {} {}, copies {:.0f} GB/s, {:.0f} GFLOP/s in fp32, {:.1f} us a launch", target.name, target.isa,
                             target.threads, target.kind == DeviceKind::kCuda ? "multiprocessors" : "threads",
                             target.copy_bytes_per_second / 1e9, target.flops_per_second / 1e9, target.launch_seconds * 1e6);
  for (int index : group.steps) {
    const auto& step = program.steps[static_cast<size_t>(index)];
    facts.operators += fmt::format("{}: {}\n", step.name, fmt::join(step.origins, " "));
  }
  for (const Body* body : group_bodies(program, group)) facts.loops += print(*body) + "\n";
  std::map<std::string, std::string> real;
  for (const auto& [name, canonical] : canonical_names(group)) real[canonical] = name;
  for (const auto& buffer : group_buffers(program, group))
    facts.buffers += fmt::format("{} is {}: {} shape {} strides {} offset {}, {}\n", real[buffer.name], buffer.name, dtype_name(buffer.dtype),
                                 numbers(buffer.size), numbers(buffer.stride), buffer.offset,
                                 !buffer.written ? "read" : buffer.read ? "read and written" : "result");
  facts.diagnosis = fmt::format(
      "{}: {:.2f} us now, floor {:.2f} us (memory {:.2f}, arithmetic {:.2f}, launch {:.2f}); {} bytes read, {} written, {:.3g} "
      "operations; memory used at {:.0f} % of its limit, arithmetic at {:.0f} %",
      diagnosis_name(roofline.diagnosis), baseline_seconds * 1e6, roofline.floor.total().count() * 1e6,
      roofline.floor.memory.count() * 1e6, roofline.floor.compute.count() * 1e6, roofline.floor.launch.count() * 1e6,
      work.bytes_read, work.bytes_written, work.operations, roofline.memory_use * 100, roofline.compute_use * 100);
  if (baseline.is_object() && baseline.contains("kernels"))
    for (const auto& kernel : baseline["kernels"]) facts.baseline += kernel.value("source", std::string()) + "\n";
  return facts;
}

std::vector<Proposal> LanguagePlanner::propose(const PlanRequest& request) {
  if (request.starts_only) return builtin_.propose(request);
  const KernelPlan& parent = request.parent ? request.parent->plan : source_->seed();
  std::vector<Move> moves;
  const auto offer = [&](std::vector<Move> more) {
    for (auto& move : more)
      if (moves.size() < kShownMoves && !request.seen->count(plan_key(move.plan))) moves.push_back(std::move(move));
  };
  if (!request.parent) offer(source_->starts());
  offer(source_->moves(parent));
  std::vector<Proposal> result;
  std::set<std::string> taken = *request.seen;
  const auto add = [&](Proposal proposal) {
    if (taken.insert(proposal_key(proposal, proposal.brief)).second) result.push_back(std::move(proposal));
  };

  PlannerTask task;
  task.parent = plan_to_json(parent).dump();
  for (const auto& move : moves) task.moves.push_back(fmt::format("{}: {}", transform_name(move.kind), move.description));
  task.count = request.count;
  task.code = code_;
  auto facts = questions_.facts;
  facts.history = history_text(*request.history);
  std::optional<Retry> retry;
  for (int refused = 0; (!moves.empty() || code_) && refused < kMaxRefusedAnswers; ++refused) {
    const auto reply = questions_.client.ask(
        {"planner", system_prompt(), planner_prompt(facts, task, retry ? &*retry : nullptr), 2048, patience(questions_)});
    if (!reply.ok()) {
      if (questions_.failed) questions_.failed("planner: " + reply.error().to_string());
      break;
    }
    auto steps = reply->truncated ? Result<std::vector<PlannedStep>>(Error(ErrorCode::kCandidate, "the answer is refused: it was cut off"))
                                  : read_planner_reply(reply->text, static_cast<int>(moves.size()), request.count, code_);
    if (!steps.ok()) {
      retry = Retry{steps.error().message(), reply->text};
      if (questions_.failed) questions_.failed("planner: " + steps.error().message());
      continue;
    }
    for (const auto& step : *steps) {
      if (step.move) add(moves[static_cast<size_t>(*step.move) - 1]);
      else add(Proposal(Move{TransformKind::kSeed, "written: " + step.strategy.substr(0, 80), parent}, step.strategy));
    }
    break;
  }
  // What the model leaves open is the built-in planner's.
  if (static_cast<int>(result.size()) < request.count) {
    PlanRequest rest = request;
    rest.seen = &taken;
    rest.count = request.count - static_cast<int>(result.size());
    const auto seen = taken;
    rest.seen = &seen;
    for (auto& proposal : builtin_.propose(rest)) add(std::move(proposal));
  }
  return result;
}

ModelRequest LanguageExecutor::request(const std::string& brief, const Retry* retry) const {
  return {"executor", system_prompt(), executor_prompt(questions_.facts, brief, retry), 16384, patience(questions_)};
}

void LanguageExecutor::prepare(const std::vector<Proposal>& proposals) {
  std::vector<std::string> briefs;
  for (const auto& proposal : proposals)
    if (!proposal.brief.empty() && !prepared_.count(proposal.brief) &&
        std::find(briefs.begin(), briefs.end(), proposal.brief) == briefs.end())
      briefs.push_back(proposal.brief);
  std::vector<ModelRequest> requests;
  for (const auto& brief : briefs) requests.push_back(request(brief, nullptr));
  auto replies = questions_.client.ask_all(requests);
  for (size_t i = 0; i < briefs.size(); ++i) prepared_.emplace(briefs[i], std::move(replies[i]));
}

Result<Candidate> LanguageExecutor::read(const Proposal& proposal, const Result<ModelReply>& reply) {
  if (!reply.ok()) {
    if (questions_.failed) questions_.failed("executor: " + reply.error().to_string());
    last_.erase(proposal.brief);
    return Error(ErrorCode::kUnsupported, "no answer: " + reply.error().to_string());
  }
  last_[proposal.brief] = reply->text;
  if (reply->truncated) return Error(ErrorCode::kCandidate, "the answer is refused: it was cut off");
  return read_executor_reply(reply->text, group_, buffers_, proposal.brief);
}

Result<Candidate> LanguageExecutor::write(const Proposal& proposal) {
  if (proposal.brief.empty()) return builtin_.write(proposal);
  prepare({proposal});
  auto node = prepared_.extract(proposal.brief);
  return read(proposal, node.mapped());
}

std::optional<Result<Candidate>> LanguageExecutor::repair(const Proposal& proposal, const std::string& reason) {
  if (proposal.brief.empty()) return builtin_.repair(proposal, reason);
  const auto last = last_.find(proposal.brief);
  if (last == last_.end()) return std::nullopt;
  const Retry retry{reason, last->second};
  return read(proposal, questions_.client.ask(request(proposal.brief, &retry)));
}

}  // namespace kernelopt
