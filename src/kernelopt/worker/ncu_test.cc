#include "kernelopt/worker/ncu.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace kernelopt {
namespace {

namespace fs = std::filesystem;

// A folder with an `ncu` in it, which is a shell script.
struct FakeNcu {
  fs::path folder;
  NcuStart start;
  explicit FakeNcu(const std::string& script) {
    char name[] = "/tmp/kernelopt-ncu-XXXXXX";
    folder = ::mkdtemp(name);
    const auto path = folder / "ncu";
    std::ofstream(path) << "#!/bin/bash\nfolder=" << folder.string()
                        << "\nfor ((i = 1; i <= $#; ++i)); do [ \"${!i}\" = --log-file ] && { i=$((i + 1)); log=${!i}; }; done\n"
                        << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
    start.ncu = path.string();
    start.log = (folder / "report.csv").string();
    start.program = {"python3", "-m", "kernelopt.worker.profile", "request.json"};
  }
  ~FakeNcu() { fs::remove_all(folder); }
  Result<std::string> run(int milliseconds = 20000) {
    return run_ncu(start, Monotonic::now() + std::chrono::milliseconds(milliseconds));
  }
  std::string file(const std::string& name) const {
    std::ifstream in(folder / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST(Ncu, AsksForWhatIsReadAndBringsTheReport) {
  FakeNcu fake("echo \"$*\" > $folder/arguments; echo \"$LC_ALL\" > $folder/locale; printf '\"ID\"\\n' > $log; echo said by the program");
  fake.start.sections = {"SpeedOfLight", "Occupancy"};
  fake.start.metrics = {"dram__bytes_read.sum", "dram__bytes_write.sum"};
  const auto report = fake.run();
  ASSERT_TRUE(report.ok()) << report.error().to_string();
  EXPECT_EQ(report->substr(0, 5), "\"ID\"\n");
  EXPECT_NE(report->find("said by the program"), std::string::npos);
  EXPECT_EQ(fake.file("locale"), "C\n");
  EXPECT_EQ(fake.file("arguments"),
            "--csv --page raw --print-units base --clock-control none --target-processes application-only --profile-from-start off "
            "--log-file " + fake.start.log +
                " --section SpeedOfLight --section Occupancy --metrics dram__bytes_read.sum,dram__bytes_write.sum "
                "python3 -m kernelopt.worker.profile request.json\n");
}

TEST(Ncu, ARefusalComesBackAsText) {
  FakeNcu fake("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission' > $log; exit 1");
  const auto report = fake.run();
  ASSERT_TRUE(report.ok()) << report.error().to_string();
  EXPECT_NE(report->find("ERR_NVGPUCTRPERM"), std::string::npos);
}

TEST(Ncu, AnOldReportDoesNotPassForANewOne) {
  FakeNcu fake("echo garbage; exit 3");
  std::ofstream(fake.start.log) << "old report";
  const auto report = fake.run();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(*report, "\ngarbage\n");
}

TEST(Ncu, AHangEndsAtTheDeadlineWithAllItsProcesses) {
  FakeNcu fake("sleep 600 & echo $! > $folder/pid; wait");
  const auto report = fake.run(1500);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code(), ErrorCode::kTimeout);
  const int pid = std::stoi(fake.file("pid"));
  bool gone = false;
  for (int i = 0; i < 200 && !gone; ++i) {
    gone = ::kill(pid, 0) != 0;
    if (!gone) ::usleep(10000);
  }
  EXPECT_TRUE(gone);
}

TEST(Ncu, WithoutNcuTheEnvironmentLacksSomething) {
  NcuStart start;
  start.ncu = "/nowhere/ncu";
  start.log = "/tmp/kernelopt-no-report";
  const auto report = run_ncu(start, Monotonic::now() + std::chrono::seconds(5));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code(), ErrorCode::kEnvironment);
  EXPECT_NE(report.error().message().find("/nowhere/ncu"), std::string::npos);
}

}  // namespace
}  // namespace kernelopt
