#include "kernelopt/target/target.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernelopt/target/floor.h"

namespace kernelopt {
namespace {

using nlohmann::json;

json hello() {
  return json::parse(R"({"protocol": 1, "role": "worker", "fingerprint": "cpu-x-2.13",
    "device": {"kind": "cpu", "name": "Some CPU", "isa": "avx512", "threads": 8, "vector_bits": 512, "l1_bytes": 49152,
               "l2_bytes": 2097152, "l3_bytes": 33554432, "copy_bytes_per_second": 2e10, "flops_per_second": 5e11,
               "launch_seconds": 2e-6}})");
}

TEST(TargetTest, ReadsEveryFact) {
  const auto target = read_target(hello());
  ASSERT_TRUE(target.ok()) << target.error().to_string();
  EXPECT_EQ(target->kind, DeviceKind::kCpu);
  EXPECT_EQ(target->name, "Some CPU");
  EXPECT_EQ(target->isa, "avx512");
  EXPECT_EQ(target->threads, 8);
  EXPECT_EQ(target->vector_lanes(4), 16);
  EXPECT_EQ(target->l3_bytes, 33554432);
  EXPECT_EQ(target->launch_seconds, 2e-6);
  EXPECT_EQ(target->fingerprint, "cpu-x-2.13");
}

TEST(TargetTest, MissingPeaksStayUnknown) {
  json document = hello();
  document["device"].erase("flops_per_second");
  document["device"]["copy_bytes_per_second"] = nullptr;
  const auto target = read_target(document);
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->flops_per_second, 0);
  EXPECT_EQ(floor_seconds(1 << 30, 1e9, *target), Seconds(2e-6));
}

TEST(TargetTest, RefusesWhatItCannotUse) {
  json document = hello();
  document["device"]["kind"] = "tpu";
  EXPECT_EQ(read_target(document).error().code(), ErrorCode::kUnsupported);
  document = hello();
  document["device"]["threads"] = 0;
  EXPECT_EQ(read_target(document).error().code(), ErrorCode::kInternal);
  document = hello();
  document["device"]["l1_bytes"] = "many";
  EXPECT_EQ(read_target(document).error().code(), ErrorCode::kInternal);
  document = hello();
  document.erase("fingerprint");
  EXPECT_EQ(read_target(document).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(read_target(json::array()).error().code(), ErrorCode::kInternal);
}

TEST(TargetTest, AGpuHasTheLimitsOfItsArchitecture) {
  EXPECT_FALSE(read_target(hello())->gpu);
  json document = hello();
  document["device"] = {{"kind", "cuda"}, {"isa", "sm_80"}, {"name", "some GPU"}};
  const auto known = read_target(document);
  ASSERT_TRUE(known.ok());
  ASSERT_TRUE(known->gpu);
  EXPECT_EQ(known->threads, 108);
  EXPECT_EQ(known->gpu->multiprocessors, 108);
  EXPECT_EQ(known->gpu->shared_per_program, 163 << 10);
  EXPECT_EQ(known->gpu->threads_per_multiprocessor, 2048);
  // What the device says outweighs the table.
  document["device"].update({{"threads", 66}, {"shared_per_multiprocessor", 100 << 10}, {"shared_per_program", 99 << 10},
                             {"threads_per_multiprocessor", 1536}, {"registers_per_multiprocessor", 32768}});
  const auto told = read_target(document);
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->gpu->multiprocessors, 66);
  EXPECT_EQ(told->gpu->shared_per_multiprocessor, 102400);
  EXPECT_EQ(told->gpu->shared_per_program, 101376);
  EXPECT_EQ(told->gpu->threads_per_multiprocessor, 1536);
  EXPECT_EQ(told->gpu->registers_per_multiprocessor, 32768);
  document["device"]["shared_per_program"] = 0;
  EXPECT_EQ(read_target(document).error().code(), ErrorCode::kInternal);
}

TEST(GpuLimits, OfKnownAndUnknownArchitectures) {
  EXPECT_EQ(gpu_limits("sm_90").multiprocessors, 132);
  EXPECT_EQ(gpu_limits("sm_90").shared_per_program, 232448);
  EXPECT_EQ(gpu_limits("sm_100").multiprocessors, 148);
  EXPECT_EQ(gpu_limits("sm_100").shared_per_multiprocessor, 233472);
  EXPECT_EQ(gpu_limits("sm_80").shared_per_program, 166912);
  const GpuLimits unknown = gpu_limits("sm_999");
  EXPECT_EQ(unknown.shared_per_program, 101376);
  EXPECT_EQ(unknown.threads_per_multiprocessor, 1536);
  EXPECT_EQ(unknown.programs_per_multiprocessor, 16);
}

TEST(GpuLimits, ResidentPrograms) {
  const auto expect = [](const char* isa, int64_t registers, int64_t shared, int64_t threads, int64_t programs, const std::string& by) {
    const Residency resident = resident_programs(gpu_limits(isa), registers, shared, threads);
    EXPECT_EQ(resident.programs, programs) << isa << " " << registers << " " << shared << " " << threads;
    EXPECT_EQ(resident.bound_by, by) << isa << " " << registers << " " << shared << " " << threads;
  };
  expect("sm_90", 32, 0, 1024, 2, "threads");
  expect("sm_90", 32, 0, 32, 32, "programs");
  // 167 registers: 5376 a warp, three warps in each partition of 16384, twelve in all.
  expect("sm_90", 167, 0, 64, 6, "registers");
  expect("sm_90", 167, 0, 128, 3, "registers");
  // 255 are given as 256: two warps a partition.
  expect("sm_90", 255, 0, 256, 1, "registers");
  expect("sm_90", 255, 0, 64, 4, "registers");
  // 129 are given as 136 (4352 a warp): three warps a partition and not four, as with 128.
  expect("sm_90", 129, 0, 128, 3, "registers");
  expect("sm_90", 128, 0, 128, 4, "registers");
  expect("sm_90", 128, 0, 1024, 0, "registers");
  // 196608 bytes and the system's 1024 take more than half of 233472; 65536 three times; the opt-in maximum once.
  expect("sm_90", 169, 196608, 256, 1, "shared memory");
  expect("sm_90", 64, 65536, 128, 3, "shared memory");
  expect("sm_90", 64, 232448, 128, 1, "shared memory");
  expect("sm_80", 64, 65536, 128, 2, "shared memory");
  // 8 bytes and the system's 1024 are given as 1152: no bound beside 32 programs.
  expect("sm_80", 16, 8, 64, 32, "programs");
}

TEST(FloorTest, TheSlowerResourceDecides) {
  const Target target = read_target(hello()).value();
  EXPECT_DOUBLE_EQ(floor_seconds(2'000'000'000, 1e9, target).count(), 0.1);
  EXPECT_DOUBLE_EQ(floor_seconds(2'000, 5e11, target).count(), 1.0);
  EXPECT_DOUBLE_EQ(floor_seconds(8, 1, target).count(), 2e-6);
}

}  // namespace
}  // namespace kernelopt
