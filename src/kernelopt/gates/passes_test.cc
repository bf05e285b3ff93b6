// The impossible does not compile. tests/compile_fail holds the same as whole sources.
#include "kernelopt/gates/passes.h"

#include <type_traits>

#include <gtest/gtest.h>

#include "kernelopt/gates/fake_observations.h"
#include "kernelopt/gates/outcome.h"

namespace kernelopt {
namespace {

using nlohmann::json;

// Whether T{args…} compiles: covers aggregates and `{}` where is_constructible does not.
template <typename T, typename... Args>
concept BraceConstructible = requires { T{std::declval<Args>()...}; };

template <typename T>
constexpr bool kCannotBeForged =
    !std::is_default_constructible_v<T> && !BraceConstructible<T> && !std::is_aggregate_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && std::is_move_constructible_v<T> &&
    !std::is_constructible_v<T, json> && !std::is_constructible_v<T, std::string> && !std::is_constructible_v<T, Subject> &&
    !std::is_constructible_v<T, Subject, json> && !std::is_convertible_v<json, T> && !std::is_trivially_copyable_v<T>;

static_assert(kCannotBeForged<Gate1Pass>);
static_assert(kCannotBeForged<Gate2Pass>);
static_assert(kCannotBeForged<Gate3Pass>);
static_assert(kCannotBeForged<Gate4Pass>);
static_assert(kCannotBeForged<StitchedSet>);
static_assert(kCannotBeForged<Gate3Set>);
static_assert(kCannotBeForged<Gate4Set>);
static_assert(kCannotBeForged<BaselineSound>);
static_assert(kCannotBeForged<VerifiedKernel>);
static_assert(kCannotBeForged<ReleaseSet>);
static_assert(kCannotBeForged<Optimized>);

// A pass does not follow from the one before it without its gate.
static_assert(!std::is_constructible_v<Gate2Pass, Gate1Pass> && !std::is_constructible_v<Gate2Pass, Gate1Pass, json>);
static_assert(!BraceConstructible<Gate2Pass, Gate1Pass, json>);
static_assert(!std::is_constructible_v<Gate3Pass, Gate2Pass> &&
              !std::is_constructible_v<Gate3Pass, Gate2Pass, std::string, json>);
static_assert(!std::is_constructible_v<Gate4Pass, Gate3Pass> &&
              !std::is_constructible_v<Gate4Pass, Gate3Pass, RatioEstimate, json>);
static_assert(!BraceConstructible<Gate4Pass, Gate3Pass, RatioEstimate, json>);
static_assert(!std::is_constructible_v<Gate3Set, std::vector<Gate3Pass>, std::string>);
static_assert(!std::is_constructible_v<Gate4Set, std::vector<Gate4Pass>, std::string>);
static_assert(!std::is_constructible_v<StitchedSet, std::vector<Gate2Pass>, std::string>);

// Sealing takes gate 4's pass and nothing less, and takes it away.
static_assert(std::is_constructible_v<VerifiedKernel, Gate4Pass&&>);
static_assert(!std::is_constructible_v<VerifiedKernel, const Gate4Pass&> && !std::is_constructible_v<VerifiedKernel, Gate4Pass&>);
static_assert(!std::is_constructible_v<VerifiedKernel, Gate3Pass> && !std::is_constructible_v<VerifiedKernel, Gate2Pass> &&
              !std::is_constructible_v<VerifiedKernel, Gate1Pass> && !std::is_constructible_v<VerifiedKernel, Candidate>);
static_assert(!std::is_convertible_v<Gate4Pass, VerifiedKernel>);

// Each gate takes exactly the pass before it, by rvalue.
static_assert(!std::is_invocable_v<decltype(&Gate2::decide), Gate1Pass&, const GroupObservation&>);
static_assert(std::is_invocable_v<decltype(&Gate2::decide), Gate1Pass, const GroupObservation&>);
static_assert(!std::is_invocable_v<decltype(&Gate3::decide), std::vector<Gate1Pass>, const BaselineSound&, const ModelObservation&>);
static_assert(!std::is_invocable_v<decltype(&Gate3::decide), StitchedSet&, const BaselineSound&, const ModelObservation&>);
static_assert(std::is_invocable_v<decltype(&Gate3::decide), StitchedSet, const BaselineSound&, const ModelObservation&>);
static_assert(!std::is_invocable_v<decltype(&Gate4::decide), StitchedSet, const RaceObservation&>);
static_assert(!std::is_invocable_v<decltype(&Gate4::decide), Gate3Set&, const RaceObservation&>);
static_assert(std::is_invocable_v<decltype(&Gate4::decide), Gate3Set, const RaceObservation&>);

// Releasing takes verified kernels only.
static_assert(std::is_invocable_v<decltype(&release), std::vector<VerifiedKernel>>);
static_assert(!std::is_invocable_v<decltype(&release), std::vector<Gate4Pass>>);
static_assert(!std::is_invocable_v<decltype(&release), std::vector<Gate2Pass>>);
static_assert(!std::is_invocable_v<decltype(&release), std::vector<Candidate>>);
static_assert(!std::is_invocable_v<decltype(&conclude), Gate3Set> && !std::is_invocable_v<decltype(&conclude), StitchedSet>);

// A win comes from gate 4's pass only.
static_assert(!std::is_default_constructible_v<Win> && !BraceConstructible<Win> && !std::is_aggregate_v<Win>);
static_assert(!std::is_constructible_v<Win, RatioEstimate> && !std::is_constructible_v<Win, RatioEstimate, std::string>);
static_assert(!BraceConstructible<Win, RatioEstimate, std::string>);
static_assert(!std::is_invocable_v<decltype(&Win::from), RatioEstimate> && !std::is_invocable_v<decltype(&Win::from), Gate3Pass>);
static_assert(!std::is_constructible_v<Optimized, Win, ReleaseSet> && !BraceConstructible<Optimized, Win, ReleaseSet>);
static_assert(!std::is_constructible_v<ModelOutcome, Win> && !std::is_constructible_v<ModelOutcome, ReleaseSet>);

TEST(Passes, CarryTheWholeChain) {
  const auto subject = testing::fake_subject("g0", "a");
  Gate4Set set = testing::pass4({subject, testing::fake_subject("g1", "b")});
  const std::string digest = set.digest();
  std::vector<Gate4Pass> members = std::move(set).into_members();
  ASSERT_EQ(members.size(), 2u);
  VerifiedKernel kernel(std::move(members[0]));
  EXPECT_EQ(&kernel.candidate(), subject.candidate.get());
  EXPECT_EQ(kernel.fingerprint(), testing::kDevice);
  EXPECT_EQ(kernel.set(), digest);
  const json evidence = kernel.evidence();
  EXPECT_EQ(evidence["1"]["symbols"], json::array({"kernel"}));
  EXPECT_EQ(evidence["2"]["seeds"], json::array({11, 12, 13}));
  EXPECT_EQ(evidence["3"]["set"], digest);
  EXPECT_EQ(evidence["4"]["margin"], 1.03);
}

TEST(PassesDeathTest, AUsedPassVouchesForNothing) {
  Gate1Pass pass = testing::pass1(testing::fake_subject("g0", "a"));
  Gate1Pass taken = std::move(pass);
  EXPECT_DEATH((void)pass.digest(), "handed on");
  Gate4Set set = testing::pass4({testing::fake_subject("g0", "a")});
  std::vector<Gate4Pass> members = std::move(set).into_members();
  EXPECT_DEATH((void)set.members(), "handed on");
  VerifiedKernel kernel(std::move(members[0]));
  EXPECT_DEATH((void)VerifiedKernel(std::move(members[0])), "handed on");
}

TEST(Sets, HaveOneCandidateAGroupOnOneDeviceUnderOnePolicy) {
  const auto stitch = [](const std::vector<Subject>& subjects) {
    std::vector<Gate2Pass> passes;
    for (const Subject& subject : subjects) passes.push_back(testing::pass2(subject));
    return PassSets::stitch(std::move(passes)).ok();
  };
  EXPECT_FALSE(stitch({}));
  EXPECT_TRUE(stitch({testing::fake_subject("g0", "a"), testing::fake_subject("g1", "b")}));
  EXPECT_FALSE(stitch({testing::fake_subject("g0", "a"), testing::fake_subject("g0", "b")}));
  EXPECT_FALSE(stitch({testing::fake_subject("g0", "a"), testing::fake_subject("g1", "b", "another device")}));
  auto paper = testing::fake_subject("g1", "b");
  paper.precision = Precision::kPaper;
  EXPECT_FALSE(stitch({testing::fake_subject("g0", "a"), paper}));
}

TEST(Sets, DigestIsOfTheMembersWhateverTheirOrder) {
  const auto a = testing::fake_subject("g0", "a"), b = testing::fake_subject("g1", "b"), c = testing::fake_subject("g1", "c");
  EXPECT_EQ(testing::stitched({a, b}).digest(), testing::stitched({b, a}).digest());
  EXPECT_NE(testing::stitched({a, b}).digest(), testing::stitched({a, c}).digest());
  EXPECT_NE(testing::stitched({a, b}).digest(), testing::stitched({a}).digest());
  EXPECT_NE(testing::stitched({a}).digest(), testing::stitched({testing::fake_subject("g0", "a", "elsewhere")}).digest());
}

TEST(Sets, StepBackToTheWeakerPasses) {
  std::vector<Gate2Pass> back = PassSets::unstitch(testing::pass4({testing::fake_subject("g0", "a"), testing::fake_subject("g1", "b")}));
  ASSERT_EQ(back.size(), 2u);
  back.pop_back();
  Result<StitchedSet> smaller = PassSets::stitch(std::move(back));
  ASSERT_TRUE(smaller.ok());
  EXPECT_EQ(smaller->digest(), testing::stitched({testing::fake_subject("g0", "a")}).digest());
  EXPECT_EQ(PassSets::unstitch(testing::pass3({testing::fake_subject("g0", "a")})).size(), 1u);
}

}  // namespace
}  // namespace kernelopt
