// ProductPlan: the choices of one challenge to a matrix product (product.h). A value.
#pragma once

namespace kernelopt {

// X(enumerator, name)
#define KERNELOPT_PART_FORMATS(X)                                                                     \
  X(kFp16x3, "fp16x3") /* two fp16 parts, the second scaled by 2^11; three products; needs a guard */ \
  X(kBf16x6, "bf16x6") /* three bf16 parts: fp32's 24 bits; six products */

enum class PartFormat {
#define KO_X(name, text) name,
  KERNELOPT_PART_FORMATS(KO_X)
#undef KO_X
};
const char* part_format_name(PartFormat format);

struct ProductPlan {
  PartFormat format = PartFormat::kFp16x3;
  int block_m = 128, block_n = 128, block_k = 64;  // of one program and one step; block_m and block_n at least 64
  int warps = 8, stages = 3;
  int group_rows = 8;  // block rows that neighbouring programs share, for the cache
  // Operands are split where they are used, in registers: nothing is written but the result, and everything is one kernel.
  bool inside = false;
  int split_k = 1;     // programs that share a block along k, with `inside`; more than one needs a second kernel that adds up
};

}  // namespace kernelopt
