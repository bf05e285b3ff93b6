// The real executable against the fake worker: exit statuses, messages, nothing left behind (docs/cli.md).
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "display.h"
#include "options.h"

namespace kernelopt {
namespace {

namespace fs = std::filesystem;

const std::string kFakePython = KERNELOPT_SOURCE_DIR "/tests/fake_worker/fake_python";

struct Outcome {
  int status;
  std::string output, errors;
};

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Cli : public ::testing::Test {
 protected:
  Cli() {
    std::string pattern = ::testing::TempDir() + "/kernelopt_cli_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(folder_ / "model.py") << "class Model: pass\n";
  }
  ~Cli() override { fs::remove_all(folder_); }

  int start(const std::string& arguments, const std::string& fake) {
    const int pid = ::fork();
    if (pid == 0) {
      ::setenv("KERNELOPT_FAKE", fake.c_str(), 1);
      ::unsetenv("KERNELOPT_PYTHON");
      const auto command = std::string("exec ") + KERNELOPT_EXECUTABLE + " " + arguments + " >" + (folder_ / "out").string() +
                           " 2>" + (folder_ / "err").string();
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(99);
    }
    return pid;
  }
  Outcome finish(int pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(folder_ / "out"), contents(folder_ / "err")};
  }
  Outcome run(const std::string& arguments, const std::string& fake = "") { return finish(start(arguments, fake)); }
  std::string optimize() const {
    return "optimize " + (folder_ / "model.py").string() + " --out " + (folder_ / "run").string() + " --python " + kFakePython;
  }
  // The one line that starts with our name.
  static std::string message(const Outcome& outcome) {
    std::string found;
    std::istringstream lines(outcome.errors);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("kernelopt: ")) found += line + "\n";
    return found;
  }
  fs::path folder_;
};

TEST_F(Cli, UsageErrorsAreStatusTwo) {
  for (const std::string arguments : {"", "dance", "optimize", "optimize a.py --rounds none", "optimize a.py --device abacus",
                                      "report", "optimize a.py --no-such-option", "optimize a.py --profiler nvprof",
                                      "optimize a.py --profiler ncu"}) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

TEST_F(Cli, HelpAndVersionAreStatusZero) {
  EXPECT_EQ(run("--help").status, 0);
  const auto help = run("optimize --help");
  EXPECT_EQ(help.status, 0);
  for (const char* option : {"--device", "--out", "--dtype", "--rounds", "--plans", "--chains", "--beam", "--minutes",
                             "--seed", "--precision", "--python", "--inputs", "--state-dict", "--json", "--profiler"})
    EXPECT_NE(help.output.find(option), std::string::npos) << option;
  EXPECT_EQ(run("--version").output.substr(0, 10), "kernelopt ");
}

TEST_F(Cli, MissingThingsAreNamed) {
  auto outcome = run("optimize " + (folder_ / "absent.py").string());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(message(outcome).find("absent.py"), std::string::npos);
  outcome = run(optimize() + " --inputs " + (folder_ / "none.pt").string());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(message(outcome).find("none.pt"), std::string::npos);
  for (const char* command : {"verify ", "resume ", "report "}) {
    outcome = run(command + (folder_ / "gone").string());
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_NE(message(outcome).find("gone"), std::string::npos) << command;
  }
  std::ofstream(folder_ / "file") << "";
  EXPECT_EQ(run("optimize " + (folder_ / "model.py").string() + " --out " + (folder_ / "file" / "run").string()).status, 2);
}

TEST_F(Cli, EnvironmentIsStatusThree) {
  auto outcome = run("optimize " + (folder_ / "model.py").string() + " --out " + (folder_ / "run").string() +
                     " --python /nowhere/python");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(message(outcome).find("/nowhere/python"), std::string::npos);
  outcome = run(optimize(), "hello:environment");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_EQ(message(outcome), "kernelopt: hello says environment in two lines\n");
  outcome = run(optimize(), "hello:die");
  EXPECT_EQ(outcome.status, 3);
}

TEST_F(Cli, TheModelsFaultIsStatusTwoOursIsFour) {
  EXPECT_EQ(run(optimize(), "load_model:user").status, 2);
  const auto died = run(optimize(), "load_model:die");
  EXPECT_EQ(died.status, 2);
  EXPECT_NE(message(died).find("the model cannot be run"), std::string::npos);
  EXPECT_EQ(run(optimize(), "load_model:internal").status, 4);
  EXPECT_EQ(run(optimize(), "load_model:garbage").status, 2);
}

TEST_F(Cli, InterruptKeepsTheRunAndLeavesNoProcess) {
  const int pid = start(optimize(), "load_model:hang");
  // Wait until the engine has come so far that its journal exists and its children run.
  std::vector<int> children;
  for (int i = 0; i < 500 && children.size() < 2; ++i) {
    ::usleep(20000);
    children.clear();
    std::istringstream list(contents("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
    for (int child; list >> child;) children.push_back(child);
  }
  ASSERT_EQ(children.size(), 2u);
  ::usleep(300000);
  ::kill(pid, SIGINT);
  const auto outcome = finish(pid);
  EXPECT_EQ(outcome.status, 130) << outcome.errors;
  EXPECT_NE(outcome.errors.find("kernelopt resume"), std::string::npos) << outcome.errors;
  for (int child : children) EXPECT_NE(::kill(child, 0), 0);
  EXPECT_TRUE(fs::exists(folder_ / "run" / "journal.sqlite"));
}

TEST_F(Cli, KilledEngineLeavesNoProcess) {
  const int pid = start(optimize(), "load_model:hang");
  std::vector<int> children;
  for (int i = 0; i < 500 && children.size() < 2; ++i) {
    ::usleep(20000);
    children.clear();
    std::istringstream list(contents("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
    for (int child; list >> child;) children.push_back(child);
  }
  ASSERT_EQ(children.size(), 2u);
  ::kill(pid, SIGKILL);
  finish(pid);
  for (int child : children) {
    bool ended = false;
    for (int i = 0; i < 250 && !ended; ++i) {
      const auto stat = contents("/proc/" + std::to_string(child) + "/stat");
      ended = stat.empty() || stat.find(") Z") != std::string::npos;
      ::usleep(20000);
    }
    EXPECT_TRUE(ended);
  }
}

TEST_F(Cli, DoctorTellsGoodFromBad) {
  const auto good = run("doctor --python " + kFakePython, "measure_peaks:echo");
  EXPECT_EQ(good.status, 0) << good.output;
  const auto bad = run("doctor --python " + kFakePython, "hello:environment");
  EXPECT_EQ(bad.status, 3);
  EXPECT_NE(bad.output.find("LACKS"), std::string::npos);
}

TEST(Options, DefaultsAreThePapers) {
  const char* arguments[] = {"kernelopt", "optimize", "dir/net.py"};
  auto parsed = parse_arguments(3, arguments);
  ASSERT_TRUE(parsed.ok());
  const auto& options = std::get<Options>(*parsed);
  EXPECT_EQ(options.sizes.rounds, 5);
  EXPECT_EQ(options.sizes.plans, 4);
  EXPECT_EQ(options.sizes.chains, 4);
  EXPECT_EQ(options.sizes.beam, 4);
  EXPECT_EQ(options.folder, "runs/net");
  EXPECT_EQ(options.precision, Precision::kAccurate);
  EXPECT_FALSE(options.minutes.has_value());
  EXPECT_EQ(options.profiler, ProfilerChoice::kOff);
}

TEST(Options, EveryErrorHasAStatus) {
  EXPECT_EQ(exit_status(ErrorCode::kBadInput), 2);
  EXPECT_EQ(exit_status(ErrorCode::kEnvironment), 3);
  EXPECT_EQ(exit_status(ErrorCode::kInternal), 4);
  EXPECT_EQ(exit_status(ErrorCode::kInterrupted), 130);
}

TEST(Display, SaysWhatIsKnown) {
  ProgressState state;
  state.stage = "search";
  EXPECT_EQ(progress_text(state), "search");
  state.detail = "round 1 of 5";
  state.candidates = 3;
  state.best_speedup = 1.5;
  state.seconds_left = 75;
  EXPECT_EQ(progress_text(state), "search: round 1 of 5, 3 candidates, best 1.50x, 1 min 15 s left");
}

}  // namespace
}  // namespace kernelopt
