// Ranked release against every verdict that up to four candidates or groups can get. The token is the choice itself, so a
// result that the oracle did not pass would show.
#include "kernelopt/gates/release.h"

#include <functional>
#include <set>

#include <gtest/gtest.h>

namespace kernelopt {
namespace {

enum Answer { kPass = 0, kReject = 1, kFault = 2 };
using Oracle = std::function<Answer(const Choice&)>;

bool is_baseline(const Choice& choice) {
  return std::all_of(choice.begin(), choice.end(), [](int rank) { return rank == kBaseline; });
}

// Faster ranks and more groups replaced make a faster model.
double cost(const Choice& choice) {
  double ratio = 1;
  for (int rank : choice)
    if (rank != kBaseline) ratio *= 0.8 + 0.04 * rank;
  return ratio;
}

struct Tried {
  ReleaseResult<Choice> result;
  std::vector<Choice> asked;
};

Tried search(const std::vector<int>& candidates, const Oracle& oracle, ReleaseLimits limits = {}) {
  Tried run;
  run.result = RankedRelease<Choice>::run(
      candidates,
      [&](const Choice& choice) -> Trial<Choice> {
        run.asked.push_back(choice);
        switch (oracle(choice)) {
          case kPass: return TrialPass<Choice>{choice, cost(choice)};
          case kReject: return Rejected{3, RejectReason::kTolerance, {}};
          case kFault: return Faulted{3, "infrastructure", {}};
        }
        return Faulted{3, "unreachable", {}};
      },
      limits);
  return run;
}

// Every choice but the baseline alone.
std::vector<Choice> all_choices(const std::vector<int>& candidates) {
  std::vector<Choice> choices = {{}};
  for (int count : candidates) {
    std::vector<Choice> longer;
    for (const Choice& choice : choices)
      for (int rank = kBaseline; rank < count; ++rank) {
        longer.push_back(choice);
        longer.back().push_back(rank);
      }
    choices = std::move(longer);
  }
  std::erase_if(choices, is_baseline);
  return choices;
}

Choice without(Choice choice, int group) {
  choice[static_cast<size_t>(group)] = kBaseline;
  return choice;
}
// The choice with only these groups replaced.
Choice only(const Choice& choice, const std::vector<int>& groups) {
  Choice result(choice.size(), kBaseline);
  for (int group : groups) result[static_cast<size_t>(group)] = choice[static_cast<size_t>(group)];
  return result;
}

// What holds for any oracle whatever, consistent or not.
void check_always(const Tried& run, const std::vector<int>& candidates, const Oracle& oracle) {
  const auto& result = run.result;
  // Released: exactly what passed, or nothing.
  if (result.pass) {
    ASSERT_EQ(result.pass->token, result.choice);
    ASSERT_FALSE(is_baseline(result.choice));
    ASSERT_EQ(oracle(result.choice), kPass);
  } else {
    ASSERT_TRUE(is_baseline(result.choice));
  }
  std::set<Choice> decided;
  for (const Choice& asked : run.asked) {
    ASSERT_FALSE(is_baseline(asked));
    for (size_t group = 0; group < asked.size(); ++group) ASSERT_LT(asked[group], candidates[group]);
    // Nothing faster passed and was forgotten; nothing decided was asked again.
    if (oracle(asked) == kPass) {
      ASSERT_TRUE(result.pass.has_value());
      ASSERT_LE(result.pass->ratio, cost(asked));
    }
    const bool repeated = !decided.insert(asked).second;
    ASSERT_TRUE(!repeated || oracle(asked) == kFault);
  }
  // The fastest set was tried first.
  for (size_t group = 0; group < candidates.size() && !run.asked.empty(); ++group)
    ASSERT_EQ(run.asked[0][group], candidates[group] > 0 ? 0 : kBaseline);
  // Each set that fell back failed, and no group of it could be left out.
  for (const ReleaseStep& step : result.steps) {
    if (step.kind != ReleaseStep::Kind::kDemoted) continue;
    ASSERT_TRUE(step.minimal);
    ASSERT_FALSE(step.groups.empty());
    const Choice at_fault = only(step.choice, step.groups);
    ASSERT_EQ(oracle(at_fault), kReject);
    for (int group : step.groups) {
      const Choice smaller = without(at_fault, group);
      ASSERT_TRUE(is_baseline(smaller) || oracle(smaller) != kReject);
    }
  }
}

// Calls visit(oracle) for every assignment of `answers` answers to every choice.
void every_table(const std::vector<int>& candidates, int answers, const std::function<void(const Oracle&)>& visit) {
  const std::vector<Choice> choices = all_choices(candidates);
  std::map<Choice, size_t> index;
  for (size_t i = 0; i < choices.size(); ++i) index[choices[i]] = i;
  std::vector<int> table(choices.size(), 0);
  for (;;) {
    visit([&](const Choice& choice) { return static_cast<Answer>(table[index.at(choice)]); });
    if (::testing::Test::HasFatalFailure()) return;
    size_t digit = 0;
    while (digit < table.size() && ++table[digit] == answers) table[digit++] = 0;
    if (digit == table.size()) return;
  }
}

void check_every_table(const std::vector<int>& candidates, int answers) {
  every_table(candidates, answers, [&](const Oracle& oracle) { check_always(search(candidates, oracle), candidates, oracle); });
}

TEST(RankedRelease, OneGroupOfUpToFourCandidatesEveryVerdict) {
  for (int count = 0; count <= 4; ++count)
    every_table({count}, 3, [&](const Oracle& oracle) {
      const Tried tried = search({count}, oracle);
      check_always(tried, {count}, oracle);
      // The first that passes ships, unless a fault stops the search before it.
      int expected = kBaseline;
      for (int rank = 0; rank < count && expected == kBaseline; ++rank) {
        const Answer answer = oracle({rank});
        if (answer == kFault) break;
        if (answer == kPass) expected = rank;
      }
      ASSERT_EQ(tried.result.choice, Choice{expected});
    });
}

TEST(RankedRelease, TwoGroupsOfTwoCandidatesEveryVerdict) { check_every_table({2, 2}, 3); }
TEST(RankedRelease, ThreeGroupsEveryVerdict) { check_every_table({1, 1, 1}, 3); }
TEST(RankedRelease, FourGroupsEveryVerdict) { check_every_table({1, 1, 1, 1}, 2); }
TEST(RankedRelease, UnevenGroupsEveryVerdict) { check_every_table({3, 0, 2}, 2); }

// Candidates that are good or bad by themselves: each group ends with its fastest good one, whatever the others do.
TEST(RankedRelease, FourGroupsOfFourIndependentCandidates) {
  const std::vector<int> candidates = {4, 4, 4, 4};
  for (int bad = 0; bad < 1 << 16; ++bad) {
    const auto is_bad = [&](size_t group, int rank) { return (bad >> (4 * group + static_cast<size_t>(rank))) & 1; };
    const Oracle oracle = [&](const Choice& choice) {
      for (size_t group = 0; group < 4; ++group)
        if (choice[group] != kBaseline && is_bad(group, choice[group])) return kReject;
      return kPass;
    };
    const Tried tried = search(candidates, oracle, {.max_trials = 1000});
    Choice expected;
    for (size_t group = 0; group < 4; ++group) {
      int rank = 0;
      while (rank < 4 && is_bad(group, rank)) ++rank;
      expected.push_back(rank < 4 ? rank : kBaseline);
    }
    ASSERT_EQ(tried.result.choice, expected) << bad;
    ASSERT_EQ(tried.result.pass.has_value(), !is_baseline(expected));
  }
}

// Groups that fail only together, any family of such sets: what ships is one that no group of it could be added to.
TEST(RankedRelease, FourGroupsThatFailOnlyTogether) {
  const std::vector<int> candidates = {1, 1, 1, 1};
  std::vector<int> sets;  // as bits of groups; with two members at least
  for (int bits = 1; bits < 16; ++bits)
    if ((bits & (bits - 1)) != 0) sets.push_back(bits);
  for (int family = 0; family < 1 << sets.size(); ++family) {
    const Oracle oracle = [&](const Choice& choice) {
      int replaced = 0;
      for (size_t group = 0; group < 4; ++group)
        if (choice[group] != kBaseline) replaced |= 1 << group;
      for (size_t i = 0; i < sets.size(); ++i)
        if (((family >> i) & 1) && (replaced & sets[i]) == sets[i]) return kReject;
      return kPass;
    };
    const Tried tried = search(candidates, oracle);
    check_always(tried, candidates, oracle);
    if (HasFatalFailure()) return;
    ASSERT_TRUE(tried.result.pass.has_value());
    for (size_t group = 0; group < 4; ++group) {
      if (tried.result.choice[group] != kBaseline) continue;
      Choice larger = tried.result.choice;
      larger[group] = 0;
      ASSERT_EQ(oracle(larger), kReject) << family;
    }
  }
}

TEST(RankedRelease, FindsOneCulpritAmongManyByBisection) {
  const std::vector<int> candidates(64, 1);
  const Tried tried = search(candidates, [](const Choice& choice) { return choice[37] == 0 ? kReject : kPass; });
  EXPECT_EQ(std::count(tried.result.choice.begin(), tried.result.choice.end(), kBaseline), 1);
  EXPECT_EQ(tried.result.choice[37], kBaseline);
  EXPECT_LE(tried.asked.size(), 14u);
}

TEST(RankedRelease, FaultsAreRetriedAndNeverBlamedOnACandidate) {
  int calls = 0;
  const auto flaky = RankedRelease<Choice>::run({1, 1}, [&](const Choice& choice) -> Trial<Choice> {
    if (++calls == 1) return Faulted{4, "once", {}};
    return TrialPass<Choice>{choice, 0.9};
  });
  EXPECT_EQ(flaky.choice, (Choice{0, 0}));
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(flaky.fault.has_value());

  const Tried broken = search({2, 2}, [](const Choice&) { return kFault; });
  EXPECT_FALSE(broken.result.pass.has_value());
  ASSERT_TRUE(broken.result.fault.has_value());
  EXPECT_EQ(broken.result.fault->message, "infrastructure");
  EXPECT_EQ(broken.asked.size(), 2u);
}

TEST(RankedRelease, TheBudgetBoundsTheQuestionsAndKeepsThePasses) {
  const std::vector<int> candidates(8, 3);
  // Any two replaced groups fail: the worst case for the search.
  const Oracle oracle = [](const Choice& choice) {
    return std::count_if(choice.begin(), choice.end(), [](int rank) { return rank != kBaseline; }) > 1 ? kReject : kPass;
  };
  for (int budget = 0; budget < 40; ++budget) {
    const Tried tried = search(candidates, oracle, {.max_trials = budget});
    EXPECT_LE(tried.asked.size(), static_cast<size_t>(budget));
    if (tried.result.pass) {
      EXPECT_EQ(oracle(tried.result.choice), kPass);
    }
    for (const Choice& asked : tried.asked)
      if (oracle(asked) == kPass) {
        EXPECT_TRUE(tried.result.pass.has_value());
      }
  }
  EXPECT_TRUE(search(candidates, oracle, {.max_trials = 40}).result.pass.has_value());
}

TEST(RankedRelease, NothingToReleaseAsksNothing) {
  EXPECT_TRUE(search({}, [](const Choice&) { return kPass; }).asked.empty());
  EXPECT_TRUE(search({0, 0}, [](const Choice&) { return kPass; }).asked.empty());
}

}  // namespace
}  // namespace kernelopt
