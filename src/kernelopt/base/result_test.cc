#include "kernelopt/base/result.h"

#include <gtest/gtest.h>

#include "kernelopt/base/digest.h"

namespace kernelopt {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error(ErrorCode::kBadInput, "odd");
  return value / 2;
}

Result<int> quarter(int value) {
  KO_TRY(const int once, half(value));
  return half(once);
}

TEST(ResultTest, TryPassesValuesAndErrorsOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message(), "odd");
}

TEST(ErrorTest, ContextsReadOutermostFirst) {
  const Error error = Error(ErrorCode::kIo, "disk full").with_context("journal").with_context("run");
  EXPECT_EQ(error.to_string(), "run: journal: disk full");
}

TEST(DigestTest, KnownVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(CheckDeathTest, AbortsOnOurOwnBugs) { EXPECT_DEATH(half(3).value(), "internal error"); }

}  // namespace
}  // namespace kernelopt
