// ConvolutionPlan: the choices of one challenge to a convolution (convolution.h). A value.
#pragma once

namespace kernelopt {

struct ConvolutionPlan {
  // The library multiplies, in half precision; ours is what goes around it. The blocks are then those of the kernel behind it,
  // and block_k and stages mean nothing.
  bool library = false;
  int block_m = 128, block_n = 128, block_k = 64;  // pixels, channels out, channels in of one step
  int warps = 8, stages = 3;
};

}  // namespace kernelopt
