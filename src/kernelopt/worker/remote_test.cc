#include "kernelopt/worker/remote.h"

#include <csignal>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "kernelopt/worker/interrupt.h"

namespace kernelopt {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kLong{20000};

ProcessSpec fake(const std::string& role = "worker") {
  return {{"python3", KERNELOPT_SOURCE_DIR "/tests/fake_worker/fake_worker.py", role}, {}, "worker"};
}

bool alive(int pid) { return ::kill(pid, 0) == 0; }

bool gone_soon(int pid) {
  for (int i = 0; i < 200 && alive(pid); ++i) ::usleep(10000);
  return !alive(pid);
}

TEST(Rpc, AnswersAndKeepsTheProcess) {
  ProcessRpc rpc(fake());
  const json params = {{"text", std::string(100000, 'a')}, {"n", 3}};
  for (int i = 0; i < 3; ++i) {
    auto reply = rpc.call("echo", params, kLong);
    ASSERT_TRUE(reply.ok()) << reply.error().to_string();
    EXPECT_EQ(*reply, params);
  }
  EXPECT_EQ(rpc.generation(), 1);
  ASSERT_TRUE(rpc.call("noise", json::object(), kLong).ok());  // more output than a pipe holds
  const int pid = rpc.pid();
  rpc.stop();
  EXPECT_TRUE(gone_soon(pid));
}

TEST(Rpc, ReportsProgress) {
  std::vector<Progress> seen;
  ProcessRpc rpc(fake(), [&](const Progress& progress) { seen.push_back(progress); });
  ASSERT_TRUE(rpc.call("progress", json::object(), kLong).ok());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].stage, "compile");
  EXPECT_EQ(seen[0].done, 1);
}

TEST(Rpc, WaitingForTheDeviceIsNotTheRequests) {
  ProcessRpc rpc(fake());
  ASSERT_TRUE(rpc.call("echo", json::object(), kLong).ok());
  EXPECT_TRUE(rpc.call("wait", {{"seconds", 2.4}}, milliseconds(1500)).ok());
  auto hung = rpc.call("wait", {{"seconds", 0.4}, {"hang", true}}, milliseconds(500));
  ASSERT_FALSE(hung.ok());
  EXPECT_EQ(hung.error().code(), ErrorCode::kTimeout);
}

TEST(Rpc, ErrorReplyKeepsTheProcess) {
  ProcessRpc rpc(fake());
  auto reply = rpc.call("load_model", {{"path", "missing.py"}}, kLong);
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code(), ErrorCode::kBadInput);
  EXPECT_EQ(reply.error().to_string(), "no such file: missing.py");
  EXPECT_EQ(rpc.call("nothing", json::object(), kLong).error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(rpc.generation(), 1);
}

TEST(Rpc, DeathCostsOneCallAndNamesTheLastWords) {
  ProcessRpc rpc(fake());
  auto reply = rpc.call("die", json::object(), kLong);
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code(), ErrorCode::kWorkerDied);
  EXPECT_NE(reply.error().to_string().find("ended with status 3: Segmentation fault in candidate"), std::string::npos)
      << reply.error().to_string();
  auto aborted = rpc.call("abort", json::object(), kLong);
  EXPECT_NE(aborted.error().to_string().find("signal 6"), std::string::npos) << aborted.error().to_string();
  EXPECT_TRUE(rpc.call("echo", json::object(), kLong).ok());
  EXPECT_EQ(rpc.generation(), 3);
}

TEST(Rpc, NonsenseEndsTheProcess) {
  for (const char* method : {"half", "garbage", "huge", "other_id"}) {
    ProcessRpc rpc(fake());
    auto reply = rpc.call(method, json::object(), kLong);
    ASSERT_FALSE(reply.ok()) << method;
    EXPECT_EQ(reply.error().code(), ErrorCode::kWorkerDied) << method << ": " << reply.error().to_string();
    EXPECT_EQ(rpc.pid(), -1) << method;
  }
}

TEST(Rpc, DeadlineKillsTheWholeGroup) {
  ProcessRpc rpc(fake());
  auto child = rpc.call("child", json::object(), kLong);
  ASSERT_TRUE(child.ok());
  const int grandchild = (*child)["pid"];
  const int pid = rpc.pid();
  EXPECT_TRUE(alive(grandchild));
  for (const char* method : {"hang", "half_hang"}) {
    auto reply = rpc.call(method, json::object(), milliseconds(300));
    ASSERT_FALSE(reply.ok());
    EXPECT_EQ(reply.error().code(), ErrorCode::kTimeout);
  }
  EXPECT_FALSE(alive(pid));
  // The grandchild is reaped by init, which may take a moment; a zombie still answers kill(0), so look at its state.
  bool ended = false;
  for (int i = 0; i < 200 && !ended; ++i) {
    if (!alive(grandchild)) ended = true;
    const auto path = "/proc/" + std::to_string(grandchild) + "/stat";
    if (FILE* file = ::fopen(path.c_str(), "r")) {
      char state = 0;
      if (::fscanf(file, "%*d %*s %c", &state) == 1 && state == 'Z') ended = true;
      ::fclose(file);
    }
    ::usleep(10000);
  }
  EXPECT_TRUE(ended);
}

TEST(Rpc, InterruptAbandonsTheCall) {
  install_interrupt_handlers();
  ProcessRpc rpc(fake());
  ASSERT_TRUE(rpc.start().ok());
  std::thread later([] {
    ::usleep(200000);
    raise_interrupt_for_test();
  });
  auto reply = rpc.call("hang", json::object(), kLong);
  later.join();
  clear_interrupt_for_test();
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code(), ErrorCode::kInterrupted);
  EXPECT_EQ(rpc.pid(), -1);
}

TEST(Rpc, MissingInterpreterIsTheEnvironment) {
  ProcessRpc rpc({{"/nowhere/python"}, {}, "worker"});
  EXPECT_EQ(rpc.start().error().code(), ErrorCode::kEnvironment);
}

TEST(Remote, EndBeforeHelloIsTheEnvironment) {
  RemoteWorker worker(std::make_unique<ProcessRpc>(fake("broken")));
  auto hello = worker.hello();
  ASSERT_FALSE(hello.ok());
  EXPECT_EQ(hello.error().code(), ErrorCode::kEnvironment);
  EXPECT_NE(hello.error().to_string().find("No module named 'torch'"), std::string::npos);
}

TEST(Remote, WrongRoleIsRefused) {
  RemoteWorker worker(std::make_unique<ProcessRpc>(fake("judge")));
  EXPECT_EQ(worker.hello().error().code(), ErrorCode::kEnvironment);
}

TEST(Remote, RestartLoadsTheModelAgain) {
  RemoteProcess process(std::make_unique<ProcessRpc>(fake()), "worker", {});
  ModelSpec spec;
  spec.path = "model.py";
  auto loaded = process.load_model(spec);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  EXPECT_EQ(loaded->parameters, 7);
  EXPECT_EQ(process.call("die", json::object(), std::chrono::seconds(20)).error().code(), ErrorCode::kWorkerDied);
  auto model = process.call("model", json::object(), std::chrono::seconds(20));
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)["model"], "model.py");
  EXPECT_EQ(process.restarts(), 1);
}

TEST(Remote, HandlesOutliveARestart) {
  auto owned = std::make_unique<ProcessRpc>(fake());
  ProcessRpc* rpc = owned.get();
  RemoteWorker worker(std::move(owned));
  ModelSpec spec;
  spec.path = "model.py";
  ASSERT_TRUE(worker.load_model(spec).ok());
  auto stitched = worker.stitch("default", nullptr);
  ASSERT_TRUE(stitched.ok()) << stitched.error().to_string();
  auto before = worker.run_model(stitched->handle, 0, 1);
  ASSERT_TRUE(before.ok());
  ASSERT_FALSE(rpc->call("die", json::object(), kLong).ok());
  auto after = worker.run_model(stitched->handle, 0, 1);
  ASSERT_TRUE(after.ok()) << after.error().to_string();
  EXPECT_NE(before->outputs, after->outputs);  // made again, under the new process's name
}

TEST(Remote, CompileErrorsBelongToTheirCandidate) {
  RemoteWorker worker(std::make_unique<ProcessRpc>(fake()));
  auto outcomes = worker.compile({json::object()});
  ASSERT_TRUE(outcomes.ok()) << outcomes.error().to_string();
  ASSERT_TRUE(outcomes->front().error.has_value());
  EXPECT_EQ(outcomes->front().error->code(), ErrorCode::kCandidate);
  // A reply of the wrong length is our own fault, never a pass.
  EXPECT_EQ(worker.compile({json::object(), json::object()}).error().code(), ErrorCode::kInternal);
}

}  // namespace
}  // namespace kernelopt
