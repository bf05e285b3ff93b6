#include "kernelopt/codegen/cpp/values.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernelopt/base/check.h"

namespace kernelopt::cpp {

DType natural_rep(DType type) { return compute_dtype(type); }

const char* memory_type(DType type) {
  switch (type) {
    case DType::kBool: return "uint8_t";
    case DType::kUInt8: return "uint8_t";
    case DType::kInt8: return "int8_t";
    case DType::kInt16: return "int16_t";
    case DType::kInt32: return "int32_t";
    case DType::kInt64: return "int64_t";
    case DType::kFloat16:
    case DType::kBFloat16: return "uint16_t";
    case DType::kFloat32: return "float";
    case DType::kFloat64: return "double";
  }
  return "void";
}

std::string held_type(DType rep, bool vector) {
  if (rep == DType::kBool) return vector ? "vi" : "bool";
  return vector ? std::string("vec<") + memory_type(rep) + ">" : memory_type(rep);
}

std::string literal(const Scalar& value, DType rep) {
  const double d = scalar_as_double(value);
  char text[64];
  switch (rep) {
    case DType::kBool: return d != 0 ? "true" : "false";
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64: {
      const bool is_double = rep == DType::kFloat64;
      const std::string limits = std::string("std::numeric_limits<") + (is_double ? "double" : "float") + ">::";
      if (std::isnan(d)) return limits + "quiet_NaN()";
      const bool overflows = !is_double && std::isinf(static_cast<float>(d));
      if (std::isinf(d) || overflows) return (d < 0 ? "-" : "") + limits + "infinity()";
      if (is_double) std::snprintf(text, sizeof text, "%.17g", d);
      else std::snprintf(text, sizeof text, "%.9g", static_cast<double>(static_cast<float>(d)));
      std::string result = text;
      if (result.find_first_of(".en") == std::string::npos) result += ".0";
      if (!is_double) result += "f";
      return d < 0 || std::signbit(d) ? "(" + result + ")" : result;
    }
    default: break;
  }
  int64_t i = 0;
  if (const auto* exact = std::get_if<int64_t>(&value)) i = *exact;
  else if (const auto* flag = std::get_if<bool>(&value)) i = *flag;
  else i = std::isfinite(d) ? static_cast<int64_t>(std::clamp(d, -9.2e18, 9.2e18)) : (d < 0 ? INT64_MIN : INT64_MAX);
  if (rep == DType::kInt64 && i == INT64_MIN) return "INT64_MIN";
  return std::string(memory_type(rep)) + "(" + std::to_string(i) + (rep == DType::kInt64 ? "LL" : "") + ")";
}

std::string convert_text(const std::string& text, DType from, DType to, bool vector) {
  if (from == to) return text;
  const std::string target = memory_type(to);
  if (to == DType::kBool) return vector ? "to_mask(" + text + " != 0)" : "(" + text + " != 0)";
  if (from == DType::kBool) {
    if (!vector) return target + "(" + text + ")";
    if (to == DType::kFloat32) return "((vf)(" + text + " & 0x3f800000))";
    return "cvt<" + target + ">(" + text + " & 1)";
  }
  if (!vector) {
    if (is_floating(from) && is_integer(to) && dtype_bytes(to) < 4) return target + "(int64_t(" + text + "))";
    return target + "(" + text + ")";
  }
  if (is_floating(from) && is_integer(to)) {
    if (dtype_bytes(to) < 4) return "cvt<" + target + ">(to_int<int32_t>(" + text + "))";
    return "to_int<" + target + ">(" + text + ")";
  }
  return "cvt<" + target + ">(" + text + ")";
}

std::string operand(const Value& value, DType rep, bool vector, size_t copy) {
  if (value.constant) {
    const std::string text = literal(*value.constant, rep);
    if (!vector) return text;
    return rep == DType::kBool ? "splat_mask(" + text + ")" : "splat<" + std::string(memory_type(rep)) + ">(" + text + ")";
  }
  const std::string& text = value.text[value.vector ? copy : 0];
  if (value.vector) {
    KO_CHECK(vector, "a vector where a scalar is needed");
    return convert_text(text, value.rep, rep, true);
  }
  const std::string scalar = convert_text(text, value.rep, rep, false);
  if (!vector) return scalar;
  return rep == DType::kBool ? "splat_mask(" + scalar + ")" : "splat<" + std::string(memory_type(rep)) + ">(" + scalar + ")";
}

std::string from_memory(const std::string& text, DType type, bool vector) {
  switch (type) {
    case DType::kBool: return vector ? "bool_to_mask(" + text + ")" : "(" + text + " != 0)";
    case DType::kFloat16: return "f16_to_float(" + text + ")";
    case DType::kBFloat16: return "bf16_to_float(" + text + ")";
    default: return text;
  }
}

std::string to_memory(const std::string& text, DType rep, DType type, bool vector) {
  switch (type) {
    case DType::kBool: {
      const std::string flag = convert_text(text, rep, DType::kBool, vector);
      return vector ? "mask_to_bool(" + flag + ")" : "uint8_t(" + flag + ")";
    }
    case DType::kFloat16: return "float_to_f16(" + convert_text(text, rep, DType::kFloat32, vector) + ")";
    case DType::kBFloat16: return "float_to_bf16(" + convert_text(text, rep, DType::kFloat32, vector) + ")";
    default: return convert_text(text, rep, type, vector);
  }
}

namespace {

std::optional<Interval> range_of(const Value& value) {
  if (value.constant) {
    if (const auto* i = std::get_if<int64_t>(&*value.constant)) return Interval{*i, *i};
    if (const auto* b = std::get_if<bool>(&*value.constant)) return Interval{*b, *b};
    const double d = std::get<double>(*value.constant);
    if (std::floor(d) == d && std::abs(d) < 1e15) return Interval{static_cast<int64_t>(d), static_cast<int64_t>(d)};
    return std::nullopt;
  }
  if (value.rep == DType::kBool) return Interval{0, 1};
  return value.range;
}

std::optional<Interval> combined_range(OpCode code, const std::optional<Interval>& a, const std::optional<Interval>& b) {
  if (!a || !b) return std::nullopt;
  constexpr int64_t kSmall = int64_t{1} << 30;
  const auto small = [](const Interval& i) { return i.low > -kSmall && i.high < kSmall; };
  if (!small(*a) || !small(*b)) return std::nullopt;
  switch (code) {
    case OpCode::kAdd: return Interval{a->low + b->low, a->high + b->high};
    case OpCode::kSub: return Interval{a->low - b->high, a->high - b->low};
    case OpCode::kMul: {
      const int64_t products[] = {a->low * b->low, a->low * b->high, a->high * b->low, a->high * b->high};
      return Interval{*std::min_element(products, products + 4), *std::max_element(products, products + 4)};
    }
    case OpCode::kMaximum: return Interval{std::max(a->low, b->low), std::max(a->high, b->high)};
    case OpCode::kMinimum: return Interval{std::min(a->low, b->low), std::min(a->high, b->high)};
    case OpCode::kWhere: return Interval{std::min(a->low, b->low), std::max(a->high, b->high)};
    default: return std::nullopt;
  }
}

// Functions with our own formulation, by op; null: only torch's.
const char* own_function(OpCode code) {
  switch (code) {
    case OpCode::kExp: return "vexp_fast";
    case OpCode::kExpm1: return "vexpm1_fast";
    case OpCode::kLog: return "vlog_fast";
    case OpCode::kLog1p: return "vlog1p_fast";
    case OpCode::kErf: return "verf_fast";
    case OpCode::kTanh: return "vtanh_fast";
    case OpCode::kSigmoid: return "vsigmoid_fast";
    default: return nullptr;
  }
}
const char* vec_function(OpCode code) {
  switch (code) {
    case OpCode::kExp: return "vexp";
    case OpCode::kExp2: return "vexp2";
    case OpCode::kExpm1: return "vexpm1";
    case OpCode::kLog: return "vlog";
    case OpCode::kLog2: return "vlog2";
    case OpCode::kLog10: return "vlog10";
    case OpCode::kLog1p: return "vlog1p";
    case OpCode::kErf: return "verf";
    case OpCode::kErfc: return "verfc";
    case OpCode::kTanh: return "vtanh";
    case OpCode::kSigmoid: return "vsigmoid";
    case OpCode::kSin: return "vsin";
    case OpCode::kCos: return "vcos";
    case OpCode::kTan: return "vtan";
    case OpCode::kAsin: return "vasin";
    case OpCode::kAcos: return "vacos";
    case OpCode::kAtan: return "vatan";
    case OpCode::kSinh: return "vsinh";
    case OpCode::kCosh: return "vcosh";
    default: return nullptr;
  }
}

Error unsupported(const Op& op, const char* why) { return Error(ErrorCode::kUnsupported, std::string("op ") + op_name(op.code) + ": " + why); }

bool known_number(const Value& value) { return value.constant && !std::isnan(scalar_as_double(*value.constant)); }

}  // namespace

Result<Value> pointwise(const Op& op, const std::vector<const Value*>& args, bool vector, size_t copies, MathVariant math,
                        PreludeNeeds& needs) {
  Value result;
  result.type = op.dtype;
  result.rep = natural_rep(op.dtype);
  result.vector = vector;
  std::string failure;
  // The type in which the operands meet.
  DType common = natural_rep(op.dtype);
  const bool compares = op.code == OpCode::kEq || op.code == OpCode::kNe || op.code == OpCode::kLt || op.code == OpCode::kLe ||
                        op.code == OpCode::kGt || op.code == OpCode::kGe;
  if (compares) {
    common = promote(args[0]->type, args[1]->type);
    // Integer constants against floating values and the like follow promotion; booleans compare as bytes.
    common = natural_rep(common);
    if (common == DType::kBool) common = DType::kBool;
    const auto a = range_of(*args[0]), b = range_of(*args[1]);
    if (common == DType::kInt64 && a && b && fits_int32(*a) && fits_int32(*b)) common = DType::kInt32;
  } else if (op.dtype == DType::kInt64 && args.size() >= 2) {
    const size_t first = op.code == OpCode::kWhere ? 1 : 0;
    const auto range = combined_range(op.code, range_of(*args[first]), range_of(*args[first + 1]));
    if (range && fits_int32(*range) && fits_int32(*range_of(*args[first])) && fits_int32(*range_of(*args[first + 1]))) {
      common = result.rep = DType::kInt32;
      result.range = range;
    }
  }
  for (size_t u = 0; u < (vector ? copies : 1); ++u) {
    const auto in = [&](size_t i) { return operand(*args[i], common, vector, u); };
    const auto as = [&](size_t i, DType rep) { return operand(*args[i], rep, vector, u); };
    const auto call = [&](const std::string& name) {
      std::string text = name + "(" + in(0);
      for (size_t i = 1; i < args.size(); ++i) text += ", " + in(i);
      return text + ")";
    };
    const auto infix = [&](const char* sign) { return "(" + in(0) + " " + sign + " " + in(1) + ")"; };
    const auto compare = [&](const char* sign) {
      if (common == DType::kBool && vector) {
        const std::string a = "(-" + in(0) + ")", b = "(-" + in(1) + ")";
        return "to_mask(" + a + " " + sign + " " + b + ")";
      }
      return vector ? "to_mask(" + in(0) + " " + sign + " " + in(1) + ")" : infix(sign);
    };
    const bool floating = is_floating(common), boolean = common == DType::kBool;
    const auto flag = [&](size_t i) { return as(i, DType::kBool); };
    std::string text;
    switch (op.code) {
      case OpCode::kAdd: text = boolean ? infix("|") : infix("+"); break;
      case OpCode::kSub:
        if (boolean) failure = "on booleans";
        text = infix("-");
        break;
      case OpCode::kMul: text = boolean ? infix("&") : infix("*"); break;
      case OpCode::kTrueDiv: text = infix("/"); break;
      case OpCode::kFloorDiv: text = floating ? "vfloor(" + infix("/") + ")" : call("div_floor"); break;
      case OpCode::kTruncDiv: text = floating ? "vtrunc(" + infix("/") + ")" : call("div_trunc"); break;
      case OpCode::kRemainder: text = call("mod_floor"); break;
      case OpCode::kFMod:
      case OpCode::kMod: text = call("mod_trunc"); break;
      case OpCode::kFma: text = floating ? call("fma") : "(" + in(0) + " * " + in(1) + " + " + in(2) + ")"; break;
      case OpCode::kPow:
        if (!floating) failure = "on integers";
        needs.vec = true;
        text = call("vpow");
        break;
      case OpCode::kAtan2: needs.vec = true; text = call("vatan2"); break;
      case OpCode::kCopySign: text = call("vcopysign"); break;
      case OpCode::kMaximum:
      case OpCode::kMinimum: {
        const bool top = op.code == OpCode::kMaximum;
        if (boolean) text = infix(top ? "|" : "&");
        else if (floating && known_number(*args[1])) text = call(top ? "vmax_number" : "vmin_number");
        else if (floating && known_number(*args[0])) text = std::string(top ? "vmax_number(" : "vmin_number(") + in(1) + ", " + in(0) + ")";
        else text = call(top ? "vmax" : "vmin");
        break;
      }
      case OpCode::kNeg: text = "(-" + in(0) + ")"; if (boolean) failure = "on booleans"; break;
      case OpCode::kAbs: text = boolean ? in(0) : call("vabs"); break;
      case OpCode::kSign: text = boolean ? in(0) : call("vsign"); break;
      case OpCode::kSquare: text = boolean ? in(0) : "(" + in(0) + " * " + in(0) + ")"; break;
      case OpCode::kReciprocal: text = "(" + literal(1.0, common) + " / " + in(0) + ")"; break;
      case OpCode::kSqrt: text = call("vsqrt"); break;
      case OpCode::kRsqrt: text = "(" + literal(1.0, common) + " / " + call("vsqrt") + ")"; break;
      case OpCode::kExp:
      case OpCode::kExp2:
      case OpCode::kExpm1:
      case OpCode::kLog:
      case OpCode::kLog2:
      case OpCode::kLog10:
      case OpCode::kLog1p:
      case OpCode::kErf:
      case OpCode::kErfc:
      case OpCode::kTanh:
      case OpCode::kSigmoid:
      case OpCode::kSin:
      case OpCode::kCos:
      case OpCode::kTan:
      case OpCode::kAsin:
      case OpCode::kAcos:
      case OpCode::kAtan:
      case OpCode::kSinh:
      case OpCode::kCosh:
        if (const char* own = own_function(op.code); own != nullptr && math == MathVariant::kFast && common == DType::kFloat32) {
          needs.math = true;
          text = call(own);
        } else {
          needs.vec = true;
          text = call(vec_function(op.code));
        }
        break;
      case OpCode::kRelu: text = boolean ? in(0) : floating ? "vmax_number(" + in(0) + ", " + (vector ? "splat(" + literal(0.0, common) + ")" : literal(0.0, common)) + ")"
                                                            : "vmax(" + in(0) + ", " + (vector ? "splat(" + literal(int64_t{0}, common) + ")" : literal(int64_t{0}, common)) + ")"; break;
      case OpCode::kFloor: text = floating ? call("vfloor") : in(0); break;
      case OpCode::kCeil: text = floating ? call("vceil") : in(0); break;
      case OpCode::kTrunc: text = floating ? call("vtrunc") : in(0); break;
      case OpCode::kRound: text = floating ? call("vround") : in(0); break;
      case OpCode::kFloorToInt:
      case OpCode::kCeilToInt:
      case OpCode::kTruncToInt:
      case OpCode::kRoundToInt: {
        const DType from = args[0]->rep;
        std::string value = as(0, from);
        if (is_floating(from)) {
          const char* name = op.code == OpCode::kFloorToInt ? "vfloor" : op.code == OpCode::kCeilToInt ? "vceil"
                             : op.code == OpCode::kTruncToInt ? "vtrunc" : "vround";
          value = std::string(name) + "(" + value + ")";
        }
        text = convert_text(value, from, result.rep, vector);
        break;
      }
      case OpCode::kEq: text = compare("=="); break;
      case OpCode::kNe: text = compare("!="); break;
      case OpCode::kLt: text = compare("<"); break;
      case OpCode::kLe: text = compare("<="); break;
      case OpCode::kGt: text = compare(">"); break;
      case OpCode::kGe: text = compare(">="); break;
      case OpCode::kAnd:
      case OpCode::kBitwiseAnd: text = infix("&"); break;
      case OpCode::kOr:
      case OpCode::kBitwiseOr: text = infix("|"); break;
      case OpCode::kXor:
      case OpCode::kBitwiseXor: text = infix("^"); break;
      case OpCode::kLogicalAnd: text = "(" + flag(0) + " & " + flag(1) + ")"; break;
      case OpCode::kLogicalOr: text = "(" + flag(0) + " | " + flag(1) + ")"; break;
      case OpCode::kLogicalXor: text = "(" + flag(0) + " ^ " + flag(1) + ")"; break;
      case OpCode::kLogicalNot: text = (vector ? "(~" : "(!") + flag(0) + ")"; break;
      case OpCode::kBitwiseNot: text = boolean ? (vector ? "(~" : "(!") + in(0) + ")" : "(~" + in(0) + ")"; break;
      case OpCode::kShiftLeft: text = infix("<<"); break;
      case OpCode::kShiftRight: text = infix(">>"); break;
      case OpCode::kIsNan: {
        const std::string x = as(0, args[0]->rep);
        text = vector ? "to_mask(" + x + " != " + x + ")" : "(" + x + " != " + x + ")";
        break;
      }
      case OpCode::kIsInf: {
        if (!is_floating(args[0]->rep)) failure = "on integers";
        const std::string x = "vabs(" + as(0, args[0]->rep) + ")", inf = literal(INFINITY, args[0]->rep);
        text = vector ? "to_mask(" + x + " == " + inf + ")" : "(" + x + " == " + inf + ")";
        break;
      }
      case OpCode::kSignBit: {
        const DType rep = args[0]->rep;
        const std::string x = as(0, rep);
        if (rep == DType::kFloat32) text = vector ? "to_mask((vi)" + x + " < 0)" : "std::signbit(" + x + ")";
        else if (rep == DType::kFloat64) text = vector ? "to_mask((vl)" + x + " < 0)" : "std::signbit(" + x + ")";
        else text = vector ? "to_mask(" + x + " < 0)" : "(" + x + " < 0)";
        break;
      }
      case OpCode::kWhere: {
        if (args[0]->constant) {
          const bool taken = scalar_as_double(*args[0]->constant) != 0;
          text = as(taken ? 1 : 2, result.rep);
        } else if (!vector) {
          text = "(" + flag(0) + " ? " + as(1, result.rep) + " : " + as(2, result.rep) + ")";
        } else if (result.rep == DType::kBool) {
          text = "((" + flag(0) + " & " + as(1, DType::kBool) + ") | (~" + flag(0) + " & " + as(2, DType::kBool) + "))";
        } else {
          text = "select(" + flag(0) + ", " + as(1, result.rep) + ", " + as(2, result.rep) + ")";
        }
        break;
      }
      case OpCode::kIdentity: text = as(0, result.rep = args[0]->rep); result.range = args[0]->range; break;
      case OpCode::kToDType: {
        if (op.dtype == DType::kInt64 && args[0]->rep == DType::kInt32 && args[0]->range) {
          result.rep = DType::kInt32;
          result.range = args[0]->range;
        }
        text = as(0, result.rep);
        if (!op.use_compute_types && op.dtype == DType::kFloat16) text = "f16_to_float(float_to_f16(" + text + "))";
        if (!op.use_compute_types && op.dtype == DType::kBFloat16) text = "bf16_to_float(float_to_bf16(" + text + "))";
        break;
      }
      case OpCode::kBitcast: {
        const DType from = natural_rep(args[0]->type);
        if (dtype_bytes(args[0]->type) != dtype_bytes(op.dtype) || args[0]->type == DType::kFloat16 || args[0]->type == DType::kBFloat16 ||
            op.dtype == DType::kFloat16 || op.dtype == DType::kBFloat16 || args[0]->type == DType::kBool || op.dtype == DType::kBool)
          failure = "between these types";
        const std::string x = as(0, from);
        text = vector ? "((" + held_type(result.rep, true) + ")" + x + ")" : "__builtin_bit_cast(" + held_type(result.rep, false) + ", " + x + ")";
        break;
      }
      case OpCode::kLoad:
      case OpCode::kStore:
      case OpCode::kStoreReduction:
      case OpCode::kConstant:
      case OpCode::kIndexExpr:
      case OpCode::kIndirect:
      case OpCode::kCheckBounds:
      case OpCode::kMasked:
      case OpCode::kReduction:
      case OpCode::kGet:
      case OpCode::kScan:
      case OpCode::kSort:
      case OpCode::kLoadSeed:
      case OpCode::kRand:
      case OpCode::kRandn: failure = "is not pointwise"; break;
    }
    if (!failure.empty()) return unsupported(op, failure.c_str());
    result.text.push_back(std::move(text));
  }
  return result;
}

}  // namespace kernelopt::cpp
