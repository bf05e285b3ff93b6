// Element types of buffers and values.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernelopt/base/result.h"

namespace kernelopt {

// X(enumerator, spelling in JSON, bytes, category)
#define KERNELOPT_DTYPES(X)            \
  X(kBool, "bool", 1, kBoolean)        \
  X(kUInt8, "uint8", 1, kInteger)      \
  X(kInt8, "int8", 1, kInteger)        \
  X(kInt16, "int16", 2, kInteger)      \
  X(kInt32, "int32", 4, kInteger)      \
  X(kInt64, "int64", 8, kInteger)      \
  X(kFloat16, "float16", 2, kFloating) \
  X(kBFloat16, "bfloat16", 2, kFloating) \
  X(kFloat32, "float32", 4, kFloating) \
  X(kFloat64, "float64", 8, kFloating)

enum class DTypeCategory { kBoolean, kInteger, kFloating };
enum class DType {
#define KO_X(name, text, bytes, category) name,
  KERNELOPT_DTYPES(KO_X)
#undef KO_X
};

const char* dtype_name(DType type);
Result<DType> parse_dtype(std::string_view text);
int64_t dtype_bytes(DType type);
DTypeCategory dtype_category(DType type);
inline bool is_floating(DType type) { return dtype_category(type) == DTypeCategory::kFloating; }
inline bool is_integer(DType type) { return dtype_category(type) == DTypeCategory::kInteger; }

// The type in which Inductor computes: float16 and bfloat16 in float32, every other type in itself.
DType compute_dtype(DType type);
// Result type of arithmetic on two tensor values (torch.promote_types, after compute_dtype).
DType promote(DType a, DType b);

}  // namespace kernelopt
