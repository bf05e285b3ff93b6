// The one table of loop-body ops. Enum, names, reader, verifier, printers and visitors are generated from it or switch
// over it without a default case, so a new op is a compile error everywhere it must be handled.
#pragma once

#include <optional>
#include <string_view>

namespace kernelopt {

// How an op's result type follows from its arguments.
enum class TypeRule {
  kPromote,     // promote(args)
  kFloat,       // floating: promote(args), integers and booleans become float32
  kBool,        // bool
  kSelect,      // where: promote of arguments 1 and 2
  kGiven,       // the `dtype` field
  kFirst,       // type of the first argument
  kNone,        // no result
};

// How an op behaves inside a loop nest.
enum class OpClass { kPointwise, kMemory, kIndex, kControl, kReduction, kScan, kRandom };

// X(enumerator, JSON name, arity or -1, TypeRule, OpClass)
#define KERNELOPT_OPS(X)                                     \
  X(kLoad, "load", 0, kGiven, kMemory)                       \
  X(kStore, "store", 1, kNone, kMemory)                      \
  X(kStoreReduction, "store_reduction", 1, kNone, kMemory)   \
  X(kConstant, "constant", 0, kGiven, kPointwise)            \
  X(kIndexExpr, "index_expr", 0, kGiven, kIndex)             \
  X(kIndirect, "indirect", 1, kNone, kIndex)                 \
  X(kCheckBounds, "check_bounds", 0, kNone, kIndex)          \
  X(kMasked, "masked", 1, kGiven, kControl)                  \
  X(kReduction, "reduction", -1, kGiven, kReduction)         \
  X(kGet, "get", 1, kGiven, kControl)                        \
  X(kScan, "scan", -1, kGiven, kScan)                        \
  X(kSort, "sort", -1, kGiven, kScan)                        \
  X(kLoadSeed, "load_seed", 0, kGiven, kRandom)              \
  X(kRand, "rand", 2, kGiven, kRandom)                       \
  X(kRandn, "randn", 2, kGiven, kRandom)                     \
  X(kToDType, "to_dtype", 1, kGiven, kPointwise)             \
  X(kBitcast, "to_dtype_bitcast", 1, kGiven, kPointwise)     \
  X(kAdd, "add", 2, kPromote, kPointwise)                    \
  X(kSub, "sub", 2, kPromote, kPointwise)                    \
  X(kMul, "mul", 2, kPromote, kPointwise)                    \
  X(kTrueDiv, "truediv", 2, kFloat, kPointwise)              \
  X(kFloorDiv, "floordiv", 2, kPromote, kPointwise)          \
  X(kTruncDiv, "truncdiv", 2, kPromote, kPointwise)          \
  X(kRemainder, "remainder", 2, kPromote, kPointwise)        \
  X(kFMod, "fmod", 2, kPromote, kPointwise)                  \
  X(kMod, "mod", 2, kPromote, kPointwise)                    \
  X(kFma, "fma", 3, kPromote, kPointwise)                    \
  X(kPow, "pow", 2, kPromote, kPointwise)                    \
  X(kAtan2, "atan2", 2, kFloat, kPointwise)                  \
  X(kCopySign, "copysign", 2, kFloat, kPointwise)            \
  X(kMaximum, "maximum", 2, kPromote, kPointwise)            \
  X(kMinimum, "minimum", 2, kPromote, kPointwise)            \
  X(kNeg, "neg", 1, kPromote, kPointwise)                    \
  X(kAbs, "abs", 1, kPromote, kPointwise)                    \
  X(kSign, "sign", 1, kPromote, kPointwise)                  \
  X(kSquare, "square", 1, kPromote, kPointwise)              \
  X(kReciprocal, "reciprocal", 1, kFloat, kPointwise)        \
  X(kSqrt, "sqrt", 1, kFloat, kPointwise)                    \
  X(kRsqrt, "rsqrt", 1, kFloat, kPointwise)                  \
  X(kExp, "exp", 1, kFloat, kPointwise)                      \
  X(kExp2, "exp2", 1, kFloat, kPointwise)                    \
  X(kExpm1, "expm1", 1, kFloat, kPointwise)                  \
  X(kLog, "log", 1, kFloat, kPointwise)                      \
  X(kLog2, "log2", 1, kFloat, kPointwise)                    \
  X(kLog10, "log10", 1, kFloat, kPointwise)                  \
  X(kLog1p, "log1p", 1, kFloat, kPointwise)                  \
  X(kErf, "erf", 1, kFloat, kPointwise)                      \
  X(kErfc, "erfc", 1, kFloat, kPointwise)                    \
  X(kTanh, "tanh", 1, kFloat, kPointwise)                    \
  X(kSigmoid, "sigmoid", 1, kFloat, kPointwise)              \
  X(kSin, "sin", 1, kFloat, kPointwise)                      \
  X(kCos, "cos", 1, kFloat, kPointwise)                      \
  X(kTan, "tan", 1, kFloat, kPointwise)                      \
  X(kAsin, "asin", 1, kFloat, kPointwise)                    \
  X(kAcos, "acos", 1, kFloat, kPointwise)                    \
  X(kAtan, "atan", 1, kFloat, kPointwise)                    \
  X(kSinh, "sinh", 1, kFloat, kPointwise)                    \
  X(kCosh, "cosh", 1, kFloat, kPointwise)                    \
  X(kRelu, "relu", 1, kPromote, kPointwise)                  \
  X(kFloor, "floor", 1, kPromote, kPointwise)                \
  X(kCeil, "ceil", 1, kPromote, kPointwise)                  \
  X(kTrunc, "trunc", 1, kPromote, kPointwise)                \
  X(kRound, "round", 1, kPromote, kPointwise)                \
  X(kFloorToInt, "floor_to_int", 1, kGiven, kPointwise)      \
  X(kCeilToInt, "ceil_to_int", 1, kGiven, kPointwise)        \
  X(kTruncToInt, "trunc_to_int", 1, kGiven, kPointwise)      \
  X(kRoundToInt, "round_to_int", 1, kGiven, kPointwise)      \
  X(kEq, "eq", 2, kBool, kPointwise)                         \
  X(kNe, "ne", 2, kBool, kPointwise)                         \
  X(kLt, "lt", 2, kBool, kPointwise)                         \
  X(kLe, "le", 2, kBool, kPointwise)                         \
  X(kGt, "gt", 2, kBool, kPointwise)                         \
  X(kGe, "ge", 2, kBool, kPointwise)                         \
  X(kAnd, "and_", 2, kPromote, kPointwise)                   \
  X(kOr, "or_", 2, kPromote, kPointwise)                     \
  X(kXor, "xor", 2, kPromote, kPointwise)                    \
  X(kLogicalAnd, "logical_and", 2, kBool, kPointwise)        \
  X(kLogicalOr, "logical_or", 2, kBool, kPointwise)          \
  X(kLogicalXor, "logical_xor", 2, kBool, kPointwise)        \
  X(kLogicalNot, "logical_not", 1, kBool, kPointwise)        \
  X(kBitwiseAnd, "bitwise_and", 2, kPromote, kPointwise)     \
  X(kBitwiseOr, "bitwise_or", 2, kPromote, kPointwise)       \
  X(kBitwiseXor, "bitwise_xor", 2, kPromote, kPointwise)     \
  X(kBitwiseNot, "bitwise_not", 1, kPromote, kPointwise)     \
  X(kShiftLeft, "bitwise_left_shift", 2, kPromote, kPointwise)   \
  X(kShiftRight, "bitwise_right_shift", 2, kPromote, kPointwise) \
  X(kIsNan, "isnan", 1, kBool, kPointwise)                   \
  X(kIsInf, "isinf", 1, kBool, kPointwise)                   \
  X(kSignBit, "signbit", 1, kBool, kPointwise)               \
  X(kWhere, "where", 3, kSelect, kPointwise)                 \
  X(kIdentity, "identity", 1, kFirst, kPointwise)

enum class OpCode {
#define KO_X(name, text, arity, rule, op_class) name,
  KERNELOPT_OPS(KO_X)
#undef KO_X
};

const char* op_name(OpCode code);
std::optional<OpCode> parse_op(std::string_view name);
int op_arity(OpCode code);  // -1: any
TypeRule op_type_rule(OpCode code);
OpClass op_class(OpCode code);

// X(enumerator, JSON name, number of results)
#define KERNELOPT_REDUCTIONS(X)             \
  X(kSum, "sum", 1)                         \
  X(kProd, "prod", 1)                       \
  X(kMax, "max", 1)                         \
  X(kMin, "min", 1)                         \
  X(kAny, "any", 1)                         \
  X(kXorSum, "xor_sum", 1)                  \
  X(kArgMax, "argmax", 1)                   \
  X(kArgMin, "argmin", 1)                   \
  X(kWelford, "welford_reduce", 3)          \
  X(kWelfordCombine, "welford_combine", 3)  \
  X(kOnlineSoftmax, "online_softmax_reduce", 2) \
  X(kDot, "dot", 1)

enum class ReductionKind {
#define KO_X(name, text, results) name,
  KERNELOPT_REDUCTIONS(KO_X)
#undef KO_X
};

const char* reduction_name(ReductionKind kind);
std::optional<ReductionKind> parse_reduction(std::string_view name);
int reduction_results(ReductionKind kind);

}  // namespace kernelopt
