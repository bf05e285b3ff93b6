#include "kernelopt/search/beam_search.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace kernelopt {
namespace {

constexpr int kMaxDuplicatesPerRound = 64;  // a planner that only repeats itself has nothing left

// The state of one run, so that its steps can be functions.
struct Run {
  const BeamSearch& search;
  Planner& planner;
  Executor& executor;
  Evaluator& evaluator;
  SearchObserver& observer;
  SearchResult result;
  std::set<std::string> seen;                // plan keys
  std::map<std::string, int> by_digest;      // candidate digest -> attempt number
  std::vector<int> beam;                     // indices into attempts
  int next_chain = 1;

  struct Written {
    Attempt attempt;
    Proposal proposal;
    int repairs = 0;
    std::optional<Candidate> candidate;
  };

  double best_ratio() const {
    const auto order = ranked(result.attempts);
    return order.empty() ? 1.0 : std::min(1.0, result.attempts[static_cast<size_t>(order[0])].ratio());
  }

  void record(Attempt attempt) {
    attempt.number = static_cast<int>(result.attempts.size()) + 1;
    if (search.predictor) search.predictor->learn(attempt);
    result.attempts.push_back(std::move(attempt));
    observer.attempted(result.attempts.back());
  }

  // Asks for `count` moves from `parent` and writes them; duplicates are recorded at once and replaced by asking again.
  void collect(const Attempt* parent, int round, int count, bool starts_only, std::vector<Written>& into) {
    // `record` may move the attempts, so the parent is copied.
    const std::optional<Attempt> from = parent ? std::optional<Attempt>(*parent) : std::nullopt;
    int duplicates = 0;
    while (count > 0 && duplicates < kMaxDuplicatesPerRound && !search.stop_requested()) {
      const auto moves = planner.propose(
          {&result.attempts, from ? &*from : nullptr, &seen, round, search.sizes.rounds, starts_only, count,
           melted_down(result.attempts)});
      if (moves.empty()) return;
      executor.prepare(moves);
      bool any_new = false;
      for (const auto& move : moves) {
        if (count == 0) break;
        const auto key = proposal_key(move, move.brief);
        if (!seen.insert(key).second) continue;
        any_new = true;
        Written written{Attempt(), move};
        written.attempt.brief = move.brief;
        if (search.predictor && move.brief.empty()) written.attempt.predicted = search.predictor->predict(move.plan);
        written.attempt.round = round;
        written.attempt.chain = from ? from->chain : next_chain;
        written.attempt.kind = move.kind;
        written.attempt.description = move.description;
        if (from) written.attempt.parent_ratio = from->ratio();
        written.attempt.plan = move.plan;
        written.attempt.plan_key = key;
        written.attempt.shape_key = plan_shape_key(move.plan);
        if (!move.brief.empty()) written.attempt.shape_key += "\n" + move.brief;
        auto candidate = executor.write(move);
        while (!candidate.ok() && written.repairs < kMaxRepairs) {
          auto again = executor.repair(move, candidate.error().to_string());
          if (!again) break;
          ++written.repairs;
          candidate = std::move(*again);
        }
        if (!candidate.ok()) {
          written.attempt.evaluation = {AttemptState::kRejected, candidate.error().to_string(), std::nullopt};
        } else {
          written.attempt.digest = candidate->digest();
          if (const auto [known, fresh] = by_digest.try_emplace(candidate->digest(), 0); !fresh) {
            written.attempt.evaluation = {AttemptState::kDuplicate, "the same kernel as an earlier plan", std::nullopt};
            record(std::move(written.attempt));
            ++duplicates;
            continue;
          }
          written.candidate = std::move(candidate).value();
        }
        if (!from) next_chain = next_chain % std::max(1, search.sizes.chains) + 1;
        into.push_back(std::move(written));
        --count;
      }
      if (!any_new) return;
    }
  }

  std::vector<Written> plan_round(int round) {
    std::vector<Written> written;
    const int plans = search.sizes.plans;
    if (!beam.empty()) {
      // Starting points that did not fit into the first round are new blood for up to half of a later one.
      collect(nullptr, round, plans / 2, true, written);
      const auto budget = split_budget(plans - static_cast<int>(written.size()), static_cast<int>(beam.size()));
      const auto parents = beam;
      for (size_t i = 0; i < parents.size(); ++i)
        collect(&result.attempts[static_cast<size_t>(parents[i])], round, budget[i], false, written);
      // A chain that has no more moves leaves its share to the others.
      for (size_t i = 0; i < parents.size() && static_cast<int>(written.size()) < plans; ++i)
        collect(&result.attempts[static_cast<size_t>(parents[i])], round, plans - static_cast<int>(written.size()),
                false, written);
    }
    if (static_cast<int>(written.size()) < plans)
      collect(nullptr, round, plans - static_cast<int>(written.size()), false, written);
    return written;
  }

  // False when the search has to end; result.stop says why.
  bool evaluate(std::vector<Written>& written) {
    for (size_t begin = 0; begin < written.size(); begin += static_cast<size_t>(search.batch)) {
      if (search.stop_requested()) return stop(SearchStop::kInterrupted, "interrupted");
      if (search.out_of_time()) return stop(SearchStop::kOutOfTime, "the time for this group is spent");
      const size_t end = std::min(written.size(), begin + static_cast<size_t>(search.batch));
      std::vector<Candidate> candidates;
      for (size_t i = begin; i < end; ++i)
        if (written[i].candidate) candidates.push_back(*written[i].candidate);
      std::vector<Evaluation> evaluations;
      if (!candidates.empty()) {
        auto evaluated = evaluator.evaluate(candidates);
        if (!evaluated.ok()) {
          const bool interrupt = evaluated.error().code() == ErrorCode::kInterrupted;
          return stop(interrupt ? SearchStop::kInterrupted : SearchStop::kError, evaluated.error().to_string());
        }
        evaluations = std::move(evaluated).value();
        KO_CHECK(evaluations.size() == candidates.size(), "one evaluation a candidate");
      }
      size_t next = 0;
      for (size_t i = begin; i < end; ++i) {
        if (written[i].candidate) written[i].attempt.evaluation = std::move(evaluations[next++]);
        auto repaired = repair(written[i]);
        if (!repaired.ok()) {
          const bool interrupt = repaired.error().code() == ErrorCode::kInterrupted;
          return stop(interrupt ? SearchStop::kInterrupted : SearchStop::kError, repaired.error().to_string());
        }
        record(std::move(written[i].attempt));
      }
    }
    return true;
  }

  // A refused candidate goes back to its executor with the reason, as often as is left; every refused version is recorded.
  Status repair(Written& written) {
    while (written.candidate && written.attempt.evaluation.state == AttemptState::kRejected && written.repairs < kMaxRepairs &&
           !search.stop_requested() && !search.out_of_time()) {
      auto again = executor.repair(written.proposal, written.attempt.evaluation.reason);
      if (!again) break;
      ++written.repairs;
      record(written.attempt);
      written.attempt.description = fmt::format("{} (repair {})", written.proposal.description, written.repairs);
      written.attempt.digest.clear();
      written.candidate.reset();
      if (!again->ok()) {
        written.attempt.evaluation = {AttemptState::kRejected, again->error().to_string(), std::nullopt};
        break;
      }
      written.attempt.digest = (**again).digest();
      if (!by_digest.try_emplace(written.attempt.digest, 0).second) {
        written.attempt.evaluation = {AttemptState::kDuplicate, "the same kernel as an earlier plan", std::nullopt};
        break;
      }
      written.candidate = **again;
      KO_TRY(auto evaluations, evaluator.evaluate({*written.candidate}));
      written.attempt.evaluation = std::move(evaluations.at(0));
    }
    return ok_status();
  }

  bool stop(SearchStop stop, std::string reason) {
    result.stop = stop;
    result.stop_reason = std::move(reason);
    return false;
  }

  void run() {
    for (int round = 1; round <= search.sizes.rounds; ++round) {
      if (search.stop_requested()) return void(stop(SearchStop::kInterrupted, "interrupted"));
      if (auto early = early_stop(search.outlook, best_ratio())) return void(stop(early->stop, early->reason));
      auto written = plan_round(round);
      if (written.empty()) return void(stop(SearchStop::kExhausted, "every plan of the space was tried"));
      if (!evaluate(written)) return;
      beam = diverse_select(result.attempts, std::min(search.sizes.beam, std::max(1, search.sizes.chains)));
      result.rounds = round;
      observer.round_done(round, result.attempts, beam);
    }
    stop(SearchStop::kRoundsDone, fmt::format("{} rounds of {} plans", search.sizes.rounds, search.sizes.plans));
  }
};

}  // namespace

SearchResult BeamSearch::run(Planner& planner, Executor& executor, Evaluator& evaluator,
                             SearchObserver& observer) const {
  Run state{*this, planner, executor, evaluator, observer, {}, {}, {}, {}, 1};
  state.run();
  return std::move(state.result);
}

}  // namespace kernelopt
