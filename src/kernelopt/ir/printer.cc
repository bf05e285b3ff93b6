// print(Body): one op a line, nested blocks indented. For people, reports and goldens; nothing parses it.
#include <charconv>
#include <sstream>

#include "kernelopt/ir/program.h"

namespace kernelopt {
namespace {

std::string scalar_text(const Scalar& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const int64_t* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  char text[32];  // the shortest text that reads back as the same number
  const auto end = std::to_chars(text, text + sizeof text, std::get<double>(value));
  return std::string(text, end.ptr);
}

std::string values(const std::vector<ValueId>& ids) {
  std::string text;
  for (const ValueId id : ids) text += (text.empty() ? "%" : ", %") + std::to_string(id);
  return text;
}

std::string types(const std::vector<DType>& all) {
  std::string text;
  for (const DType type : all) text += (text.empty() ? "" : ", ") + std::string(dtype_name(type));
  return all.size() == 1 ? text : "(" + text + ")";
}

std::string fields(const Op& op) {
  const std::string at = "[" + op.index.to_string() + "]";
  switch (op.code) {
    case OpCode::kLoad: return op.buffer + at;
    case OpCode::kStore: return op.buffer + at + " = " + values(op.args) + (op.atomic_add ? " atomic_add" : "");
    case OpCode::kStoreReduction: return op.buffer + at + " = " + values(op.args);
    case OpCode::kConstant: return scalar_text(op.value);
    case OpCode::kIndexExpr: return op.index.to_string();
    case OpCode::kIndirect:
      return op.symbol + " = " + values(op.args) + " size " + op.size.to_string() + (op.wrap_neg ? " wrap_neg" : "") +
             (op.check ? " check" : "");
    case OpCode::kCheckBounds:
      return op.index.to_string() + " size " + op.size.to_string() + (op.lower ? " lower" : "") + (op.upper ? " upper" : "");
    case OpCode::kMasked: return values(op.args) + " else " + scalar_text(op.value);
    case OpCode::kReduction:
      return std::string(reduction_name(op.reduction)) + " " + values(op.args) + " from " + dtype_name(op.src_dtype);
    case OpCode::kGet: return values(op.args) + " result " + std::to_string(op.which);
    case OpCode::kSort: return values(op.args) + (op.stable ? " stable" : "") + (op.descending ? " descending" : "");
    case OpCode::kLoadSeed: return op.buffer + " offset " + scalar_text(op.value);
    case OpCode::kToDType:
      return values(op.args) + " from " + dtype_name(op.src_dtype) + (op.use_compute_types ? "" : " rounding");
    case OpCode::kBitcast: return values(op.args) + " from " + dtype_name(op.src_dtype);
    default: return values(op.args);
  }
}

void print_block(std::ostringstream& out, const Block& block, const std::string& indent) {
  if (!block.params.empty()) out << indent << "params " << values(block.params) << "\n";
  for (const auto& op : block.ops) {
    out << indent;
    const bool effect = op_type_rule(op.code) == TypeRule::kNone;
    if (!effect) out << "%" << op.id << " = ";
    out << op_name(op.code);
    if (const std::string text = fields(op); !text.empty()) out << " " << text;
    if (!effect) out << " : " << (op.dtypes.empty() ? dtype_name(op.dtype) : types(op.dtypes));
    out << "\n";
    for (const auto& inner : op.blocks) print_block(out, inner, indent + "  ");
  }
  if (!block.results.empty()) out << indent << "yield " << values(block.results) << "\n";
}

}  // namespace

std::string print(const Body& body) {
  std::ostringstream out;
  out << body.name;
  for (const auto& var : body.vars)
    out << " " << (var.kind == VarKind::kReduce ? "reduce " : "") << var.name << "<" << var.extent;
  out << "\n";
  print_block(out, body.block, "  ");
  return out.str();
}

}  // namespace kernelopt
