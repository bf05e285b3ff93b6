#include "kernelopt/gates/gates.h"

#include <gtest/gtest.h>

#include "kernelopt/gates/fake_observations.h"

namespace kernelopt {
namespace {

using namespace testing;

const Error kDied(ErrorCode::kWorkerDied, "the worker died");
const Error kLate(ErrorCode::kTimeout, "too late");
const Error kDisk(ErrorCode::kIo, "disk full");
const Error kRaised(ErrorCode::kCandidate, "raised");

template <typename Pass>
RejectReason reason(const Decision<Pass>& decision) {
  EXPECT_TRUE(decision.rejected() != nullptr);
  return decision.rejected() ? decision.rejected()->reason : RejectReason::kUnknownLanguage;
}

// --- gate 1

// A Triton candidate of two launches of one kernel, on an sm_90.
Subject triton_subject(int64_t programs, int warps, bool cooperative = false) {
  CandidateParts parts;
  parts.language = "triton";
  parts.group = "g0";
  parts.kernels = {{"kernel0",
                    "import triton\nimport triton.language as tl\n\n@triton.jit\ndef kernel0(b0, b1):\n    tl.store(b1, tl.load(b0))\n",
                    {{"b0", DType::kFloat32, ParamRole::kIn}, {"b1", DType::kFloat32, ParamRole::kOut}}}};
  parts.launches = {{"kernel0", {"b0", "b1"}, 4, 4, 1}, {"kernel0", {"b0", "b1"}, programs, warps, 1, cooperative}};
  return {std::make_shared<const Candidate>(std::move(parts)), kDevice, Precision::kAccurate, Change::kRewrite, gpu_limits("sm_90")};
}

Observed<CompileReport> triton_report(const Subject& subject, int64_t registers, int64_t stack, int64_t shared) {
  CompileReport report{"k.py", Seconds(1), {"kernel0"}};
  for (const Launch& launch : subject.candidate->parts().launches)
    report.launches.push_back({launch.kernel, launch.programs, launch.warps, launch.cooperative, 32, 0, 0});
  report.launches.back().registers = registers;
  report.launches.back().stack_bytes = stack;
  report.launches.back().shared_bytes = shared;
  return {std::move(report), 1};
}

TEST(Gate1, RejectsLaunchesBeyondTheDevicesLimits) {
  const auto rejects = [](RejectReason expected, const char* figure, int64_t value, int64_t limit, int warps, int64_t registers,
                          int64_t stack, int64_t shared) {
    const Subject subject = triton_subject(4, warps);
    const auto decision = Gate1::decide(subject, triton_report(subject, registers, stack, shared));
    ASSERT_TRUE(decision.rejected()) << figure;
    EXPECT_EQ(decision.rejected()->reason, expected) << figure;
    const nlohmann::json& data = decision.rejected()->data;
    EXPECT_EQ(data["kernel"], "kernel0");
    EXPECT_EQ(data["figure"], figure);
    EXPECT_EQ(data["value"], value);
    EXPECT_EQ(data["limit"], limit);
  };
  rejects(RejectReason::kResources, "threads a program", 2048, 1024, 64, 16, 0, 0);
  rejects(RejectReason::kResources, "registers a thread", 256, 255, 4, 256, 0, 0);
  rejects(RejectReason::kResources, "bytes of shared memory a program", 232449, 232448, 4, 32, 0, 232449);
  rejects(RejectReason::kResources, "registers a program", 1024 * 72, 65536, 32, 72, 0, 0);
  rejects(RejectReason::kSpills, "bytes of local memory a thread", 1028, 1024, 4, 255, 1028, 0);

  const Subject subject = triton_subject(4, 8);
  const auto decision = Gate1::decide(subject, triton_report(subject, 255, 1024, 232448));
  ASSERT_TRUE(decision.passed());
  const nlohmann::json& launches = decision.pass().evidence()["launches"];
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[1]["registers"], 255);
  EXPECT_EQ(launches[1]["stack_bytes"], 1024);
  EXPECT_EQ(launches[1]["shared_bytes"], 232448);
}

TEST(Gate1, ProgramsThatWaitForOneAnotherMustAllBeResident) {
  // 168 registers: three warps in each of four partitions, three programs of four warps on each of 132 multiprocessors.
  const auto decide = [](int64_t programs, int64_t registers, bool cooperative) {
    const Subject subject = triton_subject(programs, 4, cooperative);
    return Gate1::decide(subject, triton_report(subject, registers, 0, 16));
  };
  EXPECT_TRUE(decide(396, 168, true).passed());
  EXPECT_TRUE(decide(397, 168, false).passed());
  EXPECT_TRUE(decide(528, 128, true).passed());
  const auto decision = decide(397, 168, true);
  ASSERT_TRUE(decision.rejected());
  EXPECT_EQ(decision.rejected()->reason, RejectReason::kNotResident);
  const nlohmann::json& data = decision.rejected()->data;
  EXPECT_EQ(data["kernel"], "kernel0");
  EXPECT_EQ(data["value"], 397);
  EXPECT_EQ(data["limit"], 396);
  EXPECT_EQ(data["registers"], 168);
  EXPECT_EQ(data["multiprocessors"], 132);
  EXPECT_EQ(data["resident_per_multiprocessor"], 3);
  EXPECT_EQ(data["bound_by"], "registers");
}

TEST(Gate1, NoTritonCandidatePassesUnmeasured) {
  Subject subject = triton_subject(4, 4);
  auto report = triton_report(subject, 32, 0, 0);
  ASSERT_TRUE(Gate1::decide(subject, report).passed());
  auto other = report;
  other.result->launches.pop_back();
  EXPECT_TRUE(Gate1::decide(subject, other).faulted());
  other = report;
  other.result->launches[1].programs = 5;
  EXPECT_TRUE(Gate1::decide(subject, other).faulted());
  subject.gpu.reset();
  EXPECT_TRUE(Gate1::decide(subject, report).faulted());
}

// fp16 by the library's convolution between two kernels; the call has no binary of ours and no entry in the report.
TEST(Gate1, ALibraryCallTakesNothingThatIsKnown) {
  CandidateParts parts = triton_subject(4, 4).candidate->parts();
  parts.formats = {"fp16 for tf32"};
  for (const char* name : {"s0", "s1", "s2"}) parts.scratch.push_back({name, DType::kFloat16, 64, false});
  parts.scratch.back().returned = true;
  parts.kernels.push_back({"call0",
                           "",
                           {{"s0", DType::kFloat16, ParamRole::kScratch}, {"s1", DType::kFloat16, ParamRole::kScratch}, {"s2", DType::kFloat16, ParamRole::kScratch}},
                           LibraryCall{"convolution", {{"groups", 1}}}});
  parts.launches.insert(parts.launches.begin() + 1, Launch{"call0", {"s0", "s1", "s2"}});
  Subject subject = triton_subject(4, 4);
  subject.candidate = std::make_shared<const Candidate>(std::move(parts));
  CompileReport report{"k.py", Seconds(1), {"kernel0"}};
  for (int i = 0; i < 2; ++i) report.launches.push_back({"kernel0", 4, 4, false, 32, 0, 0});
  const auto decision = Gate1::decide(subject, {report, 1});
  ASSERT_TRUE(decision.passed());
  EXPECT_EQ(decision.pass().evidence()["launches"].size(), 2u);
  report.launches[1].stack_bytes = 8224;  // the launch after the call is held to the limits too
  EXPECT_EQ(reason(Gate1::decide(subject, {report, 1})), RejectReason::kSpills);

  const auto rejects = [&](const std::function<void(CandidateParts&)>& change) {
    CandidateParts other = subject.candidate->parts();
    change(other);
    Subject asked = subject;
    asked.candidate = std::make_shared<const Candidate>(std::move(other));
    const auto rejected = Gate1::scan(asked);
    ASSERT_TRUE(rejected);
    EXPECT_EQ(rejected->reason, RejectReason::kLaunchList);
  };
  rejects([](CandidateParts& p) { p.formats.clear(); });                             // outside a challenge
  rejects([](CandidateParts& p) { p.kernels.back().library->call = "product"; });    // another call
  rejects([](CandidateParts& p) { p.kernels.back().source = "import triton\n"; });  // with code beside it
  rejects([](CandidateParts& p) { p.scratch.back().returned = false; });             // into memory that others hold
  rejects([](CandidateParts& p) { std::swap(p.launches[1].args[0], p.launches[1].args[2]); });
  rejects([](CandidateParts& p) { p.launches[1].programs = 4; });
}

TEST(Gate1, PassesAGoodCandidate) {
  const auto subject = fake_subject("g0", "a");
  const auto decision = Gate1::decide(subject, good_report());
  ASSERT_TRUE(decision.passed());
  EXPECT_EQ(decision.pass().digest(), subject.candidate->digest());
  EXPECT_EQ(decision.pass().group(), "g0");
}

Subject changed(const std::function<void(CandidateParts&)>& change) {
  CandidateParts parts = fake_candidate("g0", "a")->parts();
  change(parts);
  return {std::make_shared<const Candidate>(std::move(parts)), kDevice, Precision::kAccurate, Change::kRewrite};
}

TEST(Gate1, RejectsWhatIsNoKernel) {
  const auto rejects = [](RejectReason expected, const std::function<void(CandidateParts&)>& change) {
    const Subject subject = changed(change);
    EXPECT_EQ(reason(Gate1::decide(subject, good_report())), expected);
    ASSERT_TRUE(Gate1::scan(subject).has_value());
    EXPECT_EQ(Gate1::scan(subject)->reason, expected);
    EXPECT_EQ(Gate1::scan(subject)->gate, 1);
  };
  rejects(RejectReason::kUnknownLanguage, [](auto& parts) { parts.language = "python"; });
  rejects(RejectReason::kForbiddenSource, [](auto& parts) { parts.kernels[0].source += "void f() { system(0); }"; });
  rejects(RejectReason::kEntryPoint, [](auto& parts) { parts.kernels[0].source = "void f() {}"; });
  rejects(RejectReason::kEntryPoint, [](auto& parts) { parts.kernels[0].params.pop_back(); parts.launches[0].args.pop_back(); });
  rejects(RejectReason::kFormat, [](auto& parts) { parts.formats = {"tf32"}; });
  rejects(RejectReason::kFormat, [](auto& parts) { parts.formats = {"bf16x6", "bf16"}; });
  rejects(RejectReason::kLaunchList, [](auto& parts) { parts.launches.clear(); });
  rejects(RejectReason::kLaunchList, [](auto& parts) { parts.launches[0].kernel = "other"; });
  rejects(RejectReason::kLaunchList, [](auto& parts) { parts.launches[0].args.push_back("b2"); });
  rejects(RejectReason::kLaunchList, [](auto& parts) { parts.scratch = {{"b0", DType::kFloat32, 16, false}}; });
  rejects(RejectReason::kLaunchList, [](auto& parts) { parts.scratch = {{"s0", DType::kFloat32, 0, false}}; });
}

TEST(Gate1, ReadsTheCompilersReport) {
  const auto subject = fake_subject("g0", "a");
  EXPECT_EQ(reason(Gate1::decide(subject, {Error(ErrorCode::kCandidate, "error: expected ;"), 1})),
            RejectReason::kCompileError);
  EXPECT_EQ(reason(Gate1::decide(subject, {CompileReport{"k.so", Seconds(1), {"kernel", "helper"}}, 1})),
            RejectReason::kExtraSymbol);
  EXPECT_EQ(reason(Gate1::decide(subject, {CompileReport{"k.so", Seconds(1), {}}, 1})), RejectReason::kEntryPoint);
  EXPECT_TRUE(Gate1::decide(subject, {kDisk, 5}).faulted());
  EXPECT_TRUE(Gate1::decide(subject, {kDied, 1}).faulted());
  EXPECT_EQ(reason(Gate1::decide(subject, {kLate, 2})), RejectReason::kHung);
}

// --- gate 2

Decision<Gate2Pass> gate2(const std::function<void(GroupObservation&)>& change, const Subject& subject = fake_subject("g0", "a")) {
  GroupObservation observation = good_group(subject.candidate->digest());
  change(observation);
  return Gate2::decide(pass1(subject), observation);
}
RejectReason gate2_rejects(const std::function<void(GroupRun&)>& change) {
  return reason(gate2([&](auto& observation) {
    GroupRun run = *observation.runs[1].result;
    change(run);
    observation.runs[1].result = run;
  }));
}

TEST(Gate2, PassesAndRecordsRho) {
  const auto decision = gate2([](auto&) {});
  ASSERT_TRUE(decision.passed());
  EXPECT_DOUBLE_EQ(decision.pass().evidence()["rho"].template get<double>(), 1.5);
}

TEST(Gate2, RejectsEachMisbehaviourByItsReason) {
  EXPECT_EQ(gate2_rejects([](auto& run) { run.guards_intact = false; }), RejectReason::kOutOfBounds);
  EXPECT_EQ(gate2_rejects([](auto& run) { run.inputs_unchanged = false; }), RejectReason::kInputsChanged);
  EXPECT_EQ(gate2_rejects([](auto& run) { run.unwritten = 1; }), RejectReason::kUnwritten);
  EXPECT_EQ(gate2_rejects([](auto& run) { run.deterministic = false; }), RejectReason::kNotDeterministic);
  EXPECT_EQ(gate2_rejects([](auto& run) { run.comparison.leaves[0].violations[0] = 1; }), RejectReason::kTolerance);
  EXPECT_EQ(gate2_rejects([](auto& run) { run.comparison.leaves[0].nonfinite_equal = false; }), RejectReason::kNonFinite);
  EXPECT_EQ(gate2_rejects([](auto& run) { run.comparison.structure_equal = false; }), RejectReason::kStructure);
}

TEST(Gate2, WantsThreeFreshSeedsRunTwice) {
  EXPECT_TRUE(gate2([](auto& o) { o.runs.pop_back(); }).faulted());
  EXPECT_TRUE(gate2([](auto& o) { o.runs.clear(); }).faulted());
  EXPECT_TRUE(gate2([](auto& o) { o.runs[2] = o.runs[1]; }).faulted());             // one seed twice
  EXPECT_TRUE(gate2([](auto& o) { o.used_seeds = {12}; }).faulted());               // not fresh
  EXPECT_TRUE(gate2([](auto& o) { o.used_seeds = {1, 2, 3}; }).passed());
  EXPECT_TRUE(gate2([](auto& o) { GroupRun run = *o.runs[0].result; run.runs = 1; o.runs[0].result = run; }).faulted());
  EXPECT_TRUE(gate2([](auto& o) { GroupRun run = *o.runs[0].result; run.input_case = "large"; o.runs[0].result = run; }).faulted());
}

TEST(Gate2, TellsFaultsFromRejections) {
  EXPECT_TRUE(gate2([](auto& o) { o.runs[0] = {kDied, 1}; }).faulted());
  EXPECT_EQ(reason(gate2([](auto& o) { o.runs[0] = {kDied, 2}; })), RejectReason::kCrashed);
  EXPECT_EQ(reason(gate2([](auto& o) { o.runs[0] = {kLate, 2}; })), RejectReason::kHung);
  EXPECT_EQ(reason(gate2([](auto& o) { o.runs[0] = {kRaised, 1}; })), RejectReason::kRunError);
  EXPECT_TRUE(gate2([](auto& o) { o.runs[0] = {kDisk, 9}; }).faulted());
  // A wrong result outweighs a fault elsewhere.
  EXPECT_EQ(reason(gate2([](auto& o) {
              o.runs[0] = {kDisk, 1};
              GroupRun run = *o.runs[1].result;
              run.unwritten = 3;
              o.runs[1].result = run;
            })),
            RejectReason::kUnwritten);
}

TEST(Gate2, ChallengesNeedAdversarialInputs) {
  Subject subject = fake_subject("g0", "a");
  subject.change = Change::kChallenge;
  EXPECT_TRUE(gate2([](auto&) {}, subject).faulted());
  const auto add = [](GroupObservation& o, double d_opt) {
    GroupRun run = good_group_run(14);
    run.input_case = "large";
    run.comparison.leaves[0].d_opt = d_opt;
    o.runs.push_back({run, 1});
  };
  EXPECT_TRUE(gate2([&](auto& o) { add(o, 3e-7); }, subject).passed());
  EXPECT_EQ(reason(gate2([&](auto& o) { add(o, 4e-7); }, subject)), RejectReason::kRho);
}

TEST(Gate2, LeavesThePassAloneUnlessItPasses) {
  const auto subject = fake_subject("g0", "a");
  Gate1Pass pass = pass1(subject);
  GroupObservation bad = good_group(pass.digest());
  bad.runs[0] = {kRaised, 1};
  EXPECT_TRUE(Gate2::decide(std::move(pass), bad).rejected());
  EXPECT_TRUE(Gate2::decide(std::move(pass), good_group(subject.candidate->digest())).passed());
}

TEST(GateDeathTest, AnotherSubjectsObservationIsOurBug) {
  EXPECT_DEATH((void)gate2([](auto& o) { o.candidate = "other"; }), "another candidate");
  StitchedSet set = stitched({fake_subject("g0", "a")});
  ModelObservation observation = good_model(set);
  EXPECT_DEATH((void)Gate3::decide(std::move(set), sound("elsewhere"), observation), "another device");
  observation.set = "other";
  EXPECT_DEATH((void)Gate3::decide(std::move(set), sound(), observation), "another set");
  Gate3Set third = pass3({fake_subject("g0", "a")});
  EXPECT_DEATH((void)Gate4::decide(std::move(third), good_race("other")), "another set");
  RaceObservation race = good_race(third.digest());
  race.repetition = Seconds(0.05);
  EXPECT_DEATH((void)Gate4::decide(std::move(third), race), "repetition");
}

// --- gate 3

Decision<Gate3Set> gate3(const std::function<void(ModelObservation&)>& change,
                         const std::vector<Subject>& subjects = {fake_subject("g0", "a"), fake_subject("g1", "b")}) {
  StitchedSet set = stitched(subjects);
  ModelObservation observation = good_model(set);
  change(observation);
  return Gate3::decide(std::move(set), sound(), observation);
}

void damage(Observed<ModelRun>& observed, const std::function<void(LeafComparison&)>& change) {
  ModelRun run = *observed.result;
  change(run.comparison.leaves[0]);
  observed.result = run;
}

TEST(Gate3, MintsForExactlyItsMembers) {
  const auto decision = gate3([](auto&) {});
  ASSERT_TRUE(decision.passed());
  ASSERT_EQ(decision.pass().members().size(), 2u);
  for (const Gate3Pass& member : decision.pass().members()) {
    EXPECT_EQ(member.set(), decision.pass().digest());
    EXPECT_DOUBLE_EQ(member.evidence()["rho"].get<double>(), 1.5);
    EXPECT_EQ(member.evidence()["bound"], 4.0);
  }
}

TEST(Gate3, RecordsRhoAcceptedOrNot) {
  const auto far = [](auto& o) {
    damage(o.runs[2], [](auto& leaf) {
      leaf.d_opt = 20e-7;
      leaf.violations[1] = 1;
    });
  };
  const auto decision = gate3(far);
  EXPECT_EQ(reason(decision), RejectReason::kTolerance);
  EXPECT_DOUBLE_EQ(decision.rejected()->data["rho"].get<double>(), 10);
  EXPECT_EQ(decision.rejected()->gate, 3);
  EXPECT_EQ(decision.rejected()->data["runs"].size(), 3u);
}

TEST(Gate3, WantsExactlyTheSetInTheProgram) {
  EXPECT_EQ(reason(gate3([](auto& o) { o.stitched = {std::vector<ReplacedGroup>{{0, "g0", {}}}, 1}; })),
            RejectReason::kNotStitched);
  EXPECT_EQ(reason(gate3([](auto& o) {
              o.stitched = {std::vector<ReplacedGroup>{{0, "g0", {}}, {0, "g1", {}}, {0, "g2", {}}}, 1};
            })),
            RejectReason::kNotStitched);
  // Equal groups are replaced everywhere: twice the same digest is the same set.
  EXPECT_TRUE(gate3([](auto& o) {
                o.stitched = {std::vector<ReplacedGroup>{{0, "g0", {}}, {0, "g1", {}}, {1, "g0", {}}}, 1};
              }).passed());
  EXPECT_TRUE(gate3([](auto& o) { o.stitched = {kDied, 1}; }).faulted());
  EXPECT_EQ(reason(gate3([](auto& o) { o.stitched = {kDied, 2}; })), RejectReason::kCrashed);
}

TEST(Gate3, RefusesGroupsThatTheAuditExcluded) {
  AuditObservation audit = good_audit();
  audit.groups = {{"g1", false, {}}};
  const BaselineSound baseline = std::get<BaselineSound>(BaselineAudit::decide(audit));
  StitchedSet set = stitched({fake_subject("g0", "a"), fake_subject("g1", "b")});
  const ModelObservation observation = good_model(set);
  EXPECT_EQ(reason(Gate3::decide(std::move(set), baseline, observation)), RejectReason::kNotStitched);
}

TEST(Gate3, BeingCloseIsNotEnoughWhereTheCompilerLostDigits) {
  AuditObservation audit = good_audit();
  audit.runs[0].result->comparison.leaves[0].d_opt = 1e-4;
  const BaselineSound lossy = std::get<BaselineSound>(BaselineAudit::decide(audit));
  ASSERT_FALSE(lossy.inaccurate().empty());
  for (const auto& [d_opt, accurate] : {std::pair{7e-7, true}, {9e-7, false}}) {  // rho 3.5 and 4.5, allclose holds
    const auto decide = [&](const BaselineSound& baseline) {
      StitchedSet set = stitched({fake_subject("g0", "a")});
      ModelObservation observation = good_model(set);
      damage(observation.runs[0], [&](auto& leaf) { leaf.d_opt = d_opt; });
      return Gate3::decide(std::move(set), baseline, observation);
    };
    EXPECT_TRUE(decide(sound()).passed());
    const auto decision = decide(lossy);
    EXPECT_EQ(decision.passed(), accurate);
    if (!accurate) {
      EXPECT_EQ(reason(decision), RejectReason::kRho);
    }
  }
}

TEST(Gate3, FaultsAndFewSeedsArePassesNever) {
  EXPECT_TRUE(gate3([](auto& o) { o.runs.pop_back(); }).faulted());
  EXPECT_TRUE(gate3([](auto& o) { o.runs[0] = {kDisk, 1}; }).faulted());
  EXPECT_EQ(reason(gate3([](auto& o) { o.runs[0] = {kLate, 2}; })), RejectReason::kHung);
  EXPECT_EQ(reason(gate3([](auto& o) {
              o.runs[0] = {kDisk, 1};
              damage(o.runs[1], [](auto& leaf) { leaf.shape_equal = false; });
            })),
            RejectReason::kShape);
}

TEST(Gate3, OneChallengeMakesTheModelsRuleStrict) {
  Subject challenge = fake_subject("g0", "a");
  StitchedSet plain = stitched({challenge});
  const ModelObservation observation = [&] {
    ModelObservation o = good_model(plain);
    damage(o.runs[0], [](auto& leaf) { leaf.d_opt = 4e-7; });  // rho 2, allclose holds
    return o;
  }();
  EXPECT_TRUE(Gate3::decide(std::move(plain), sound(), observation).passed());

  challenge.change = Change::kChallenge;
  GroupObservation group = good_group(challenge.candidate->digest());
  GroupRun adversarial = good_group_run(14);
  adversarial.input_case = "large";
  group.runs.push_back({adversarial, 1});
  std::vector<Gate2Pass> passes;
  passes.push_back(Gate2::decide(pass1(challenge), group).take());
  StitchedSet set = PassSets::stitch(std::move(passes)).value();
  EXPECT_EQ(reason(Gate3::decide(std::move(set), sound(), observation)), RejectReason::kRho);
}

// --- gate 4

Decision<Gate4Set> gate4(double ratio, const std::function<void(RaceObservation&)>& change = [](auto&) {}) {
  Gate3Set set = pass3({fake_subject("g0", "a"), fake_subject("g1", "b")});
  RaceObservation race = good_race(set.digest(), ratio);
  change(race);
  return Gate4::decide(std::move(set), race);
}

TEST(Gate4, HoldsTheMargin) {
  EXPECT_TRUE(gate4(0.5).passed());
  EXPECT_TRUE(gate4(1.0).passed());
  EXPECT_TRUE(gate4(1.029).passed());
  const auto slow = gate4(1.031);
  EXPECT_EQ(reason(slow), RejectReason::kTooSlow);
  EXPECT_NEAR(slow.rejected()->data["race"]["ratio"].get<double>(), 1.031, 1e-9);
}

TEST(Gate4, WantsEnoughPairs) {
  EXPECT_TRUE(gate4(0.5, [](auto& race) { race.samples = {fake_samples(0.5, 4), 1}; }).faulted());
  EXPECT_TRUE(gate4(0.5, [](auto& race) { race.samples = {fake_samples(0.5, 5), 1}; }).passed());
  EXPECT_TRUE(gate4(0.5, [](auto& race) { race.samples = {kDied, 1}; }).faulted());
  EXPECT_EQ(reason(gate4(0.5, [](auto& race) { race.samples = {kLate, 2}; })), RejectReason::kHung);
}

TEST(Gate4, KeepsTheAaControlAsEvidence) {
  const auto decision = gate4(0.9, [](auto& race) { race.aa = evaluate_aa(fake_samples(1.0), {}, tolerance::kAaBias); });
  ASSERT_TRUE(decision.passed());
  EXPECT_EQ(decision.pass().members()[0].evidence()["aa"]["clean"], true);
}

}  // namespace
}  // namespace kernelopt
