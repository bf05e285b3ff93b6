// Sums and variances of thousands of terms, also around a large mean, must be about as exact as eager's: the distance to
// float64 is at most four times that of the rounded float64 result, which is what eager's cascades and Welford in double give.
#include <gtest/gtest.h>

#include "kernelopt/codegen/testing/compiled_kernels.h"
#include "kernelopt/codegen/testing/sample_programs.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt {
namespace {

using namespace testing;

constexpr double kRounded = 2.9e-8;  // RMS of a relative rounding error in float32, mantissas spread evenly


// x[outer][middle][inner]; the middle loop is kept where `keep_middle`, else the inner one.
ProgramBuilder moments(int64_t outer, int64_t middle, int64_t inner, bool keep_middle) {
  ProgramBuilder p("moments" + std::to_string(outer) + "x" + std::to_string(middle) + "x" + std::to_string(inner));
  const int64_t results = keep_middle ? middle : inner;
  p.input("x", {outer, middle, inner}).output("sum", {results}).output("squares", {results}).output("mean", {results}).output("m2", {results});
  const json at = add({times(middle * inner, "o"), times(inner, "m"), "i"});
  const std::string kept = keep_middle ? "m" : "i";
  const auto body = [&](const std::string& name) {
    BodyBuilder b(name);
    b.iter(kept, results).reduce("o", outer);
    if (keep_middle) b.reduce("i", inner);
    else b.reduce("m", middle);
    return b;
  };
  BodyBuilder s = body("op0");
  s.store_reduction("sum", kept, s.reduction("sum", {s.load("x", at)}));
  BodyBuilder q = body("op1");
  q.store_reduction("squares", kept, q.reduction("sum", {q.call("square", {q.load("x", at)})}));
  BodyBuilder w = body("op2");
  const int both = w.reduction("welford_reduce", {w.load("x", at)});
  w.store_reduction("mean", kept, w.get(both, 0));
  w.store_reduction("m2", kept, w.get(both, 1));
  return p.step(s).step(q).step(w);
}

double distance(const std::vector<Number>& values, const std::vector<double>& exact) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += (values[i].real - exact[i]) * (values[i].real - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(difference / norm);
}

std::map<std::string, std::vector<double>> exact_moments(const std::vector<Number>& x, int64_t outer, int64_t middle, int64_t inner, bool keep_middle) {
  const size_t results = static_cast<size_t>(keep_middle ? middle : inner);
  std::map<std::string, std::vector<double>> r;
  for (const char* name : {"sum", "squares", "mean", "m2"}) r[name].assign(results, 0);
  for (const bool second : {false, true})
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t m = 0; m < middle; ++m)
        for (int64_t i = 0; i < inner; ++i) {
          const double v = x[static_cast<size_t>((o * middle + m) * inner + i)].real;
          const size_t k = static_cast<size_t>(keep_middle ? m : i);
          const double count = static_cast<double>(outer * middle * inner) / static_cast<double>(results);
          if (second) {
            r["m2"][k] += (v - r["mean"][k]) * (v - r["mean"][k]);
            continue;
          }
          r["sum"][k] += v;
          r["squares"][k] += v * v;
          r["mean"][k] += v / count;
        }
  return r;
}

struct Shape {
  int64_t outer, middle, inner;
  bool keep_middle;
  double mean, spread;
  bool outlier;
};

void run(int bits, const std::vector<Shape>& shapes, size_t most) {
  Target target;
  target.vector_bits = bits;
  target.threads = 2;
  KernelLibrary library(bits / 32);
  std::vector<Program> programs;
  std::vector<Group> groups;
  struct Entry {
    size_t shape, kernel;
    std::string label;
  };
  std::vector<Entry> entries;
  for (const auto& shape : shapes) {
    const ProgramBuilder builder = moments(shape.outer, shape.middle, shape.inner, shape.keep_middle);
    auto program = builder.program();
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    programs.push_back(std::move(*program));
    groups.push_back(builder.group());
    const auto space = PlanSpace::create(programs.back(), groups.back(), target);
    ASSERT_TRUE(space.ok()) << space.error().to_string();
    auto plans = space->starts();
    const size_t starts = plans.size();
    for (auto& move : space->moves(plans[0].plan))
      if (move.kind == TransformKind::kSplitReduction || move.kind == TransformKind::kVectorAxis || move.kind == TransformKind::kUnroll) plans.push_back(std::move(move));
    for (size_t i = 0; i < plans.size() && i < starts + most; ++i) {
      if (plans[i].plan.math == MathVariant::kPrecise) continue;  // differs in functions that are not used here
      plans[i].plan.threads = 2;
      const auto candidate = print_cpp(programs.back(), groups.back(), plans[i].plan, target);
      ASSERT_TRUE(candidate.ok()) << builder.name() << ", " << plans[i].description << ": " << candidate.error().to_string();
      entries.push_back({programs.size() - 1, library.add(*candidate), builder.name() + ", " + plans[i].description});
    }
  }
  ASSERT_GE(entries.size(), shapes.size() * 2);
  ASSERT_EQ(library.build(), "");
  for (const auto& entry : entries) {
    const Shape& shape = shapes[entry.shape];
    const Program& program = programs[entry.shape];
    std::mt19937 random(5);
    std::normal_distribution<double> normal(shape.mean, shape.spread);
    Memory memory;
    for (const auto& [name, buffer] : program.buffers) {
      memory[name].resize(static_cast<size_t>(buffer.storage_elements()));
      if (name == "x")
        for (auto& n : memory[name]) n.real = static_cast<float>(normal(random));
    }
    if (shape.outlier) memory["x"][0].real = 0;
    const auto exact = exact_moments(memory["x"], shape.outer, shape.middle, shape.inner, shape.keep_middle);
    ASSERT_EQ(run_kernel(library.kernel(entry.kernel), program, groups[entry.shape], memory), "") << entry.label;
    for (const auto& [name, values] : exact) {
      if (name == "sum" && shape.mean == 0) continue;  // cancels to what is left of the terms' own rounding
      if (name == "mean" && shape.mean == 0) {
        // Relative to the mean's own size, spread / sqrt(n).
        EXPECT_LE(distance(memory.at(name), values), 2e-7) << entry.label << ", mean around 0";
        continue;
      }
      // The first value is every lane's first reference point; far from the rest it costs the digits of a few terms.
      const double bound = shape.outlier && name == "m2" ? 32 : 4;
      EXPECT_LE(distance(memory.at(name), values), bound * kRounded) << entry.label << ", " << name << " around " << shape.mean;
    }
  }
}

const std::vector<Shape> kShapes = {
    {1, 5000, 35, false, 0, 1, false},      // long columns
    {3, 700, 19, false, 1e4, 1, true},
    {1, 64, 50, false, 1e4, 1, false},      // columns of no more than a block or two
    {1, 5, 9001, true, 1e4, 1, true},       // long rows
    {1, 3, 3000, true, 0, 1, false},
    {3, 5, 37 * 41, true, 5e3, 0.5, false}, // over two loops
    {6, 5, 23, true, 5e3, 0.5, false},
    {1, 1, 40960, true, 1e4, 1, false},     // one result: split over threads
};

TEST(LongSums, SixteenLanes) { run(512, kShapes, 6); }
TEST(LongSums, EightLanes) { run(256, {kShapes[1], kShapes[5]}, 1); }
TEST(LongSums, FourLanesWithoutIntrinsics) { run(128, {kShapes[1], kShapes[5]}, 1); }

}  // namespace
}  // namespace kernelopt
