// Planted kernels: each damages a right kernel in one way; worker, judge and gates run for real and must reject it with
// its reason. Needs a Python with torch (KERNELOPT_PYTHON); without one the tests are skipped, visibly.
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

#include "kernelopt/fusion/group.h"
#include "kernelopt/gates/gates.h"
#include "kernelopt/gates/tolerances.h"
#include "kernelopt/worker/remote.h"

namespace kernelopt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kElements = 61 * 1003;

// The processes, the captured program and its only group; made once, since importing torch takes seconds.
class Stage {
 public:
  static Stage& get() {
    static Stage stage;
    return stage;
  }

  // Empty: ready. Otherwise why not.
  std::string problem;
  std::unique_ptr<RemoteWorker> worker;
  std::unique_ptr<RemoteJudge> judge;
  Program program;
  Group group;
  GroupDescription description;
  GroupRef reference;

  std::string canonical(const std::string& real) const {
    for (size_t i = 0; i < description.names.size(); ++i)
      if (description.names[i] == real) return "b" + std::to_string(i);
    return "";
  }

 private:
  Stage() {
    if (std::getenv("KERNELOPT_PYTHON") == nullptr) return;
    folder_ = fs::temp_directory_path() / ("kernelopt-planted-" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "exchange");
    if (Status status = prepare(); !status.ok()) problem = status.error().to_string();
  }
  ~Stage() {
    worker.reset();
    judge.reset();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::unique_ptr<Rpc> process(const std::string& role) const {
    ProcessSpec spec{{std::getenv("KERNELOPT_PYTHON"), "-m", "kernelopt." + role},
                     {{"KERNELOPT_EXCHANGE", (folder_ / "exchange").string()},
                      {"PYTHONPATH", KERNELOPT_SOURCE_DIR "/python"}},
                     role};
    return std::make_unique<ProcessRpc>(spec);
  }

  Status prepare() {
    worker = std::make_unique<RemoteWorker>(process("worker"));
    judge = std::make_unique<RemoteJudge>(process("judge"));
    const ModelSpec model{.path = KERNELOPT_SOURCE_DIR "/tests/integration/planted_model.py"};
    KO_RETURN_IF_ERROR(worker->load_model(model));
    KO_RETURN_IF_ERROR(judge->load_model(model));
    KO_TRY(Capture capture, worker->capture("default", (folder_ / "capture").string()));
    KO_TRY(program, read_program_file(capture.programs.at(0)));
    Decomposition parts = decompose(program);
    if (parts.groups.size() != 1) return Error(ErrorCode::kInternal, "expected one group");
    group = parts.groups[0];
    std::vector<std::string> steps;
    for (int step : group.steps) steps.push_back(program.steps[step].name);
    KO_TRY(std::vector<GroupDescription> described, worker->describe_groups(program.graph, {steps}));
    description = described.at(0);
    reference = {program.graph, capture.programs[0], steps, description.names};
    return ok_status();
  }

  fs::path folder_;
};

class PlantedKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("KERNELOPT_PYTHON") == nullptr) GTEST_SKIP() << "KERNELOPT_PYTHON names no Python with torch";
    ASSERT_EQ(stage().problem, "");
    ASSERT_EQ(stage().group.inputs.size(), 1u);
    ASSERT_EQ(stage().group.outputs.size(), 1u);
  }
  static Stage& stage() { return Stage::get(); }

  // A candidate whose kernel has this body; x, y and n are the input, the output and the number of elements.
  static Subject subject(const std::string& body, const std::string& before = "") {
    const std::string x = stage().canonical(stage().group.inputs[0]), y = stage().canonical(stage().group.outputs[0]);
    const std::string source = "#include <cmath>\n#include <cstdint>\n" + before +
                               "\nextern \"C\" void kernel(const float* x, float* y) {\n  const int64_t n = " +
                               std::to_string(kElements) + ";\n" + body + "\n}\n";
    CandidateParts parts;
    parts.language = "cpp";
    parts.group = stage().description.digest;
    parts.kernels = {{"kernel", source, {{x, DType::kFloat32, ParamRole::kIn}, {y, DType::kFloat32, ParamRole::kOut}}}};
    parts.launches = {{"kernel", {x, y}}};
    parts.threads = 1;
    parts.plan = json::object();
    return {std::make_shared<const Candidate>(std::move(parts)), "test device"};
  }

  // Through gates 1 and 2: "passed", or the number of the gate and the reason.
  static std::string verdict(const Subject& subject) {
    auto compiled = stage().worker->compile({subject.candidate->to_json()});
    if (!compiled.ok()) return compiled.error().to_string();
    Observed<CompileReport> report{read_compile_report(compiled->at(0).entry)};
    auto first = Gate1::decide(subject, report);
    if (first.rejected()) return "1: " + std::string(reject_reason_name(first.rejected()->reason));
    if (!first.passed()) return "fault: " + first.faulted()->message;

    GroupObservation observation{subject.candidate->digest(), {}, {}};
    for (uint64_t seed = 1; seed <= tolerance::kMinSeeds; ++seed)
      observation.runs.push_back({observe(subject, seed)});
    auto second = Gate2::decide(std::move(first).take(), observation);
    if (second.rejected()) return "2: " + std::string(reject_reason_name(second.rejected()->reason));
    if (!second.passed()) return "fault: " + second.faulted()->message;
    return "passed";
  }

  static Result<GroupRun> observe(const Subject& subject, uint64_t seed) {
    Stage& s = stage();
    KO_TRY(json inputs, s.judge->group_inputs(s.reference, seed, "ordinary"));
    const GroupRequest request{s.reference, subject.candidate->to_json(), inputs, seed};
    KO_TRY(GroupOutput output, s.worker->run_group(request));
    KO_TRY(json compared, s.judge->compare_group(s.reference, seed, "ordinary", output.outputs, tolerances_request()));
    return read_group_run(seed, "ordinary", request.runs, output.reply, compared);
  }
};

const char* kRight = "  for (int64_t i = 0; i < n; ++i) y[i] = std::tanh(x[i]) * 1.5f + 0.25f;";

TEST_F(PlantedKernels, RightKernelPasses) { EXPECT_EQ(verdict(subject(kRight)), "passed"); }

TEST_F(PlantedKernels, Zeros) {
  EXPECT_EQ(verdict(subject("  for (int64_t i = 0; i < n; ++i) y[i] = 0.0f;")), "2: out of tolerance");
}

TEST_F(PlantedKernels, OneWrongElement) {
  EXPECT_EQ(verdict(subject(std::string(kRight) + "\n  y[n / 2 + 1] += 0.01f;")), "2: out of tolerance");
}

TEST_F(PlantedKernels, OneNaN) {
  EXPECT_EQ(verdict(subject(std::string(kRight) + "\n  y[7] = std::sqrt(-1.0f - x[7] * x[7]);")),
            "2: NaN or infinity in other places");
}

TEST_F(PlantedKernels, UnwrittenTail) {
  EXPECT_EQ(verdict(subject("  for (int64_t i = 0; i < n - n % 8; ++i) y[i] = std::tanh(x[i]) * 1.5f + 0.25f;")),
            "2: output left unwritten");
}

TEST_F(PlantedKernels, WritesPastItsOutput) {
  EXPECT_EQ(verdict(subject("  for (int64_t i = 0; i < n + 8; ++i) y[i] = i < n ? std::tanh(x[i]) * 1.5f + 0.25f : 0.0f;")),
            "2: wrote outside its buffers");
}

TEST_F(PlantedKernels, NarrowedRounding) {
  // Eight significant bits, as bfloat16 has, by Veltkamp's splitting.
  EXPECT_EQ(verdict(subject("  for (int64_t i = 0; i < n; ++i) {\n"
                            "    const float v = std::tanh(x[i]) * 1.5f + 0.25f;\n"
                            "    const float c = v * 65537.0f;\n    y[i] = c - (c - v);\n  }")),
            "2: out of tolerance");
}

TEST_F(PlantedKernels, StaleInputKeptInTheLibrary) {
  EXPECT_EQ(verdict(subject("  if (calls++ == 0) for (int64_t i = 0; i < n; ++i) kept[i] = x[i];\n"
                            "  for (int64_t i = 0; i < n; ++i) y[i] = std::tanh(kept[i]) * 1.5f + 0.25f;",
                            "static int calls = 0;\nstatic float kept[" + std::to_string(kElements) + "];")),
            "1: source holds what a kernel may not hold");
}

TEST_F(PlantedKernels, ChangesItsInput) {
  EXPECT_EQ(verdict(subject("  float* w = const_cast<float*>(x);\n" + std::string(kRight) + "\n  w[3] = 0.0f;")),
            "2: changed an input");
}

TEST_F(PlantedKernels, Crashes) {
  const std::string seen = verdict(subject("  volatile float* p = y + (int64_t(1) << 44);\n  p[0] = 1.0f;\n" + std::string(kRight)));
  EXPECT_TRUE(seen == "2: ended its process" || seen.substr(0, 2) == "1:" || seen.substr(0, 6) == "fault:") << seen;
  EXPECT_EQ(verdict(subject(kRight)), "passed") << "a dead worker costs one candidate, not the run";
}

TEST_F(PlantedKernels, DoesNotCompile) {
  EXPECT_EQ(verdict(subject("  y[0] = x[0]")).substr(0, 2), "1:");
}

}  // namespace
}  // namespace kernelopt
