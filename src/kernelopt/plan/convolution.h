// Convolutions among the library calls, and how they may be challenged (DESIGN.md section 4).
//
// The library computes an fp32 convolution in TF32, which has fp16's ten bits of mantissa and a wider range. A challenge
// narrows x and w to fp16 in a pass of their own (x pixel by pixel with its channels side by side, from whatever order it
// has) and multiplies on the matrix units with fp32 sums, in a kernel of ours or by the library's call for fp16; a pointwise step that alone reads the result is computed before
// anything is stored, and a mere copy that alone makes x is not made. Blocks with rows whose values do not fit fp16 are computed again in fp32.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernelopt/fusion/group.h"
#include "kernelopt/plan/convolution_plan.h"
#include "kernelopt/plan/rewrite.h"

namespace kernelopt {

struct Convolution {
  bool transposed = false;  // place of x = (place of the result + padding - window * dilation) / stride, where that leaves no rest
  int64_t batch = 1, channels = 1, outputs = 1;    // images, channels in and out
  std::vector<int64_t> size, out_size, window;     // spatial, outermost first
  std::vector<int64_t> stride, padding, dilation;
  StridedOperand x, w, out;                        // x is what the copy reads where one is left out; w (channel out, channel in, window…)
  // The step that reads the result, with its loops in terms of two variables: kPixel (image and place, outermost first) and
  // kChannel. Nothing: the result itself is stored.
  std::optional<FlatBody> late;
  int64_t pixels() const;                          // rows of the result: images times places
  Expr out_place() const;                          // of the result in its buffer, in the same two variables
  static constexpr const char* kPixel = "pixel";
  static constexpr const char* kChannel = "channel";
};

// Steps of `program` that a challenge to the convolution `step` would take together, ascending; empty where the step is none
// that can be challenged. A depthwise one is among them: its group is planned as generated steps are.
std::vector<int> convolution_steps(const Program& program, int step);

// What a group made by convolution_steps around an ungrouped convolution computes; nothing for any other group.
std::optional<Convolution> group_convolution(const Program& program, const Group& group);

std::vector<ConvolutionPlan> convolution_starts(const Convolution& convolution);
std::vector<ConvolutionPlan> convolution_moves(const Convolution& convolution, const ConvolutionPlan& plan);

// Multiplications and additions at half precision.
double convolution_operations(const Convolution& convolution);

}  // namespace kernelopt
