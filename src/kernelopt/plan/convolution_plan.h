// ConvolutionPlan: the choices of one challenge to a convolution (convolution.h). A value.
#pragma once

namespace kernelopt {

struct ConvolutionPlan {
  int block_m = 128, block_n = 128, block_k = 64;  // pixels, channels out, channels in of one step
  int warps = 8, stages = 3;
};

}  // namespace kernelopt
