#include "kernelopt/ir/dtype.h"

#include <algorithm>
#include <string>

namespace kernelopt {

const char* dtype_name(DType type) {
  switch (type) {
#define KO_X(name, text, bytes, category) \
  case DType::name:                       \
    return text;
    KERNELOPT_DTYPES(KO_X)
#undef KO_X
  }
  check_failed(__FILE__, __LINE__, "DType", "value outside the enum");
}

Result<DType> parse_dtype(std::string_view text) {
#define KO_X(name, spelling, bytes, category) \
  if (text == spelling) return DType::name;
  KERNELOPT_DTYPES(KO_X)
#undef KO_X
  return Error(ErrorCode::kUnsupported, "data type " + std::string(text));
}

int64_t dtype_bytes(DType type) {
  switch (type) {
#define KO_X(name, text, bytes, category) \
  case DType::name:                       \
    return bytes;
    KERNELOPT_DTYPES(KO_X)
#undef KO_X
  }
  check_failed(__FILE__, __LINE__, "DType", "value outside the enum");
}

DTypeCategory dtype_category(DType type) {
  switch (type) {
#define KO_X(name, text, bytes, category) \
  case DType::name:                       \
    return DTypeCategory::category;
    KERNELOPT_DTYPES(KO_X)
#undef KO_X
  }
  check_failed(__FILE__, __LINE__, "DType", "value outside the enum");
}

DType compute_dtype(DType type) {
  return type == DType::kFloat16 || type == DType::kBFloat16 ? DType::kFloat32 : type;
}

DType promote(DType a, DType b) {
  a = compute_dtype(a);
  b = compute_dtype(b);
  if (a == b) return a;
  const DTypeCategory category_a = dtype_category(a), category_b = dtype_category(b);
  if (category_a != category_b) return category_a > category_b ? a : b;
  if (a == DType::kUInt8 || b == DType::kUInt8) {
    const DType other = a == DType::kUInt8 ? b : a;
    return other == DType::kInt8 ? DType::kInt16 : other;
  }
  // The enumerators of one category ascend in width.
  return std::max(a, b);
}

}  // namespace kernelopt
