// A loop body: one loop nest of the compiler's loop-level IR, in SSA form. See docs/formats.md, "A body".
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernelopt/ir/dtype.h"
#include "kernelopt/ir/expr.h"
#include "kernelopt/ir/op_table.h"

namespace kernelopt {

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

// A literal. Booleans keep their type; non-finite doubles are ordinary values here.
using Scalar = std::variant<bool, int64_t, double>;
double scalar_as_double(const Scalar& value);

enum class VarKind { kIter, kReduce };
struct LoopVar {
  std::string name;
  int64_t extent;
  VarKind kind;
};

struct Block;

// One op; which fields hold something depends on the opcode (docs/formats.md). `dtype` is the type of the result in the
// type in which it is computed (half types compute in float32); for stores it is the buffer's own type.
struct Op {
  OpCode code = OpCode::kConstant;
  ValueId id = kNoValue;
  std::vector<ValueId> args;
  DType dtype = DType::kFloat32;
  DType src_dtype = DType::kFloat32;
  bool use_compute_types = true;  // kToDType
  std::string buffer;             // kLoad, kStore, kStoreReduction, kLoadSeed
  Expr index;                     // kLoad, kStore, kStoreReduction, kIndexExpr, kCheckBounds
  Expr size;                      // kIndirect, kCheckBounds
  std::string symbol;             // kIndirect
  Scalar value = int64_t{0};      // kConstant, kMasked (the other value), kLoadSeed (offset)
  ReductionKind reduction = ReductionKind::kSum;
  std::vector<DType> dtypes;      // results of kReduction, kScan, kSort
  bool atomic_add = false;        // kStore
  int which = 0;                  // kGet
  bool check = false, wrap_neg = false;  // kIndirect
  bool lower = false, upper = false;     // kCheckBounds
  bool stable = false, descending = false;  // kSort
  std::vector<Block> blocks;      // kMasked: one; kScan: the combine function
};

struct Block {
  std::vector<ValueId> params;   // combine functions only
  std::vector<Op> ops;
  std::vector<ValueId> results;
};

struct Body {
  std::string name;
  std::vector<LoopVar> vars;  // iteration vars first, then reduction vars
  Block block;

  int64_t iter_elements() const;
  int64_t reduce_elements() const;  // 1 without reduction vars
  bool has_reduction_vars() const;
};

// Calls visit(op) for every op, nested blocks included, in order.
template <typename BlockT, typename Visitor>
void for_each_op(BlockT& block, Visitor&& visit) {
  for (auto& op : block.ops) {
    visit(op);
    for (auto& inner : op.blocks) for_each_op(inner, visit);
  }
}

}  // namespace kernelopt
