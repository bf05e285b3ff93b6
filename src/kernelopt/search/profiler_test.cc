#include "kernelopt/search/profiler.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

#include "kernelopt/worker/fake_worker.h"

namespace kernelopt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What ncu prints of two groups: a copy in two launches, a product in one, each behind its mark.
constexpr const char* kReport =
    "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\",\"sm__throughput.avg.pct_of_peak_sustained_elapsed\","
    "\"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed\",\"launch__registers_per_thread\"\n"
    "\"\",\"\",\"ns\",\"%\",\"%\",\"register/thread\"\n"
    "\"0\",\"kernelopt_mark\",\"900\",\"0.1\",\"0.1\",\"16\"\n"
    "\"1\",\"triton_poi_0\",\"30000\",\"10\",\"95\",\"32\"\n"
    "\"2\",\"triton_poi_1\",\"10000\",\"14\",\"91\",\"40\"\n"
    "\"3\",\"kernelopt_mark\",\"900\",\"0.1\",\"0.1\",\"16\"\n"
    "\"4\",\"gemm\",\"1,700,000\",\"88.5\",\"40\",\"210\"\n";

struct DroppingJudge : FakeJudge {
  std::vector<json> dropped;
  Status drop_files(const json& tree) override {
    dropped.push_back(tree);
    return ok_status();
  }
};

// An `ncu` first in PATH: a shell script, which knows where the report belongs ($log) and what the program is asked ($request).
class Profiler : public ::testing::Test {
 protected:
  Profiler() {
    char name[] = "/tmp/kernelopt-profiler-XXXXXX";
    folder = ::mkdtemp(name);
    path = std::getenv("PATH");
    settings.program = {"python3", "-m", "kernelopt.worker.profile"};
    settings.choice = ProfilerChoice::kNcu;
    settings.folder = folder.string();
    jobs = {{{0, "graph0.json", {"op0"}, {"b0"}}, {{"language", "inductor_triton"}}, 100},
            {{0, "graph0.json", {"op1"}, {"b1"}}, {{"language", "inductor_triton"}}, 100}};
    judge.on_group_inputs = [](const GroupRef& group, uint64_t) -> Result<json> { return json{{"inputs of", group.steps[0]}}; };
    worker.on_compile = [](const std::vector<json>& candidates) -> Result<std::vector<CompileOutcome>> {
      CompileOutcome outcome;
      outcome.entry = {{"kernels", {{{"name", "triton_poi_0"}, {"registers", 24}}}}};
      return std::vector<CompileOutcome>(candidates.size(), outcome);
    };
  }
  ~Profiler() override {
    ::setenv("PATH", path.c_str(), 1);
    fs::remove_all(folder);
  }
  void fake_ncu(const std::string& script) {
    std::ofstream(folder / "ncu") << "#!/bin/bash\nfolder=" << folder.string()
                                  << "\nfor ((i = 1; i <= $#; ++i)); do [ \"${!i}\" = --log-file ] && { i=$((i + 1)); log=${!i}; }; done\n"
                                     "request=\"${!#}\"\n"
                                  << script << "\n";
    fs::permissions(folder / "ncu", fs::perms::owner_all);
    ::setenv("PATH", (folder.string() + ":" + path).c_str(), 1);
  }
  Profile run(double seconds = 20) {
    auto profile = profile_groups(jobs, settings, true, seconds, 7, worker, judge);
    EXPECT_TRUE(profile.ok()) << profile.error().to_string();
    return std::move(profile).value();
  }
  // The substitute: no counts, and the compiler's resource report for each group.
  void expect_substitute(const Profile& profile) {
    EXPECT_FALSE(profile.counted);
    ASSERT_EQ(profile.groups.size(), 2u);
    for (const auto& group : profile.groups) {
      EXPECT_FALSE(group.metrics);
      ASSERT_EQ(group.resources.size(), 1u);
      EXPECT_EQ(group.resources[0].at("registers"), 24);
    }
  }

  fs::path folder;
  std::string path;
  ProfilerSettings settings;
  std::vector<ProfileJob> jobs;
  DroppingJudge judge;
  FakeWorker worker;
};

TEST_F(Profiler, GoodOutputGivesEachGroupItsNumbers) {
  std::ofstream(folder / "good.csv") << kReport;
  fake_ncu("cp $request $folder/asked.json; cp $folder/good.csv $log");
  const auto profile = run();
  EXPECT_TRUE(profile.counted);
  EXPECT_EQ(profile.reason, "");
  EXPECT_GT(profile.seconds, 0);
  ASSERT_EQ(profile.groups.size(), 2u);
  ASSERT_TRUE(profile.groups[0].metrics && profile.groups[1].metrics);
  EXPECT_NEAR(profile.groups[0].metrics->duration->count(), 40e-6, 1e-12);  // of both launches, the mark left out
  EXPECT_NEAR(*profile.groups[0].metrics->memory_use, 0.94, 1e-9);
  EXPECT_EQ(profile.groups[0].metrics->registers, 32);
  EXPECT_EQ(diagnose(*profile.groups[0].metrics), Diagnosis::kMemoryBound);
  EXPECT_EQ(diagnose(*profile.groups[1].metrics), Diagnosis::kComputeBound);
  EXPECT_EQ(worker.calls, std::vector<std::string>{});  // no resource report where there are counts

  std::ifstream asked(folder / "asked.json");
  const auto request = json::parse(asked);
  ASSERT_EQ(request.at("groups").size(), 2u);
  EXPECT_EQ(request["groups"][1], (json{{"program", "graph0.json"},
                                        {"group", {"op1"}},
                                        {"names", {"b1"}},
                                        {"candidates", {{{"language", "inductor_triton"}}}},
                                        {"inputs", {{"inputs of", "op1"}}}}));
  EXPECT_FALSE(fs::exists(folder / "profile.json"));
  EXPECT_EQ(judge.dropped, (std::vector<json>{{{"inputs of", "op0"}}, {{"inputs of", "op1"}}}));
}

TEST_F(Profiler, ACutReportKeepsWhatIsWhole) {
  const std::string report = kReport;
  std::ofstream(folder / "cut.csv") << report.substr(0, report.find("\"4\""));
  fake_ncu("cp $folder/cut.csv $log; exit 9");
  const auto profile = run();
  EXPECT_TRUE(profile.counted);
  EXPECT_EQ(profile.reason, "ncu counted 1 of 2 groups");
  EXPECT_TRUE(profile.groups[0].metrics);
  EXPECT_FALSE(profile.groups[1].metrics);
  EXPECT_EQ(profile.groups[1].resources.size(), 1u);
}

TEST_F(Profiler, WithoutPermissionTheSubstituteSaysSo) {
  fake_ncu("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission' >&2; exit 1");
  const auto profile = run();
  expect_substitute(profile);
  EXPECT_EQ(profile.reason, "this user may not read the device's performance counters (ERR_NVGPUCTRPERM)");
}

TEST_F(Profiler, WhatTheProgramSaysIsPartOfTheReason) {
  fake_ncu("echo '==ERROR== The application returned an error code (3).' > $log; echo 'kernelopt.worker.profile: no CUDA device' >&2; exit 3");
  EXPECT_EQ(run().reason, "The application returned an error code (3). (no CUDA device)");
  // A candidate that failed leaves its mark with nothing behind it.
  const std::string report = kReport;
  std::ofstream(folder / "failed.csv") << report.substr(0, report.find("\"4\""));
  fake_ncu("cp $folder/failed.csv $log; echo 'kernelopt.worker.profile: group 1, candidate 0: out of memory' >&2");
  const auto profile = run();
  EXPECT_EQ(profile.reason, "ncu counted 1 of 2 groups (group 1, candidate 0: out of memory)");
}

TEST_F(Profiler, AHangEndsAtTheDeadlineAndLeavesNothing) {
  fake_ncu("echo $$ > $folder/pid; exec sleep 600");
  const auto profile = run(1);
  expect_substitute(profile);
  EXPECT_EQ(profile.reason, "ncu did not finish in 1 s");
  EXPECT_LT(profile.seconds, 15);
  int pid = 0;
  std::ifstream(folder / "pid") >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_NE(::kill(pid, 0), 0);
  EXPECT_EQ(judge.dropped.size(), 2u);
}

TEST_F(Profiler, GarbageIsQuoted) {
  fake_ncu("printf 'a,b\\n1,2\\n' > $log; echo 'Segmentation fault'; exit 139");
  const auto profile = run();
  expect_substitute(profile);
  EXPECT_EQ(profile.reason, "ncu gave no report: Segmentation fault");
}

TEST_F(Profiler, WithoutNcuNothingIsDrawn) {
  ::setenv("PATH", folder.c_str(), 1);
  if (fs::exists("/usr/local/cuda/bin/ncu") || fs::exists("/opt/nvidia/nsight-compute")) GTEST_SKIP() << "this machine has an ncu";
  judge.on_group_inputs = [](const GroupRef&, uint64_t) -> Result<json> {
    ADD_FAILURE() << "inputs were drawn";
    return json();
  };
  const auto profile = run();
  expect_substitute(profile);
  EXPECT_EQ(profile.reason, "there is no ncu in PATH, /usr/local/cuda/bin or /opt/nvidia/nsight-compute");
}

TEST_F(Profiler, OffAndOtherDevicesStartNothing) {
  fake_ncu("touch $folder/started");
  settings.choice = ProfilerChoice::kOff;
  EXPECT_EQ(run().reason, "--profiler off");
  settings.choice = ProfilerChoice::kAuto;
  const auto cpu = profile_groups(jobs, settings, false, 20, 7, worker, judge);
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(cpu->reason, "ncu counts on NVIDIA GPUs alone");
  expect_substitute(run(0));  // too little time
  EXPECT_FALSE(fs::exists(folder / "started"));
  EXPECT_EQ(worker.calls, std::vector<std::string>{"compile"});
}

TEST_F(Profiler, InputsThatCannotBeMadeLeaveTheirGroupOut) {
  judge.on_group_inputs = [](const GroupRef& group, uint64_t) -> Result<json> {
    if (group.steps[0] == "op0") return Error(ErrorCode::kUnsupported, "no inputs");
    return json{{"inputs of", group.steps[0]}};
  };
  const std::string report = kReport;
  const auto header = report.find("\"0\""), second = report.find("\"3\"");
  std::ofstream(folder / "good.csv") << report.substr(0, header) << report.substr(second);
  fake_ncu("cp $folder/good.csv $log");
  const auto profile = run();
  EXPECT_FALSE(profile.groups[0].metrics);
  ASSERT_TRUE(profile.groups[1].metrics);
  EXPECT_EQ(profile.groups[1].metrics->kernel, "gemm");
  // A judge that was replaced meanwhile has taken its files along.
  judge.dropped.clear();
  judge.on_group_inputs = [this](const GroupRef&, uint64_t) -> Result<json> {
    ++judge.restart_count;
    return json::object();
  };
  run();
  EXPECT_TRUE(judge.dropped.empty());
  // A signal is no failure of ncu.
  judge.on_group_inputs = [](const GroupRef&, uint64_t) -> Result<json> { return Error(ErrorCode::kInterrupted, "interrupted"); };
  const auto stopped = profile_groups(jobs, settings, true, 20, 7, worker, judge);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code(), ErrorCode::kInterrupted);
}

TEST_F(Profiler, TheJournalKeepsAProfile) {
  std::ofstream(folder / "good.csv") << kReport;
  fake_ncu("cp $folder/good.csv $log");
  const auto document = profile_to_json(run());
  EXPECT_EQ(profile_to_json(profile_of_json(document)), document);
  EXPECT_NEAR(document["groups"][1]["metrics"]["compute_use"].get<double>(), 0.885, 1e-9);
}

TEST(ProfilerTime, AutoTakesAFewPercentOrNothing) {
  const auto choice = ProfilerChoice::kAuto;
  EXPECT_DOUBLE_EQ(ncu_seconds(choice, 10, 500), 30);        // 5 % of ten minutes
  EXPECT_DOUBLE_EQ(ncu_seconds(choice, 60, 3000), 60);       // as without a limit, at most
  EXPECT_DOUBLE_EQ(ncu_seconds(choice, 2, 100), 0);          // 6 s would be wasted
  EXPECT_DOUBLE_EQ(ncu_seconds(choice, 10, 60), 0);          // most of the minutes are gone
  EXPECT_DOUBLE_EQ(ncu_seconds(choice, {}, {}), 60);
  EXPECT_DOUBLE_EQ(ncu_seconds(ProfilerChoice::kNcu, 2, 100), 50);
  EXPECT_DOUBLE_EQ(ncu_seconds(ProfilerChoice::kNcu, {}, {}), 300);
  EXPECT_DOUBLE_EQ(ncu_seconds(ProfilerChoice::kOff, 60, {}), 0);
}

TEST(ProfilerPermission, IsKnownBeforeAStart) {
  const std::string closed = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n", open = "RmProfilingAdminOnly: 0\n";
  const std::string user = "Name:\tx\nCapEff:\t0000000000000000\n", root = "CapEff:\t000001ffffffffff\n", container = "CapEff:\t00000000a80425fb\n";
  EXPECT_NE(counters_refused(closed, user).find("RmProfilingAdminOnly"), std::string::npos);
  EXPECT_NE(counters_refused(closed, container), "");
  EXPECT_EQ(counters_refused(closed, root), "");
  EXPECT_EQ(counters_refused(open, user), "");
  EXPECT_EQ(counters_refused("", user), "");
}

}  // namespace
}  // namespace kernelopt
