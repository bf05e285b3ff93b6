// Every tolerance and margin of the gates, once. DESIGN.md sections 4 and 6 fix the values; tolerances_test.cc pins them.
// There is no option that changes one of them.
#pragma once

#include <chrono>
#include <cstdint>

namespace kernelopt::tolerance {

// rtol = atol of allclose.
inline constexpr double kGroup = 1e-3;  // gate 2
inline constexpr double kModel = 1e-4;  // gate 3
inline constexpr double kHalf = 1e-2;   // gates 2 and 3, float16 and bfloat16 outputs
// atol is the tolerance times min(1, RMS of the float64 reference), and at least this many times eager's own largest
// float64 error.
inline constexpr double kErrorFactor = 4;

// Bounds of rho = d_opt / d_ref.
inline constexpr double kRhoChallenge = 1.5;  // `strict` and `accurate`: vendor call replaced or number format changed
inline constexpr double kRhoRewrite = 4;      // `strict` and `accurate`: generated kernels rewritten in the same formats
inline constexpr double kRhoPaper = 10;       // `paper`: everything
inline constexpr double kMinReferenceDistance = 1e-8;  // d_ref is at least this

// The compiler's own program may be within allclose and have lost digits that eager keeps (a variance around a large mean):
// a float32 output this many times as far from float64 as eager's, and at least this far.
inline constexpr double kRhoLost = 64;
inline constexpr double kLostDistance = 1e-6;

inline constexpr int kMinSeeds = 3;  // fresh ones
inline constexpr int kMinRuns = 2;   // of one input: "the same result twice"

// Group synthesis starts from a kernel that matches eager this well.
inline constexpr double kStart = 1e-4;
inline constexpr int kStartSeeds = 2;

inline constexpr double kMargin = 1.03;  // gate 4: tau(candidate) <= kMargin * tau(baseline); a win is at least this speed-up
inline constexpr std::chrono::milliseconds kWarmup{25};
inline constexpr std::chrono::milliseconds kRepetition{100};

// Gate 1 on a GPU, bytes of local memory a thread (spilled registers, local arrays); the other limits are the device's
// (target/gpu_limits.h). ptxas spills where a thread has all the registers that its program's size leaves it, 64 or more, so that at most
// 1024 threads are resident: 256 bytes of each fill 256 KiB, the L1 of sm_90, and what is beyond goes to L2 at every use. Below stay the
// 32 bytes of sin and cos for large arguments, and 88 of a product that splits its operands inside.
inline constexpr int64_t kMostStackBytes = 256;

// Ours, not DESIGN's. The range of five samples covers their median with 94 %: fewer support no interval.
inline constexpr int kMinPairs = 5;
inline constexpr double kAaBias = 0.01;
// How often something that looks like infrastructure may fail before it is the candidate's fault.
inline constexpr int kMaxAttempts = 2;

}  // namespace kernelopt::tolerance
