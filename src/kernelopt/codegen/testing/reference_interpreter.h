// A direct interpreter of loop bodies in double precision and 64-bit integers: slow, obvious, and independent of plans.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernelopt/ir/program.h"

namespace kernelopt::testing {

// One element or value; `real` for floating types, `whole` for the others (booleans are 0 and 1).
struct Number {
  double real = 0;
  int64_t whole = 0;
};
using Memory = std::map<std::string, std::vector<Number>>;

inline double rounded(double x, DType type) {
  if (type == DType::kFloat64) return x;
  if (type == DType::kFloat32 || !std::isfinite(x) || x == 0) return static_cast<float>(x);
  const int bits = type == DType::kFloat16 ? 11 : 8;
  int exponent = 0;
  std::frexp(x, &exponent);
  if (type == DType::kFloat16) exponent = std::max(exponent, -13);
  const double unit = std::ldexp(1.0, exponent - bits);
  const double result = std::nearbyint(x / unit) * unit;
  if (type == DType::kFloat16 && std::abs(result) > 65504) return std::copysign(INFINITY, x);
  return result;
}
inline int64_t wrapped(int64_t x, DType type) {
  switch (type) {
    case DType::kBool: return x != 0;
    case DType::kUInt8: return static_cast<uint8_t>(x);
    case DType::kInt8: return static_cast<int8_t>(x);
    case DType::kInt16: return static_cast<int16_t>(x);
    case DType::kInt32: return static_cast<int32_t>(x);
    default: return x;
  }
}

class Interpreter {
 public:
  Interpreter(const Program& program, Memory& memory) : program_(program), memory_(memory) {}

  void run(const Body& body) {
    body_ = &body;
    point_.clear();
    iterate(0);
  }

 private:
  struct State {
    bool started = false;
    std::vector<Number> parts;
    int64_t position = 0, count = 0, at = 0;
  };

  void iterate(size_t v) {
    if (v < body_->vars.size() && body_->vars[v].kind == VarKind::kIter) {
      for (int64_t i = 0; i < body_->vars[v].extent; ++i) {
        point_[body_->vars[v].name] = i;
        iterate(v + 1);
      }
      return;
    }
    states_.clear();
    reduce(v);
    values_.clear();
    after_ = true;
    block(body_->block);
    after_ = false;
  }
  void reduce(size_t v) {
    if (v < body_->vars.size()) {
      for (int64_t i = 0; i < body_->vars[v].extent; ++i) {
        point_[body_->vars[v].name] = i;
        reduce(v + 1);
      }
      return;
    }
    values_.clear();
    block(body_->block);
  }

  DType type_of(ValueId id) const { return types_.at(id); }
  double real(ValueId id) const { return is_floating(type_of(id)) ? values_.at(id)[0].real : static_cast<double>(values_.at(id)[0].whole); }
  int64_t whole(ValueId id) const { return is_floating(type_of(id)) ? static_cast<int64_t>(values_.at(id)[0].real) : values_.at(id)[0].whole; }
  bool known(const Op& op) const {
    for (ValueId arg : op.args)
      if (!values_.count(arg)) return false;
    for (const auto& name : op.index.variables())
      if (!point_.count(name)) return false;
    return true;
  }

  void block(const Block& code) {
    for (const auto& op : code.ops) one(op);
  }

  void set(const Op& op, Number number) {
    if (is_floating(op.dtype)) number.real = rounded(number.real, op.code == OpCode::kToDType && !op.use_compute_types ? op.dtype : compute_dtype(op.dtype));
    else number.whole = wrapped(number.whole, op.dtype);
    values_[op.id] = {number};
    types_[op.id] = op.dtype;
  }

  void one(const Op& op) {
    const bool reduction = op.code == OpCode::kReduction || op.code == OpCode::kScan;
    if (after_) {
      // Only what follows from reductions runs after the loops.
      if (op.code == OpCode::kReduction) {
        values_[op.id] = finished(op);
        types_[op.id] = op.dtype;
        return;
      }
      if (op.code == OpCode::kStore || op.code == OpCode::kScan || op.code == OpCode::kIndirect || op.code == OpCode::kMasked) return;
      if (op.code == OpCode::kConstant) return pointwise(op);
      if (op.args.empty() || !known(op)) return;
    } else if (op.code == OpCode::kStoreReduction) {
      return;
    }
    if (!known(op) && !reduction) return;  // depends on a reduction
    switch (op.code) {
      case OpCode::kLoad: {
        const auto& buffer = memory_.at(op.buffer);
        const int64_t index = op.index.evaluate(point_);
        if (index < 0 || index >= static_cast<int64_t>(buffer.size())) throw std::out_of_range("load of " + op.buffer);
        set(op, buffer[static_cast<size_t>(index)]);
        return;
      }
      case OpCode::kStore:
      case OpCode::kStoreReduction: {
        auto& buffer = memory_.at(op.buffer);
        const int64_t index = op.index.evaluate(point_);
        if (index < 0 || index >= static_cast<int64_t>(buffer.size())) throw std::out_of_range("store to " + op.buffer);
        const DType type = program_.buffer(op.buffer).dtype;
        Number number{real(op.args[0]), whole(op.args[0])};
        Number& place = buffer[static_cast<size_t>(index)];
        if (op.atomic_add) number = {number.real + place.real, number.whole + place.whole};
        place = {rounded(number.real, type), wrapped(number.whole, type)};
        return;
      }
      case OpCode::kMasked: {
        const bool inside = whole(op.args[0]) != 0;
        if (inside) {
          block(op.blocks[0]);
          const ValueId result = op.blocks[0].results[0];
          set(op, {real(result), whole(result)});
        } else {
          const double other = scalar_as_double(op.value);
          set(op, {other, std::isfinite(other) ? static_cast<int64_t>(other) : 0});
        }
        return;
      }
      case OpCode::kIndirect: {
        int64_t index = whole(op.args[0]);
        const int64_t size = op.size.evaluate(point_);
        if (op.wrap_neg && index < 0) index += size;
        if (op.check && (index < 0 || index >= size)) throw std::out_of_range("index");
        point_[op.symbol] = index;
        return;
      }
      case OpCode::kReduction: return step(op);
      case OpCode::kScan: return scan(op);
      case OpCode::kGet: {
        const auto& all = values_.at(op.args[0]);
        set(op, all[static_cast<size_t>(op.which)]);
        return;
      }
      default: return pointwise(op);
    }
  }

  void scan(const Op& op) {
    State& state = states_[op.id];
    std::vector<Number> now;
    for (ValueId arg : op.args) now.push_back({real(arg), whole(arg)});
    bool first = true;
    for (const auto& v : body_->vars)
      if (v.kind == VarKind::kReduce) first = first && point_.at(v.name) == 0;
    if (!first) {
      const Block& combine = op.blocks[0];
      for (size_t i = 0; i < now.size(); ++i) {
        values_[combine.params[i]] = {state.parts[i]};
        values_[combine.params[now.size() + i]] = {now[i]};
        types_[combine.params[i]] = types_[combine.params[now.size() + i]] = op.dtypes[i];
      }
      block(combine);
      for (size_t i = 0; i < now.size(); ++i) now[i] = {real(combine.results[i]), whole(combine.results[i])};
    }
    state.parts = now;
    values_[op.id] = now;
    types_[op.id] = op.dtype;
  }

  // Integers wrap as in torch.
  static int64_t in_ring(int64_t a, char sign, int64_t b) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<int64_t>(sign == '+' ? x + y : sign == '-' ? x - y : x * y);
  }

  void step(const Op& op) {
    State& s = states_[op.id];
    const double x = real(op.args[0]);
    const int64_t i = whole(op.args[0]);
    const bool floating = is_floating(type_of(op.args[0]));
    if (s.parts.empty()) s.parts.resize(3);
    Number& a = s.parts[0];
    const bool first = !s.started;
    s.started = true;
    switch (op.reduction) {
      case ReductionKind::kSum: a = {(first ? 0 : a.real) + x, in_ring(first ? 0 : a.whole, '+', i)}; break;
      case ReductionKind::kProd: a = {(first ? 1 : a.real) * x, in_ring(first ? 1 : a.whole, '*', i)}; break;
      case ReductionKind::kAny: a.whole = (first ? 0 : a.whole) | (floating ? x != 0 : i != 0); break;
      case ReductionKind::kXorSum: a.whole = (first ? 0 : a.whole) ^ i; break;
      case ReductionKind::kMax:
        if (first || std::isnan(x) || x > a.real) a.real = std::isnan(a.real) && !first ? a.real : x;
        if (first || i > a.whole) a.whole = i;
        break;
      case ReductionKind::kMin:
        if (first || std::isnan(x) || x < a.real) a.real = std::isnan(a.real) && !first ? a.real : x;
        if (first || i < a.whole) a.whole = i;
        break;
      case ReductionKind::kArgMax:
      case ReductionKind::kArgMin: {
        const bool better = op.reduction == ReductionKind::kArgMax ? x > a.real : x < a.real;
        if (first || (!std::isnan(a.real) && (std::isnan(x) || better))) {
          a.real = x;
          s.at = s.position;
        }
        ++s.position;
        break;
      }
      case ReductionKind::kWelford:
      case ReductionKind::kWelfordCombine: {
        const bool joins = op.reduction == ReductionKind::kWelfordCombine;
        const double n = joins ? real(op.args[2]) : 1, m2 = joins ? real(op.args[1]) : 0;
        const double total = s.parts[2].real + n, delta = x - a.real;
        if (total != 0) {
          s.parts[1].real += m2 + delta * delta * s.parts[2].real * n / total;
          a.real += delta * n / total;
        }
        s.parts[2].real = total;
        break;
      }
      case ReductionKind::kOnlineSoftmax: {
        const double top = first ? x : std::isnan(x) || std::isnan(a.real) ? NAN : std::max(x, a.real);
        s.parts[1].real = (first ? 0 : s.parts[1].real * std::exp(a.real - top)) + std::exp(x - top);
        a.real = top;
        break;
      }
      case ReductionKind::kDot: throw std::logic_error("dot");
    }
  }
  std::vector<Number> finished(const Op& op) const {
    const State& s = states_.at(op.id);
    if (op.reduction == ReductionKind::kArgMax || op.reduction == ReductionKind::kArgMin) return {{static_cast<double>(s.at), s.at}};
    std::vector<Number> parts = s.parts;
    if (op.reduction == ReductionKind::kAny) parts[0].real = static_cast<double>(parts[0].whole);
    return parts;
  }

  void pointwise(const Op& op);

  const Program& program_;
  Memory& memory_;
  const Body* body_ = nullptr;
  bool after_ = false;
  std::map<std::string, int64_t> point_;
  std::map<ValueId, std::vector<Number>> values_;
  std::map<ValueId, DType> types_;
  std::map<ValueId, State> states_;
};

inline int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

inline void Interpreter::pointwise(const Op& op) {
  const auto x = [&](size_t i) { return real(op.args[i]); };
  const auto n = [&](size_t i) { return whole(op.args[i]); };
  const bool floating = is_floating(op.dtype);
  const bool float_args = !op.args.empty() && (is_floating(type_of(op.args[0])) || (op.args.size() > 1 && is_floating(type_of(op.args[1]))));
  const auto both = [&](double r, int64_t w) { set(op, {r, w}); };
  const auto flag = [&](bool b) { set(op, {static_cast<double>(b), b}); };
  switch (op.code) {
    case OpCode::kConstant: {
      const double d = scalar_as_double(op.value);
      const auto* i = std::get_if<int64_t>(&op.value);
      return both(d, i ? *i : std::isfinite(d) ? static_cast<int64_t>(d) : 0);
    }
    case OpCode::kIndexExpr: {
      const int64_t v = op.index.evaluate(point_);
      return both(static_cast<double>(v), v);
    }
    case OpCode::kToDType: return both(x(0), floating ? 0 : op.dtype == DType::kBool ? x(0) != 0 : n(0));
    case OpCode::kAdd: return both(x(0) + x(1), floating ? 0 : in_ring(n(0), '+', n(1)));
    case OpCode::kSub: return both(x(0) - x(1), floating ? 0 : in_ring(n(0), '-', n(1)));
    case OpCode::kMul: return both(x(0) * x(1), floating ? 0 : in_ring(n(0), '*', n(1)));
    case OpCode::kTrueDiv: return both(x(0) / x(1), 0);
    case OpCode::kFloorDiv: return both(std::floor(x(0) / x(1)), floating ? 0 : floor_divide(n(0), n(1)));
    case OpCode::kRemainder: return both(x(0) - std::floor(x(0) / x(1)) * x(1), floating ? 0 : n(0) - floor_divide(n(0), n(1)) * n(1));
    case OpCode::kMaximum: return both(std::isnan(x(0)) || std::isnan(x(1)) ? NAN : std::max(x(0), x(1)), floating ? 0 : std::max(n(0), n(1)));
    case OpCode::kMinimum: return both(std::isnan(x(0)) || std::isnan(x(1)) ? NAN : std::min(x(0), x(1)), floating ? 0 : std::min(n(0), n(1)));
    case OpCode::kNeg: return both(-x(0), floating ? 0 : in_ring(0, '-', n(0)));
    case OpCode::kAbs: return both(std::abs(x(0)), floating ? 0 : n(0) < 0 ? in_ring(0, '-', n(0)) : n(0));
    case OpCode::kSign: return both(std::isnan(x(0)) ? x(0) : (x(0) > 0) - (x(0) < 0), floating ? 0 : (n(0) > 0) - (n(0) < 0));
    case OpCode::kSquare: return both(x(0) * x(0), floating ? 0 : in_ring(n(0), '*', n(0)));
    case OpCode::kReciprocal: return both(1 / x(0), 0);
    case OpCode::kSqrt: return both(std::sqrt(x(0)), 0);
    case OpCode::kRsqrt: return both(1 / std::sqrt(x(0)), 0);
    case OpCode::kExp: return both(std::exp(x(0)), 0);
    case OpCode::kExpm1: return both(std::expm1(x(0)), 0);
    case OpCode::kLog: return both(std::log(x(0)), 0);
    case OpCode::kLog1p: return both(std::log1p(x(0)), 0);
    case OpCode::kErf: return both(std::erf(x(0)), 0);
    case OpCode::kTanh: return both(std::tanh(x(0)), 0);
    case OpCode::kSigmoid: return both(1 / (1 + std::exp(-x(0))), 0);
    case OpCode::kRelu: return both(std::isnan(x(0)) ? x(0) : std::max(x(0), 0.0), floating ? 0 : std::max<int64_t>(n(0), 0));
    case OpCode::kFloor: return both(std::floor(x(0)), n(0));
    case OpCode::kCeil: return both(std::ceil(x(0)), n(0));
    case OpCode::kRound: return both(std::nearbyint(x(0)), n(0));
    case OpCode::kEq: return flag(float_args ? x(0) == x(1) : n(0) == n(1));
    case OpCode::kNe: return flag(float_args ? x(0) != x(1) : n(0) != n(1));
    case OpCode::kLt: return flag(float_args ? x(0) < x(1) : n(0) < n(1));
    case OpCode::kLe: return flag(float_args ? x(0) <= x(1) : n(0) <= n(1));
    case OpCode::kGt: return flag(float_args ? x(0) > x(1) : n(0) > n(1));
    case OpCode::kGe: return flag(float_args ? x(0) >= x(1) : n(0) >= n(1));
    case OpCode::kAnd:
    case OpCode::kBitwiseAnd: return both(0, n(0) & n(1));
    case OpCode::kOr:
    case OpCode::kBitwiseOr: return both(0, n(0) | n(1));
    case OpCode::kXor:
    case OpCode::kBitwiseXor: return both(0, n(0) ^ n(1));
    case OpCode::kLogicalAnd: return flag(x(0) != 0 && x(1) != 0);
    case OpCode::kLogicalOr: return flag(x(0) != 0 || x(1) != 0);
    case OpCode::kLogicalNot: return flag(x(0) == 0);
    case OpCode::kIsNan: return flag(std::isnan(x(0)));
    case OpCode::kWhere: return n(0) != 0 ? both(x(1), n(1)) : both(x(2), n(2));
    case OpCode::kIdentity: return both(x(0), n(0));
    default: throw std::logic_error(std::string("the interpreter lacks ") + op_name(op.code));
  }
}

}  // namespace kernelopt::testing
