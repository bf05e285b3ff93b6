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

TEST(FloorTest, TheSlowerResourceDecides) {
  const Target target = read_target(hello()).value();
  EXPECT_DOUBLE_EQ(floor_seconds(2'000'000'000, 1e9, target).count(), 0.1);
  EXPECT_DOUBLE_EQ(floor_seconds(2'000, 5e11, target).count(), 1.0);
  EXPECT_DOUBLE_EQ(floor_seconds(8, 1, target).count(), 2e-6);
}

}  // namespace
}  // namespace kernelopt
