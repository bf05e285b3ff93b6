#include "report.h"

#include <gtest/gtest.h>

#include "options.h"
#include "recorder.h"
#include "run_options.h"

namespace kernelopt {
namespace {

using nlohmann::json;

// Two groups: one that ncu counted, one that it did not reach.
ModelState profiled() {
  ModelState state;
  state.modes.push_back({"eager", {1e-3}, 0, 0.1, 0, std::nullopt});
  state.best_mode = state.compiled_mode = "eager";
  state.outcome = Fallback{"nothing passed", "eager", nullptr};
  state.profile = Profile{true, "ncu counted 1 of 2 groups", 12.5, {}};
  for (int i = 0; i < 2; ++i) {
    GroupState group;
    group.group.digest = "digest" + std::to_string(i);
    group.ref.steps = {"op" + std::to_string(i)};
    group.time = RatioEstimate{};
    group.time->baseline = Seconds(1e-4);
    group.roofline.diagnosis = Diagnosis::kUnderutilized;
    group.roofline.memory_use = 0.3;
    group.profile = GroupProfile{};
    state.groups.push_back(std::move(group));
  }
  KernelMetrics metrics;
  metrics.kernel = "triton_poi_0";
  metrics.compute_use = 0.1;
  metrics.memory_use = 0.95;
  state.groups[0].profile->metrics = metrics;
  state.groups[1].profile->resources = {{{"name", "triton_red_1"}, {"registers", 64}}};
  return state;
}

TEST(Report, SaysWhichProfilerWasUsedWithItsNumbers) {
  const auto state = profiled();
  Options options;
  options.profiler = ProfilerChoice::kNcu;
  const auto report = make_report(state, options, MemoryRecorder(), 60, false);
  ASSERT_TRUE(report.ok()) << report.error().to_string();
  EXPECT_EQ(report->at("profiler"),
            (json{{"asked", "ncu"}, {"used", "ncu"}, {"reason", "ncu counted 1 of 2 groups"}, {"seconds", 12.5}}));
  const auto& groups = report->at("decomposition").at("groups");
  EXPECT_EQ(groups[0].at("diagnosis"), "memory-bound");  // the counters', not the roofline's
  EXPECT_EQ(groups[0]["profile"].at("profiler"), "ncu");
  EXPECT_DOUBLE_EQ(groups[0]["profile"].at("metrics").at("memory_use").get<double>(), 0.95);
  EXPECT_EQ(groups[1].at("diagnosis"), "underutilized");
  EXPECT_EQ(groups[1]["profile"],
            (json{{"profiler", "time over floor"}, {"metrics", nullptr}, {"memory_use", 0.3}, {"compute_use", 0.0},
                  {"resources", {{{"name", "triton_red_1"}, {"registers", 64}}}}}));

  const auto text = report_text(*report);
  EXPECT_NE(text.find("memory-bound (compute 10 %, memory 95 %)"), std::string::npos) << text;
  EXPECT_NE(text.find("profiler: ncu, 12.5 s (ncu counted 1 of 2 groups)\n"), std::string::npos) << text;
}

TEST(Report, WithoutASearchThereIsNoProfile) {
  auto state = profiled();
  state.profile.reset();
  for (auto& group : state.groups) group.profile.reset();
  const auto report = make_report(state, {}, MemoryRecorder(), 60, false);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->at("profiler").is_null());
  EXPECT_TRUE(report->at("decomposition").at("groups")[0].at("profile").is_null());
  EXPECT_EQ(report_text(*report).find("profiler:"), std::string::npos);
}

TEST(RunOptions, AResumedRunKeepsItsProfiler) {
  Options options;
  options.profiler = ProfilerChoice::kOff;
  auto run = run_to_json(options);
  EXPECT_EQ(options_of_run(run, {}).profiler, ProfilerChoice::kOff);
  run.erase("profiler");  // of a run before the option
  EXPECT_EQ(options_of_run(run, {}).profiler, ProfilerChoice::kOff);
}

}  // namespace
}  // namespace kernelopt
