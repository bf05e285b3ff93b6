#include "kernelopt/analyst/kernel_metrics.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace kernelopt {
namespace {

std::string sample(const std::string& name) {
  std::ifstream file(std::string(KERNELOPT_SOURCE_DIR) + "/src/kernelopt/analyst/testdata/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

KernelMetrics shares(double compute, double memory) {
  KernelMetrics metrics;
  metrics.compute_use = compute;
  metrics.memory_use = memory;
  return metrics;
}

TEST(KernelMetricsTest, ReadsTheReportOfSeveralKernels) {
  const auto parsed = parse_ncu(sample("known_kernels.csv"));
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  ASSERT_EQ(parsed->size(), 3u);

  const KernelMetrics& copy = (*parsed)[0];
  EXPECT_EQ(copy.kernel, "copy_kernel");
  EXPECT_NEAR(copy.duration->count(), 252.35e-6, 1e-12);
  EXPECT_NEAR(*copy.compute_use, 0.1132, 1e-9);
  EXPECT_NEAR(*copy.memory_use, 0.9187, 1e-9);
  EXPECT_NEAR(*copy.dram_use, 0.9187, 1e-9);
  EXPECT_NEAR(*copy.l2_use, 0.5740, 1e-9);
  EXPECT_NEAR(*copy.l1_use, 0.2461, 1e-9);
  EXPECT_EQ(copy.threads, 128);
  EXPECT_EQ(copy.blocks, 32768);  // "32,768"
  EXPECT_EQ(copy.registers, 40);
  EXPECT_EQ(copy.shared_bytes, 0);  // without what the driver takes
  EXPECT_NEAR(*copy.waves, 15.52, 1e-9);
  EXPECT_NEAR(*copy.theoretical_occupancy, 0.75, 1e-9);
  EXPECT_NEAR(*copy.achieved_occupancy, 0.7012, 1e-9);
  EXPECT_EQ(copy.occupancy_limit, OccupancyLimit::kRegisters);
  EXPECT_NEAR(*copy.dram_bytes, 1058.79e6, 1);
  EXPECT_NEAR(*copy.l2_hit_rate, 0.5012, 1e-9);
  EXPECT_NEAR(*copy.sectors_per_load, 16, 1e-9);
  EXPECT_NEAR(*copy.stalled_on_memory, 28.71, 1e-9);
  EXPECT_EQ(copy.stalled_on_barrier, 0);

  const KernelMetrics& product = (*parsed)[1];
  EXPECT_NEAR(product.duration->count(), 1712.48e-6, 1e-12);  // "1,712.48"
  EXPECT_EQ(product.shared_bytes, 147460);                    // "147.46" Kbyte/block
  EXPECT_FALSE(product.sectors_per_load);                     // n/a
  EXPECT_EQ(product.occupancy_limit, OccupancyLimit::kRegisters);  // shared memory allows no more either
  EXPECT_FALSE((*parsed)[2].l1_use);                          // (!) nan
}

TEST(KernelMetricsTest, KnownKernelsGetTheirDiagnoses) {
  const auto parsed = parse_ncu(sample("known_kernels.csv"));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(diagnose((*parsed)[0]), Diagnosis::kMemoryBound);
  EXPECT_EQ(diagnose((*parsed)[1]), Diagnosis::kComputeBound);
  EXPECT_EQ(diagnose((*parsed)[2]), Diagnosis::kUnderutilized);
}

TEST(KernelMetricsTest, ReadsOneLineAMetricAsWell) {
  const auto parsed = parse_ncu(sample("one_line_a_metric.csv"));
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  ASSERT_EQ(parsed->size(), 2u);
  EXPECT_EQ((*parsed)[0].kernel, "void copy<float, 4>(const float *, float *, int)");
  EXPECT_NEAR((*parsed)[0].duration->count(), 12.48e-6, 1e-12);
  EXPECT_NEAR((*parsed)[1].duration->count(), 2.5e-3, 1e-12);
  EXPECT_EQ(diagnose((*parsed)[0]), Diagnosis::kMemoryBound);
  EXPECT_EQ(diagnose((*parsed)[1]), Diagnosis::kComputeBound);
}

TEST(KernelMetricsTest, SaysWhyNothingWasCounted) {
  const auto denied = parse_ncu(sample("not_permitted.csv"));
  ASSERT_FALSE(denied.ok());
  EXPECT_EQ(denied.error().code(), ErrorCode::kEnvironment);
  EXPECT_EQ(denied.error().message(), "this user may not read the device's performance counters (ERR_NVGPUCTRPERM)");
  const auto none = parse_ncu(sample("no_kernels.csv"));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message(), "ncu profiled no kernel");
  const auto metric = parse_ncu("==PROF== Connected\n==ERROR== Failed to find metric nonsense__metric.sum\n");
  ASSERT_FALSE(metric.ok());
  EXPECT_EQ(metric.error().message(), "Failed to find metric nonsense__metric.sum");
}

TEST(KernelMetricsTest, GarbageIsNoReport) {
  for (const std::string text : {"", "\n\n", "hello\n\"a\",\"b\"\n", "\"ID\",\"x\"\n\"0\",\"1\"\n", "\"ID\",\"Kernel Name\",\"unterminated"}) {
    const auto parsed = parse_ncu(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kInternal) << text;
  }
  // Cut off in the middle of the second launch: what is whole is kept.
  auto text = sample("known_kernels.csv");
  const auto cut = parse_ncu(text.substr(0, text.find("product_kernel\",\"1\"") + 60));
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->size(), 1u);
}

TEST(KernelMetricsTest, LaunchesWithoutCountersAreARefusal) {
  const auto parsed = parse_ncu(
      "\"ID\",\"Kernel Name\",\"launch__registers_per_thread\",\"sm__throughput.avg.pct_of_peak_sustained_elapsed\"\n"
      "\"\",\"\",\"register/thread\",\"%\"\n\"0\",\"k\",\"32\",\"n/a\"\n");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().message(), "ncu reports kernels without throughputs");
}

TEST(KernelMetricsTest, DiagnosesAtEightyPercent) {
  EXPECT_EQ(diagnose(shares(0.8, 0.8)), Diagnosis::kNearOptimal);
  EXPECT_EQ(diagnose(shares(0.79, 0.8)), Diagnosis::kMemoryBound);
  EXPECT_EQ(diagnose(shares(0.8, 0.79)), Diagnosis::kComputeBound);
  EXPECT_EQ(diagnose(shares(0.79, 0.79)), Diagnosis::kUnderutilized);
  EXPECT_EQ(diagnose(KernelMetrics{}), Diagnosis::kUnknown);
}

TEST(KernelMetricsTest, MarksPartTheCandidates) {
  std::vector<KernelMetrics> launches;
  for (const char* name : {"before", "kernelopt_mark", "a", "b", "kernelopt_mark(float *)", "kernelopt_mark", "c"}) {
    launches.emplace_back();
    launches.back().kernel = name;
  }
  const auto parts = between_marks(launches);
  ASSERT_EQ(parts.size(), 3u);
  ASSERT_EQ(parts[0].size(), 2u);
  EXPECT_EQ(parts[0][1].kernel, "b");
  EXPECT_TRUE(parts[1].empty());  // a candidate that failed
  ASSERT_EQ(parts[2].size(), 1u);
  EXPECT_EQ(parts[2][0].kernel, "c");
}

TEST(KernelMetricsTest, LaunchesAreWeightedByTime) {
  KernelMetrics longer = shares(0.2, 0.9), shorter = shares(0.6, 0.1);
  longer.kernel = "longer";
  longer.duration = Seconds(3e-6);
  longer.registers = 64;
  longer.dram_bytes = 100;
  shorter.duration = Seconds(1e-6);
  shorter.dram_bytes = 10;
  const auto both = combined({shorter, longer});
  EXPECT_EQ(both.kernel, "longer");
  EXPECT_EQ(both.registers, 64);
  EXPECT_NEAR(both.duration->count(), 4e-6, 1e-15);
  EXPECT_NEAR(*both.compute_use, 0.3, 1e-12);
  EXPECT_NEAR(*both.memory_use, 0.7, 1e-12);
  EXPECT_NEAR(*both.dram_bytes, 110, 1e-9);
  EXPECT_FALSE(both.l2_use);
  shorter.memory_use.reset();
  EXPECT_FALSE(combined({shorter, longer}).memory_use);
}

TEST(KernelMetricsTest, TheFloorDecidesWhatIsNearOptimal) {
  Roofline roofline;
  roofline.diagnosis = Diagnosis::kNearOptimal;
  EXPECT_EQ(diagnose(roofline, shares(0.1, 0.95)), Diagnosis::kNearOptimal);
  // Half of the traffic is wasted: the roofline sees a memory half used, the counters see that it is full.
  roofline.diagnosis = Diagnosis::kUnderutilized;
  EXPECT_EQ(diagnose(roofline, shares(0.1, 0.95)), Diagnosis::kMemoryBound);
  EXPECT_EQ(diagnose(roofline, KernelMetrics{}), Diagnosis::kUnderutilized);
}

TEST(KernelMetricsTest, JsonKeepsEveryNumberAndInventsNone) {
  const auto parsed = parse_ncu(sample("known_kernels.csv"));
  ASSERT_TRUE(parsed.ok());
  for (const auto& metrics : *parsed) {
    const auto document = metrics_to_json(metrics);
    EXPECT_EQ(metrics_to_json(metrics_of_json(document)), document);
  }
  const auto copy = metrics_to_json((*parsed)[0]);
  EXPECT_EQ(copy.at("occupancy_limit"), "registers");
  EXPECT_NEAR(copy.at("duration_seconds").get<double>(), 252.35e-6, 1e-12);
  EXPECT_EQ(copy.at("blocks"), 32768);
  EXPECT_EQ(copy.size(), 20u);  // all of them
  EXPECT_FALSE(metrics_to_json((*parsed)[1]).contains("sectors_per_load"));
  EXPECT_EQ(metrics_of_json(copy).occupancy_limit, OccupancyLimit::kRegisters);
  EXPECT_EQ(metrics_text((*parsed)[0]), "compute 11 %, memory 92 %, DRAM 92 %, L2 57 %, occupancy 70 %, 40 registers");
}

}  // namespace
}  // namespace kernelopt
