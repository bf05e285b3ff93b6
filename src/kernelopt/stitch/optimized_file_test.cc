#include "kernelopt/stitch/optimized_file.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <unistd.h>

#include <gtest/gtest.h>

namespace kernelopt {
namespace {

using nlohmann::json;

Candidate candidate(const std::string& group) {
  CandidateParts parts;
  parts.language = "cpp";
  parts.group = group;
  parts.kernels.push_back({"kernel0", "// é \"quoted\" \\ '''\n", {{"b0", DType::kFloat32, ParamRole::kOut}}});
  parts.launches.push_back({"kernel0", {"b0"}});
  return Candidate(std::move(parts));
}

SetContext context() { return {"2.13", {{"device", "cpu"}}, "default", {{"g1", {"s1", "s2"}}}}; }

// Whether Python can at least compile the text, and what it prints when it is run.
std::string run_python(const std::string& text) {
  // Tests run side by side, a process each.
  const std::string path = ::testing::TempDir() + "/kernelopt_generated_" + std::to_string(::getpid()) + ".py";
  std::ofstream(path) << text;
  std::string output;
  FILE* pipe = ::popen(("python3 " + path + " 2>&1").c_str(), "r");
  char buffer[256];
  while (pipe && std::fgets(buffer, sizeof buffer, pipe)) output += buffer;
  if (pipe) ::pclose(pipe);
  std::remove(path.c_str());
  return output;
}

TEST(OptimizedFile, KernelSetNamesItsGroups) {
  const auto one = candidate("g1");
  const auto document = trial_kernels(context(), {&one});
  EXPECT_EQ(document["format"], "kernelopt.kernels");
  EXPECT_EQ(document["torch"], "2.13");
  EXPECT_EQ(document["groups"][0]["steps"], json({"s1", "s2"}));
  EXPECT_EQ(document["groups"][0]["candidate"]["digest"], one.digest());
}

TEST(OptimizedFile, LiteralsSurvivePython) {
  const std::string nasty = "a\"b'\\n\n\t\x01 é 日本 '''\"\"\"";
  EXPECT_EQ(run_python("import sys; sys.stdout.buffer.write(" + python_literal(nasty) + ".encode())"), nasty);
}

TEST(OptimizedFile, StitchedFormHandsTheKernelsOver) {
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/model_of_test.py") << "class Model:\n    pass\n\ndef get_inputs():\n    return []\n";
  const auto one = candidate("g1");
  const std::string runtime =
      "\"\"\"doc\"\"\"\nfrom __future__ import annotations\n\ndef kernelopt_model(Model, kernels):\n"
      "    return type('ModelNew', (Model,), {'kernels': kernels})\n";
  const auto text = optimized_source({"model_of_test.py", "", ""}, runtime, trial_kernels(context(), {&one}), "why\nnot");
  EXPECT_EQ(run_python(text + "\nprint(ModelNew.__mro__[1].__name__, ModelNew.kernels['groups'][0]['digest'], get_inputs())\n"),
            "Model g1 []\n");
}

TEST(OptimizedFile, PlainFormsNameWhatRuns) {
  const ModelOrigin origin{"model.py", "", ""};
  const auto eager = plain_source(origin, "eager", "eager", "the compiler is wrong");
  EXPECT_NE(eager.find("\"state\": \"eager\""), std::string::npos);
  EXPECT_EQ(eager.find("torch.compile("), std::string::npos);
  EXPECT_NE(plain_source(origin, "default", "matched", "x").find("mode=None"), std::string::npos);
  EXPECT_NE(plain_source(origin, "max-autotune", "matched", "x").find("mode=\"max-autotune\""), std::string::npos);
}

}  // namespace
}  // namespace kernelopt
