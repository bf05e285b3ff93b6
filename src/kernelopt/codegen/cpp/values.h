// Values of generated code: what the printer knows of each SSA value, and how operands and ops are spelled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelopt/codegen/cpp/prelude.h"
#include "kernelopt/plan/kernel_plan.h"
#include "kernelopt/plan/lower.h"

namespace kernelopt::cpp {

// One value. `rep` is the type it is held in: the logical type, but bool as a mask, half types as float32, and int64 as
// int32 where its range is known to fit.
struct Value {
  DType type = DType::kFloat32;
  DType rep = DType::kFloat32;
  bool vector = false;
  std::vector<std::string> text;  // per copy where it is a vector, else one
  std::optional<Scalar> constant;
  std::optional<Interval> range;  // integers
};

DType natural_rep(DType type);
// Element type in memory: bool as uint8_t, half types as uint16_t.
const char* memory_type(DType type);
// C++ type that holds a value: float, bool, …, or a vector of them.
std::string held_type(DType rep, bool vector);
std::string literal(const Scalar& value, DType rep);
inline bool fits_int32(const Interval& range) { return range.low >= INT32_MIN / 2 && range.high <= INT32_MAX / 2; }

// The value as an operand: converted to `rep`, broadcast where a vector is asked for.
std::string operand(const Value& value, DType rep, bool vector, size_t copy);
std::string convert_text(const std::string& text, DType from, DType to, bool vector);
// Memory representation -> held representation and back.
std::string from_memory(const std::string& text, DType type, bool vector);
std::string to_memory(const std::string& text, DType rep, DType type, bool vector);

// Text of a pointwise op on operands; sets the result's rep and range. kUnsupported for an op it cannot spell.
Result<Value> pointwise(const Op& op, const std::vector<const Value*>& args, bool vector, size_t copies, MathVariant math,
                        PreludeNeeds& needs);

}  // namespace kernelopt::cpp
