// The benchmark's table on reports with known means, and its scheduler with a shell script as the executable.
#include "bench.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "bench_table.h"
#include "kernelopt/worker/interrupt.h"
#include "report.h"

namespace kernelopt {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json finished(const std::string& outcome, double speedup = 0) {
  json report = {{"format", "kernelopt.report"}, {"version", 1}, {"outcome", outcome}, {"interrupted", false}, {"reason", "why"},
                 {"seconds", 1800.0}, {"speedup", nullptr}, {"speedup_max_autotune", nullptr}, {"notes", json::array()},
                 {"formats", json::array()}, {"rho", nullptr}, {"candidates", json::array()}, {"torch", "2.13.0"},
                 {"device", {{"name", "a card"}}}, {"decomposition", {{"groups", json::array()}}}};
  if (speedup > 0) {
    report["speedup"] = {{"value", speedup}, {"interval", {speedup * 0.9, speedup * 1.1}}, {"against", "default"}};
    report["speedup_max_autotune"] = {{"value", speedup * 2}};
  }
  return report;
}

json candidate(const std::string& gate, const std::string& verdict, json rho) {
  return {{"state", verdict}, {"group", "g"}, {"measured", {{"ratio", 0.5}, {"interval", {0.45, 0.55}}}},
          {"gates", {{gate, {{"verdict", verdict}, {"reason", verdict == "passed" ? json(nullptr) : json("disagrees")},
                             {"evidence", {{"rho", rho}}}}}}}};
}

TEST(BenchTable, FailuresCountAsOne) {
  const auto table = bench_table({{"level1", "a", finished("optimized", 2.0)}, {"level1", "b", finished("matched")},
                                  {"level2", "c", nullptr, "exit status 4"}}, {{"name", "x"}}, false);
  const auto& all = table["all"];
  EXPECT_EQ(all["problems"], 3);
  EXPECT_EQ(all["optimized"], 1);
  EXPECT_EQ(all["matched"], 1);
  EXPECT_EQ(all["failed"], 1);
  EXPECT_NEAR(all["geomean_all"]["best_mode"], 1.2599, 1e-4);
  EXPECT_NEAR(all["geomean_all"]["max_autotune"], 1.5874, 1e-4);
  EXPECT_NEAR(all["geomean_optimized"]["best_mode"], 2.0, 1e-12);
  EXPECT_NEAR(table["levels"][0]["geomean_all"]["best_mode"], 1.4142, 1e-4);
  EXPECT_NEAR(table["levels"][1]["geomean_all"]["best_mode"], 1.0, 1e-12);
  EXPECT_TRUE(table["levels"][1]["geomean_optimized"]["best_mode"].is_null());
  EXPECT_NEAR(all["fast_p"][0]["best_mode"], 1.0 / 3, 1e-12);
  EXPECT_NEAR(all["fast_p"][4]["best_mode"], 0.0, 1e-12);  // 2.0 is not more than 2.0
  EXPECT_NEAR(all["fast_p"][4]["max_autotune"], 1.0 / 3, 1e-12);
  EXPECT_NEAR(table["run_hours"], 1.0, 1e-12);
  EXPECT_NE(bench_markdown(table).find("| all | 3 | 1 | 1 | 0 (0) | 1 | 0 | 0 | 1.26 | 1.59 | 2.00 | 4.00 |"), std::string::npos);
}

TEST(BenchTable, UnfinishedAndDegenerateProblems) {
  auto constant = finished("fallback");
  constant["notes"] = {"degenerate model: the output is constant"};
  const std::vector<BenchProblem> problems = {
      {"l", "a", finished("optimized", 4.0)}, {"l", "b", constant}, {"l", "c", nullptr}, {"l", "d", finished("eager")}};
  const auto with = bench_table(problems, json::object(), false)["all"];
  EXPECT_EQ(with["unfinished"], 1);
  EXPECT_EQ(with["degenerate"], 1);
  EXPECT_EQ(with["eager"], 1);
  EXPECT_EQ(with["counted"], 3);
  EXPECT_NEAR(with["geomean_all"]["best_mode"], std::cbrt(4.0), 1e-9);
  const auto without = bench_table(problems, json::object(), true)["all"];
  EXPECT_EQ(without["counted"], 2);
  EXPECT_NEAR(without["geomean_all"]["best_mode"], 2.0, 1e-9);
}

TEST(BenchTable, GatesWithTheRangeOfRho) {
  auto report = finished("matched");
  report["candidates"] = {candidate("2", "rejected", 9.0), candidate("2", "rejected", 5.0), candidate("2", "rejected", "nan"),
                          candidate("2", "passed", 0.5), candidate("3", "passed", 1.5)};
  const auto gates = bench_table({{"l", "a", report}}, json::object(), false)["gates"];
  ASSERT_EQ(gates["rejected"].size(), 1u);
  EXPECT_EQ(gates["rejected"][0], (json{{"gate", "2"}, {"reason", "disagrees"}, {"count", 3},
                                        {"rho", {{"min", 5.0}, {"max", 9.0}, {"not_finite", 1}}}}));
  ASSERT_EQ(gates["accepted"].size(), 2u);
  EXPECT_EQ(gates["accepted"][1]["rho"]["max"], 1.5);
}

TEST(BenchTable, CompositionGap) {
  auto report = finished("matched");
  report["candidates"] = {candidate("2", "passed", 0.5)};
  report["decomposition"]["groups"] = {{{"group", 0}, {"digest", "g"}, {"equal_to", nullptr}, {"share", 0.8}}};
  auto small = report, large = report;
  for (auto* shown : {&small, &large}) (*shown)["outcome"] = "optimized";
  small["speedup"] = {{"value", 1.1}, {"interval", {1.05, 1.15}}, {"against", "default"}};  // 9 % of 40 %
  large["speedup"] = {{"value", 1.5}, {"interval", {1.4, 1.6}}, {"against", "default"}};    // 33 % of 40 %
  const auto gaps = bench_table({{"l", "none", report}, {"l", "small", small}, {"l", "large", large}}, json::object(),
                                false)["composition_gap"];
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_EQ(gaps[0]["problem"], "none");
  EXPECT_NEAR(gaps[0]["promised"], 0.4, 1e-12);
  EXPECT_EQ(gaps[1]["problem"], "small");
}

TEST(BenchTable, BrokenReportsAreFailures) {
  auto report = finished("optimized");  // without a speed-up
  EXPECT_EQ(bench_row({"l", "a", report})["outcome"], "failed");
  EXPECT_FALSE(is_finished_report(json::array()));
  report["interrupted"] = true;
  EXPECT_FALSE(is_finished_report(report));
}

class BenchRun : public ::testing::Test {
 protected:
  BenchRun() {
    install_interrupt_handlers();
    clear_interrupt_for_test();
    std::string pattern = ::testing::TempDir() + "/kernelopt_bench_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(folder_ / "report") << finished("optimized", 2.0).dump();
    options_.command = Command::kBench;
    options_.bench.dir = (folder_ / "problems").string();
    options_.folder = (folder_ / "out").string();
    options_.folder_given = true;
    hooks_.executable = (folder_ / "fake").string();
    hooks_.grace_seconds = 5;
    hooks_.limit_seconds = 30;
  }
  ~BenchRun() override {
    clear_interrupt_for_test();
    fs::remove_all(folder_);
  }
  void problem(const std::string& path) {
    fs::create_directories((folder_ / "problems" / path).parent_path());
    std::ofstream(folder_ / "problems" / path) << "class Model: pass\ndef get_inputs(): return []\n";
  }
  // $dir is the run folder, $name the problem; each start is noted in `starts`.
  void fake(const std::string& body) {
    std::ofstream(folder_ / "fake") << "#!/bin/sh\nif [ $1 = resume ]; then dir=$2; else dir=$4; fi\nname=$(basename $dir)\nroot="
                                    << folder_.string() << "\necho $1 $name >>$root/starts\n" << body << "\n";
    fs::permissions(folder_ / "fake", fs::perms::owner_all);
  }
  std::string text(const std::string& path) const {
    std::ifstream file(folder_ / path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  json table() const { return *read_json((folder_ / "out/bench.json").string()); }
  Result<int> run() {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    auto status = run_bench(options_, hooks_);
    output_ = ::testing::internal::GetCapturedStdout();
    errors_ = ::testing::internal::GetCapturedStderr();
    return status;
  }

  fs::path folder_;
  Options options_;
  BenchHooks hooks_;
  std::string output_, errors_;
};

TEST_F(BenchRun, CrashCostsOneProblemAndIsTriedOnceMore) {
  for (const char* path : {"level1/1_good.py", "level1/2_crash.py", "level2/10_more.py"}) problem(path);
  fake("[ $name = 2_crash ] && kill -SEGV $$\ncp $root/report $dir/report.json");
  ASSERT_EQ(*run(), 0);
  EXPECT_EQ(text("starts"), "optimize 1_good\noptimize 2_crash\noptimize 10_more\n");
  EXPECT_NE(errors_.find("[2/3] level1/2_crash: failed (killed by signal 11"), std::string::npos) << errors_;
  EXPECT_EQ(table()["all"]["optimized"], 2);
  EXPECT_EQ(table()["all"]["failed"], 1);
  EXPECT_NE(output_.find("# Benchmark problems"), std::string::npos);
  for (int again = 0; again < 2; ++again) ASSERT_EQ(*run(), 0);
  EXPECT_EQ(text("starts"), "optimize 1_good\noptimize 2_crash\noptimize 10_more\noptimize 2_crash\n");
  const auto before = text("out/bench.json");
  fs::remove(folder_ / "out/bench.json");
  options_.bench.dir.clear();
  options_.bench.table_only = true;
  ASSERT_EQ(*run(), 0);
  EXPECT_EQ(text("out/bench.json"), before);
}

TEST_F(BenchRun, HangIsKilledWithItsChildren) {
  problem("a.py");
  fake("sleep 300 & echo $! >$root/child; wait");
  hooks_.limit_seconds = 0.5;
  ASSERT_EQ(*run(), 0);
  EXPECT_EQ(table()["rows"][0]["outcome"], "failed");
  EXPECT_EQ(table()["rows"][0]["level"], "problems");
  EXPECT_NE(table()["rows"][0]["reason"].get<std::string>().find("hang"), std::string::npos);
  const int child = std::stoi(text("child"));
  for (int i = 0; i < 100 && ::kill(child, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_NE(::kill(child, 0), 0);
}

TEST_F(BenchRun, InterruptKeepsWhatIsFinishedAndResumes) {
  problem("a.py");
  problem("b.py");
  fake("if [ $name = b ] && [ $1 = optimize ]; then\n  touch $dir/journal.sqlite\n"
       "  trap 'echo stopped >>$root/starts; exit 130' INT\n  touch $root/waiting\n  while :; do sleep 0.05; done\nfi\n"
       "cp $root/report $dir/report.json");
  std::thread user([&] {
    for (int i = 0; i < 400 && !fs::exists(folder_ / "waiting"); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(25));
    raise_interrupt_for_test();
  });
  const auto status = run();
  user.join();
  ASSERT_EQ(*status, 130);
  EXPECT_NE(errors_.find("1 of 2 problems are finished"), std::string::npos) << errors_;
  EXPECT_EQ(text("starts"), "optimize a\noptimize b\nstopped\n");
  clear_interrupt_for_test();
  ASSERT_EQ(*run(), 0);
  EXPECT_EQ(text("starts"), "optimize a\noptimize b\nstopped\nresume b\n");
  EXPECT_EQ(table()["all"]["optimized"], 2);
}

TEST_F(BenchRun, ChangedProblemIsRunAgain) {
  problem("a.py");
  problem("b.py");
  fake("touch $dir/journal.sqlite\ncp $root/report $dir/report.json");
  ASSERT_EQ(*run(), 0);
  ASSERT_EQ(*run(), 0);
  EXPECT_EQ(text("starts"), "optimize a\noptimize b\n");
  std::ofstream(folder_ / "problems/b.py", std::ios::app) << "# other\n";
  ASSERT_EQ(*run(), 0);
  EXPECT_NE(errors_.find("problems/b was changed"), std::string::npos) << errors_;
  EXPECT_EQ(text("starts"), "optimize a\noptimize b\noptimize b\n");
  EXPECT_TRUE(fs::exists(folder_ / "out/problems/b/journal-1.sqlite"));
  ASSERT_EQ(*run(), 0);
  EXPECT_EQ(text("starts"), "optimize a\noptimize b\noptimize b\n");
}

TEST_F(BenchRun, OtherSettingsAreRefused) {
  problem("a.py");
  fake("cp $root/report $dir/report.json");
  ASSERT_EQ(*run(), 0);
  options_.model.seed = 7;
  const auto status = run();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(exit_status(status.error().code()), 2);
  EXPECT_NE(status.error().to_string().find("seed is 0 there and 7 here"), std::string::npos);
}

TEST_F(BenchRun, BadInput) {
  auto expect = [&](const std::string& message) {
    const auto status = run();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(exit_status(status.error().code()), 2);
    EXPECT_NE(status.error().to_string().find(message), std::string::npos) << status.error().to_string();
  };
  expect("no such folder");
  fs::create_directories(folder_ / "problems");
  expect("no problem");
  problem("level1/a.py");
  options_.bench.levels = {"2"};
  expect("no level 2");
  options_.bench.levels = {"1"};
  options_.bench.select = {"z*"};
  expect("matches no problem");
  options_.bench.select.clear();
  std::ofstream(folder_ / "file") << "x";
  options_.folder = (folder_ / "file/out").string();
  expect("cannot make");
  EXPECT_FALSE(fs::exists(folder_ / "starts"));
}

TEST_F(BenchRun, ProblemsInNumericOrderBySelection) {
  for (const char* path : {"level10/1_a.py", "level2/10_b.py", "level2/9_c.py", "level2/_skip.py"}) problem(path);
  const auto all = find_problems(options_.bench.dir, {}, {});
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[0].name, "9_c");
  EXPECT_EQ((*all)[2].level, "level10");
  EXPECT_EQ(find_problems(options_.bench.dir, {"2", "level10"}, {"9_*", "_a"})->size(), 2u);
}

}  // namespace
}  // namespace kernelopt
