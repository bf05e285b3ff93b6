// How values and pointwise ops are spelled in Triton.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelopt/ir/body.h"
#include "kernelopt/plan/flat_body.h"

namespace kernelopt::triton {

// Which dims a value varies along. Every value is a 2-D tensor that broadcasts: [1|XBLOCK, 1|RBLOCK].
enum Shape : int { kUniform = 0, kRows = 1, kColumns = 2 };

struct Value {
  std::string text;                // a name or a literal expression
  DType type = DType::kFloat32;    // logical type in which it is computed
  bool narrow = false;             // an int64 that is held in int32, because its range is known to fit
  int shape = kUniform;
  bool own = false;                // may differ between programs of a team: of no use but in what one of them stores
};

// "tl.float32"; bool is tl.int1.
std::string type_text(DType type);
// A typed [1, 1] tensor.
std::string literal(const Scalar& value, DType type);
// The value converted for use as `type`.
std::string as_type(const Value& value, DType type);
// What a load of this buffer type must be followed by to get the compute type; empty for nothing.
std::string after_load(DType type);

// Right-hand side of a pointwise op; kUnsupported for an op that cannot be spelled. `helpers` collects the prelude
// functions that it calls.
Result<std::string> pointwise(const Op& op, const std::vector<Value>& args, std::vector<std::string>& helpers);

// Source of a prelude function with everything it calls.
std::string helper_source(const std::vector<std::string>& helpers);

}  // namespace kernelopt::triton
