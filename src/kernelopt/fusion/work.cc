// group_work(): compulsory traffic and operations of a group.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "kernelopt/fusion/accesses.h"
#include "kernelopt/fusion/group.h"

namespace kernelopt {
namespace {

// Cost of one op in additions of the same type. Rough on purpose: only the order of magnitude decides between a memory
// and a compute bound.
double op_cost(OpCode code) {
  switch (code) {
    case OpCode::kLoad: case OpCode::kStore: case OpCode::kStoreReduction: case OpCode::kConstant: case OpCode::kIndexExpr:
    case OpCode::kCheckBounds: case OpCode::kMasked: case OpCode::kReduction: case OpCode::kGet: case OpCode::kScan:
    case OpCode::kSort: case OpCode::kLoadSeed: case OpCode::kIdentity: case OpCode::kBitcast:
      return 0;
    case OpCode::kIndirect: case OpCode::kToDType: case OpCode::kAdd: case OpCode::kSub: case OpCode::kMul: case OpCode::kMaximum:
    case OpCode::kMinimum: case OpCode::kNeg: case OpCode::kAbs: case OpCode::kSign: case OpCode::kSquare: case OpCode::kRelu:
    case OpCode::kFloor: case OpCode::kCeil: case OpCode::kTrunc: case OpCode::kRound: case OpCode::kFloorToInt:
    case OpCode::kCeilToInt: case OpCode::kTruncToInt: case OpCode::kRoundToInt: case OpCode::kEq: case OpCode::kNe:
    case OpCode::kLt: case OpCode::kLe: case OpCode::kGt: case OpCode::kGe: case OpCode::kAnd: case OpCode::kOr:
    case OpCode::kXor: case OpCode::kLogicalAnd: case OpCode::kLogicalOr: case OpCode::kLogicalXor: case OpCode::kLogicalNot:
    case OpCode::kBitwiseAnd: case OpCode::kBitwiseOr: case OpCode::kBitwiseXor: case OpCode::kBitwiseNot:
    case OpCode::kShiftLeft: case OpCode::kShiftRight: case OpCode::kIsNan: case OpCode::kIsInf: case OpCode::kSignBit:
    case OpCode::kWhere: case OpCode::kCopySign:
      return 1;
    case OpCode::kFma: return 2;
    case OpCode::kTrueDiv: case OpCode::kReciprocal: case OpCode::kSqrt: case OpCode::kRsqrt: return 4;
    case OpCode::kFloorDiv: case OpCode::kTruncDiv: case OpCode::kRemainder: case OpCode::kFMod: case OpCode::kMod: return 8;
    case OpCode::kExp: case OpCode::kExp2: case OpCode::kLog: case OpCode::kLog2: return 12;
    case OpCode::kExpm1: case OpCode::kLog10: case OpCode::kLog1p: case OpCode::kTanh: case OpCode::kSigmoid: case OpCode::kErf:
    case OpCode::kErfc: case OpCode::kSin: case OpCode::kCos: case OpCode::kTan: case OpCode::kAsin: case OpCode::kAcos:
    case OpCode::kAtan: case OpCode::kSinh: case OpCode::kCosh: case OpCode::kAtan2:
      return 20;
    case OpCode::kPow: return 40;
    case OpCode::kRand: case OpCode::kRandn: return 60;
  }
  return 0;
}

double reduction_cost(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kSum: case ReductionKind::kProd: case ReductionKind::kMax: case ReductionKind::kMin:
    case ReductionKind::kAny: case ReductionKind::kXorSum:
      return 1;
    case ReductionKind::kArgMax: case ReductionKind::kArgMin: case ReductionKind::kDot: return 2;
    case ReductionKind::kWelford: return 4;  // two passes: a sum, a difference and its square summed
    case ReductionKind::kWelfordCombine: return 8;
    case ReductionKind::kOnlineSoftmax: return 14;
  }
  return 0;
}

class Operations {
 public:
  explicit Operations(const Body& body)
      : iterations_(static_cast<double>(body.iter_elements())), reductions_(static_cast<double>(body.reduce_elements())) {
    count(body.block);
  }
  double total() const { return total_; }

 private:
  void count(const Block& block) {
    for (const auto& op : block.ops) {
      // What depends on a finished reduction runs once an outer iteration.
      bool after = op.code == OpCode::kReduction;
      for (const ValueId arg : op.args) after |= op.code != OpCode::kReduction && after_.count(arg) > 0;
      if (after) after_.insert(op.id);
      const double times = iterations_ * (after && op.code != OpCode::kReduction ? 1 : reductions_);
      double cost = op.code == OpCode::kReduction ? reduction_cost(op.reduction) : op_cost(op.code);
      if (op.code == OpCode::kSort) cost = 32;
      total_ += cost * times * (op.dtype == DType::kFloat64 || op.dtype == DType::kInt64 ? 2 : 1);
      for (const auto& inner : op.blocks) count(inner);
    }
  }

  double iterations_, reductions_;
  std::set<ValueId> after_;
  double total_ = 0;
};

// Elements of one buffer that a body's accesses touch: at most the product of the loops that an index depends on, at most
// the span of its range, at most what the buffer holds. Equal indices count once.
int64_t touched_elements(const Program& program, const std::vector<std::pair<const Body*, Expr>>& uses, const std::string& name) {
  const int64_t capacity = program.buffer(name).elements();
  double sum = 0;
  std::set<std::string> seen;
  std::optional<Interval> span;
  bool bounded = true;
  for (const auto& [body, index] : uses) {
    std::map<std::string, int64_t> extents = symbol_extents(*body);
    for (const auto& var : body->vars) extents[var.name] = var.extent;
    const Expr simple = simplify(index, extents);
    double product = 1;
    std::string key = simple.to_string();
    for (const auto& var : simple.variables()) {
      const auto found = extents.find(var);
      product *= found == extents.end() ? static_cast<double>(capacity) : static_cast<double>(found->second);
      key += " " + var + "<" + (found == extents.end() ? "?" : std::to_string(found->second));
    }
    const auto range = bounds(simple, [&](const std::string& var) -> std::optional<Interval> {
      const auto found = extents.find(var);
      if (found == extents.end()) return std::nullopt;
      return Interval{0, found->second - 1};
    });
    bounded &= range.has_value();
    if (range) {
      product = std::min(product, static_cast<double>(range->high - range->low + 1));
      span = !span ? *range : Interval{std::min(span->low, range->low), std::max(span->high, range->high)};
    }
    if (seen.insert(key).second) sum += product;
  }
  if (bounded && span) sum = std::min(sum, static_cast<double>(span->high - span->low + 1));
  return static_cast<int64_t>(std::min(sum, static_cast<double>(capacity)));
}

}  // namespace

Work group_work(const Program& program, const Group& group) {
  Work work;
  std::map<std::string, std::vector<std::pair<const Body*, Expr>>> reads, writes;
  for (const Body* body : group_bodies(program, group)) {
    for (const auto& access : accesses(*body)) {
      if (!access.store || access.atomic) reads[access.buffer].emplace_back(body, access.index);
      if (access.store) writes[access.buffer].emplace_back(body, access.index);
    }
    work.operations += Operations(*body).total();
  }
  for (const auto& name : group.inputs)
    work.bytes_read += touched_elements(program, reads[name], name) * dtype_bytes(program.buffer(name).dtype);
  for (const auto& name : group.outputs)
    work.bytes_written += touched_elements(program, writes[name], name) * dtype_bytes(program.buffer(name).dtype);
  return work;
}

}  // namespace kernelopt
