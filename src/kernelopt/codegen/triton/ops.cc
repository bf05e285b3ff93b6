#include "kernelopt/codegen/triton/ops.h"

#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

namespace kernelopt::triton {
namespace {

// Prelude functions: name -> (functions it calls, source). Each is exact about NaN, infinities and signed zero where torch
// is. Only plain arithmetic and tl functions that the interpreter knows as well.
struct Helper {
  std::vector<std::string> calls;
  const char* source;
};

const std::map<std::string, Helper>& helpers_table() {
  static const std::map<std::string, Helper> table = {
      {"ko_max", {{}, "def ko_max(a, b):\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)\n"}},
      {"ko_min", {{}, "def ko_min(a, b):\n    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)\n"}},
      {"ko_add", {{}, "def ko_add(a, b):\n    return a + b\n"}},
      {"ko_mul", {{}, "def ko_mul(a, b):\n    return a * b\n"}},
      {"ko_or", {{}, "def ko_or(a, b):\n    return a | b\n"}},
      {"ko_and", {{}, "def ko_and(a, b):\n    return a & b\n"}},
      {"ko_xor", {{}, "def ko_xor(a, b):\n    return a ^ b\n"}},
      {"ko_argmax",
       {{},
        "def ko_argmax(av, ai, bv, bi):\n    an = av != av\n    bn = bv != bv\n    same = (av == bv) | (an & bn)\n"
        "    take = ((an & (bn == 0)) | ((av > bv) & (bn == 0))) | (same & (ai < bi))\n"
        "    return tl.where(take, av, bv), tl.where(take, ai, bi)\n"}},
      {"ko_argmin",
       {{},
        "def ko_argmin(av, ai, bv, bi):\n    an = av != av\n    bn = bv != bv\n    same = (av == bv) | (an & bn)\n"
        "    take = ((an & (bn == 0)) | ((av < bv) & (bn == 0))) | (same & (ai < bi))\n"
        "    return tl.where(take, av, bv), tl.where(take, ai, bi)\n"}},
      {"ko_welford",
       {{},
        "def ko_welford(am, a2, aw, bm, b2, bw):\n    w = aw + bw\n    d = bm - am\n    f = tl.where(w == 0.0, 0.0, bw / w)\n"
        "    return am + d * f, a2 + b2 + d * d * aw * f, w\n"}},
      {"ko_online",
       {{"ko_max"},
        "def ko_online(am, a, bm, b):\n    m = ko_max(am, bm)\n    fa = tl.where(am == m, 1.0, tl.exp(am - m))\n"
        "    fb = tl.where(bm == m, 1.0, tl.exp(bm - m))\n    return m, a * fa + b * fb\n"}},
      {"ko_floordiv",
       {{}, "def ko_floordiv(a, b):\n    q = a // b\n    r = a - q * b\n    return tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)\n"}},
      {"ko_mod", {{}, "def ko_mod(a, b):\n    r = a - (a // b) * b\n    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)\n"}},
      {"ko_fremainder", {{}, "def ko_fremainder(a, b):\n    r = a - tl.floor(a / b) * b\n    return r\n"}},
      {"ko_sign", {{}, "def ko_sign(a):\n    return (a > 0).to(a.dtype) - (a < 0).to(a.dtype)\n"}},
      {"ko_expm1",
       {{},
        "def ko_expm1(x):\n    s = x * (1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666668 + x * (0.008333334 + x * 0.0013888889)))))\n"
        "    return tl.where(tl.abs(x) < 0.35, s, tl.exp(x) - 1.0)\n"}},
      {"ko_log1p",
       {{},
        "def ko_log1p(x):\n    u = 1.0 + x\n    d = u - 1.0\n    c = tl.where(d == 0.0, x, tl.log(u) * (x / tl.where(d == 0.0, 1.0, d)))\n"
        "    return tl.where(u == float('inf'), u, c)\n"}},
      {"ko_tanh",
       {{"ko_expm1"},
        "def ko_tanh(x):\n    t = tl.abs(x)\n    e = ko_expm1(tl.minimum(2.0 * t, 60.0))\n    r = e / (e + 2.0)\n"
        "    r = tl.where(x != x, x, r)\n    return tl.where(x < 0, -r, r)\n"}},
      {"ko_sigmoid", {{}, "def ko_sigmoid(x):\n    return 1.0 / (1.0 + tl.exp(-x))\n"}},
      {"ko_round_even",
       {{},
        "def ko_round_even(x):\n    f = tl.floor(x)\n    d = x - f\n    odd = (f - 2.0 * tl.floor(f * 0.5)) != 0.0\n"
        "    up = (d > 0.5) | ((d == 0.5) & odd)\n    return tl.where(tl.abs(x) < 8388608.0, tl.where(up, f + 1.0, f), x)\n"}},
      {"ko_trunc", {{}, "def ko_trunc(x):\n    return tl.where(x < 0, tl.ceil(x), tl.floor(x))\n"}},
  };
  return table;
}

Result<std::string> unsupported(const Op& op) { return Error(ErrorCode::kUnsupported, std::string("op ") + op_name(op.code) + " in Triton"); }

}  // namespace

std::string type_text(DType type) {
  switch (type) {
    case DType::kBool: return "tl.int1";
    case DType::kUInt8: return "tl.uint8";
    case DType::kInt8: return "tl.int8";
    case DType::kInt16: return "tl.int16";
    case DType::kInt32: return "tl.int32";
    case DType::kInt64: return "tl.int64";
    case DType::kFloat16: return "tl.float16";
    case DType::kBFloat16: return "tl.bfloat16";
    case DType::kFloat32: return "tl.float32";
    case DType::kFloat64: return "tl.float64";
  }
  return "?";
}

std::string literal(const Scalar& value, DType type) {
  std::string text;
  if (is_floating(type)) {
    const double number = scalar_as_double(value);
    if (std::isnan(number)) text = "float('nan')";
    else if (std::isinf(number)) text = number > 0 ? "float('inf')" : "float('-inf')";
    else text = fmt::format("{:.17g}", number);
    if (text.find_first_of(".enai") == std::string::npos) text += ".0";
  } else if (type == DType::kBool) {
    text = scalar_as_double(value) != 0 ? "True" : "False";
  } else {
    text = std::holds_alternative<int64_t>(value) ? std::to_string(std::get<int64_t>(value))
                                                   : std::to_string(static_cast<int64_t>(scalar_as_double(value)));
  }
  return "tl.full([1, 1], " + text + ", " + type_text(type) + ")";
}

std::string as_type(const Value& value, DType type) {
  if (value.type == type && !value.narrow) return value.text;
  if (type == DType::kBool) return "(" + value.text + " != 0)";
  return value.text + ".to(" + type_text(type) + ")";
}

std::string after_load(DType type) {
  if (type == DType::kFloat16 || type == DType::kBFloat16) return ".to(tl.float32)";
  if (type == DType::kBool) return ".to(tl.int1)";
  return "";
}

Result<std::string> pointwise(const Op& op, const std::vector<Value>& args, std::vector<std::string>& helpers) {
  const auto call = [&](const char* name, const std::string& list) {
    helpers.push_back(name);
    return std::string(name) + "(" + list + ")";
  };
  // Comparisons run in the promoted type of their arguments; narrow integers stay narrow together.
  const auto common = [&](size_t first, size_t last) {
    DType type = args[first].type;
    bool narrow = args[first].narrow;
    for (size_t i = first + 1; i <= last; ++i) {
      type = promote(type, args[i].type);
      narrow = narrow && args[i].narrow;
    }
    std::vector<std::string> texts;
    for (size_t i = first; i <= last; ++i) texts.push_back(narrow && args[i].type == type ? args[i].text : as_type(args[i], type));
    return texts;
  };
  const auto arg = [&](size_t i) { return as_type(args[i], op.dtype); };
  const bool floating = is_floating(op.dtype);
  const bool double_precision = op.dtype == DType::kFloat64;
  const auto binary = [&](const char* sign) -> Result<std::string> {
    if (op.dtype == DType::kBool) return unsupported(op);
    return "(" + arg(0) + " " + sign + " " + arg(1) + ")";
  };
  const auto compare = [&](const char* sign) -> Result<std::string> {
    const auto texts = common(0, 1);
    return "(" + texts[0] + " " + sign + " " + texts[1] + ")";
  };
  const auto logical = [&](const char* sign) -> Result<std::string> {
    return "(" + as_type(args[0], DType::kBool) + " " + sign + " " + as_type(args[1], DType::kBool) + ")";
  };
  const auto bits = [&](const char* sign) -> Result<std::string> { return "(" + arg(0) + " " + sign + " " + arg(1) + ")"; };
  const auto library = [&](const char* name) -> Result<std::string> { return std::string("libdevice.") + name + "(" + arg(0) + ")"; };
  switch (op.code) {
    case OpCode::kConstant: return literal(op.value, op.dtype);
    case OpCode::kToDType: {
      if (is_integer(op.dtype) && is_floating(args[0].type)) return args[0].text + ".to(" + type_text(op.dtype) + ")";
      if ((op.dtype == DType::kFloat16 || op.dtype == DType::kBFloat16) && op.use_compute_types) return as_type(args[0], DType::kFloat32);
      if (op.dtype == DType::kFloat16 || op.dtype == DType::kBFloat16)
        return "(" + args[0].text + ".to(" + type_text(op.dtype) + ").to(tl.float32))";
      return as_type(args[0], op.dtype);
    }
    case OpCode::kBitcast: return args[0].text + ".to(" + type_text(op.dtype) + ", bitcast=True)";
    case OpCode::kIdentity: return arg(0);
    case OpCode::kAdd: return op.dtype == DType::kBool ? bits("|") : binary("+");
    case OpCode::kSub: return binary("-");
    case OpCode::kMul: return op.dtype == DType::kBool ? bits("&") : binary("*");
    case OpCode::kTrueDiv: return binary("/");
    case OpCode::kFloorDiv:
      if (floating) return "tl.floor(" + arg(0) + " / " + arg(1) + ")";
      return call("ko_floordiv", arg(0) + ", " + arg(1));
    case OpCode::kTruncDiv:
      if (floating) return call("ko_trunc", arg(0) + " / " + arg(1));
      return "(" + arg(0) + " // " + arg(1) + ")";
    case OpCode::kRemainder:
      if (floating) return call("ko_fremainder", arg(0) + ", " + arg(1));
      return call("ko_mod", arg(0) + ", " + arg(1));
    case OpCode::kMod:
    case OpCode::kFMod:
      if (floating) return std::string("libdevice.fmod(") + arg(0) + ", " + arg(1) + ")";
      return "(" + arg(0) + " % " + arg(1) + ")";
    case OpCode::kFma: return "(" + arg(0) + " * " + arg(1) + " + " + arg(2) + ")";
    case OpCode::kPow:
      if (!floating) return unsupported(op);
      return std::string("libdevice.pow(") + arg(0) + ", " + arg(1) + ")";
    case OpCode::kAtan2: return std::string("libdevice.atan2(") + arg(0) + ", " + arg(1) + ")";
    case OpCode::kCopySign: return std::string("libdevice.copysign(") + arg(0) + ", " + arg(1) + ")";
    case OpCode::kMaximum:
      if (op.dtype == DType::kBool) return bits("|");
      return floating ? call("ko_max", arg(0) + ", " + arg(1)) : "tl.maximum(" + arg(0) + ", " + arg(1) + ")";
    case OpCode::kMinimum:
      if (op.dtype == DType::kBool) return bits("&");
      return floating ? call("ko_min", arg(0) + ", " + arg(1)) : "tl.minimum(" + arg(0) + ", " + arg(1) + ")";
    case OpCode::kNeg: return "(-" + arg(0) + ")";
    case OpCode::kAbs: return "tl.abs(" + arg(0) + ")";
    case OpCode::kSign: return call("ko_sign", arg(0));
    case OpCode::kSquare: return "(" + arg(0) + " * " + arg(0) + ")";
    case OpCode::kReciprocal: return "(1.0 / " + arg(0) + ")";
    case OpCode::kSqrt: return double_precision ? "tl.sqrt(" + arg(0) + ")" : "tl.sqrt_rn(" + arg(0) + ")";
    case OpCode::kRsqrt: return double_precision ? "(1.0 / tl.sqrt(" + arg(0) + "))" : "tl.rsqrt(" + arg(0) + ")";
    case OpCode::kExp: return "tl.exp(" + arg(0) + ")";
    case OpCode::kExp2: return "tl.exp2(" + arg(0) + ")";
    case OpCode::kExpm1: return double_precision ? library("expm1") : call("ko_expm1", arg(0));
    case OpCode::kLog: return "tl.log(" + arg(0) + ")";
    case OpCode::kLog2: return "tl.log2(" + arg(0) + ")";
    case OpCode::kLog10: return library("log10");
    case OpCode::kLog1p: return double_precision ? library("log1p") : call("ko_log1p", arg(0));
    case OpCode::kErf: return "tl.erf(" + arg(0) + ")";
    case OpCode::kErfc: return library("erfc");
    case OpCode::kTanh: return double_precision ? library("tanh") : call("ko_tanh", arg(0));
    case OpCode::kSigmoid: return call("ko_sigmoid", arg(0));
    case OpCode::kSin: return "tl.sin(" + arg(0) + ")";
    case OpCode::kCos: return "tl.cos(" + arg(0) + ")";
    case OpCode::kTan: return library("tan");
    case OpCode::kAsin: return library("asin");
    case OpCode::kAcos: return library("acos");
    case OpCode::kAtan: return library("atan");
    case OpCode::kSinh: return library("sinh");
    case OpCode::kCosh: return library("cosh");
    case OpCode::kRelu:
      return floating ? call("ko_max", arg(0) + ", 0.0") : "tl.maximum(" + arg(0) + ", 0)";
    case OpCode::kFloor: return floating ? "tl.floor(" + arg(0) + ")" : arg(0);
    case OpCode::kCeil: return floating ? "tl.ceil(" + arg(0) + ")" : arg(0);
    case OpCode::kTrunc: return floating ? call("ko_trunc", arg(0)) : arg(0);
    case OpCode::kRound: return floating ? call("ko_round_even", arg(0)) : arg(0);
    case OpCode::kFloorToInt: return "tl.floor(" + args[0].text + ").to(" + type_text(op.dtype) + ")";
    case OpCode::kCeilToInt: return "tl.ceil(" + args[0].text + ").to(" + type_text(op.dtype) + ")";
    case OpCode::kTruncToInt: return args[0].text + ".to(" + type_text(op.dtype) + ")";
    case OpCode::kRoundToInt: return call("ko_round_even", args[0].text) + ".to(" + type_text(op.dtype) + ")";
    case OpCode::kEq: return compare("==");
    case OpCode::kNe: return compare("!=");
    case OpCode::kLt: return compare("<");
    case OpCode::kLe: return compare("<=");
    case OpCode::kGt: return compare(">");
    case OpCode::kGe: return compare(">=");
    case OpCode::kAnd:
    case OpCode::kBitwiseAnd: return bits("&");
    case OpCode::kOr:
    case OpCode::kBitwiseOr: return bits("|");
    case OpCode::kXor:
    case OpCode::kBitwiseXor: return bits("^");
    case OpCode::kLogicalAnd: return logical("&");
    case OpCode::kLogicalOr: return logical("|");
    case OpCode::kLogicalXor: return logical("^");
    case OpCode::kLogicalNot: return "(" + as_type(args[0], DType::kBool) + " == 0)";
    case OpCode::kBitwiseNot: return op.dtype == DType::kBool ? "(" + arg(0) + " == 0)" : "(~" + arg(0) + ")";
    case OpCode::kShiftLeft: return bits("<<");
    case OpCode::kShiftRight: return bits(">>");
    case OpCode::kIsNan: return "(" + args[0].text + " != " + args[0].text + ")";
    case OpCode::kIsInf: return "(tl.abs(" + args[0].text + ") == float('inf'))";
    case OpCode::kSignBit: return "((" + args[0].text + ").to(tl.int32, bitcast=True) < 0)";
    case OpCode::kWhere: return "tl.where(" + as_type(args[0], DType::kBool) + ", " + arg(1) + ", " + arg(2) + ")";
    case OpCode::kLoad:
    case OpCode::kStore:
    case OpCode::kStoreReduction:
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
    case OpCode::kRandn: return unsupported(op);
  }
  return unsupported(op);
}

std::string helper_source(const std::vector<std::string>& helpers) {
  std::set<std::string> wanted;
  std::vector<std::string> order;
  const auto visit = [&](const auto& self, const std::string& name) -> void {
    if (!wanted.insert(name).second) return;
    for (const auto& callee : helpers_table().at(name).calls) self(self, callee);
    order.push_back(name);
  };
  for (const auto& name : std::set<std::string>(helpers.begin(), helpers.end())) visit(visit, name);
  std::string source;
  for (const auto& name : order) source += std::string("@triton.jit\n") + helpers_table().at(name).source + "\n";
  return source;
}

}  // namespace kernelopt::triton
