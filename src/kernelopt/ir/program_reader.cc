// Reader of `kernelopt.program` documents (docs/formats.md).
//
// Three kinds of trouble, kept apart: another version or a data type of a buffer that the engine lacks (kUnsupported, the
// whole document), a malformed document (kInternal: the bridge's fault), and a step that uses something the engine does
// not know (the step becomes refused, with the reason, and stays the compiler's).
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "kernelopt/ir/program.h"
#include "kernelopt/ir/type_inference.h"

namespace kernelopt {
namespace {

using nlohmann::json;

// Thrown inside this file only, and caught in read_program and read_step.
struct Malformed {
  std::string message;
};
struct StepRefused {
  std::string reason;
};

const json* find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_or(const json& object, const char* key, std::string otherwise) {
  const json* value = find(object, key);
  return value ? value->get<std::string>() : std::move(otherwise);
}

bool flag(const json& object, const char* key, bool otherwise) {
  const json* value = find(object, key);
  return value ? value->get<bool>() : otherwise;
}

std::vector<std::string> texts(const json& object, const char* key) {
  const json* value = find(object, key);
  return value ? value->get<std::vector<std::string>>() : std::vector<std::string>{};
}

double non_finite(const std::string& text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw Malformed{"\"" + text + "\" is not a number"};
}

Scalar read_scalar(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
    return value.get<double>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  return non_finite(value.get<std::string>());
}

Expr read_expr(const json& value) {
  if (value.is_number_integer()) return Expr(value.get<int64_t>());
  if (value.is_string()) return Expr::var(value.get<std::string>());
  if (!value.is_object() || value.size() != 1) throw Malformed{"index expression " + value.dump()};
  const std::string kind = value.begin().key();
  std::vector<Expr> args;
  for (const auto& arg : value.begin().value()) args.push_back(read_expr(arg));
  if (args.empty()) throw Malformed{"index expression " + kind + " without arguments"};
  if (kind == "add") return Expr::add(std::move(args));
  if (kind == "mul") return Expr::mul(std::move(args));
  if (kind == "min") return Expr::min(std::move(args));
  if (kind == "max") return Expr::max(std::move(args));
  if (kind == "floordiv" || kind == "mod") {
    if (args.size() != 2) throw Malformed{kind + " of " + std::to_string(args.size()) + " arguments"};
    if (!args[1].is_const()) throw StepRefused{"index " + kind + " by a variable"};
    if (args[1].const_value() <= 0) throw StepRefused{"index " + kind + " by " + args[1].to_string()};
    return kind == "mod" ? Expr::mod(args[0], args[1]) : Expr::floordiv(args[0], args[1]);
  }
  throw StepRefused{"index expression " + kind};
}

DType step_dtype(const json& text) {
  auto type = parse_dtype(text.get<std::string>());
  if (!type.ok()) throw StepRefused{type.error().message()};
  return *type;
}

class BodyReader {
 public:
  Body read(const json& document) {
    Body body;
    body.name = document.at("name").get<std::string>();
    for (const auto& item : document.at("vars")) {
      LoopVar var;
      var.name = item.at("name").get<std::string>();
      var.extent = item.at("extent").get<int64_t>();
      const auto kind = item.at("kind").get<std::string>();
      if (kind != "iter" && kind != "reduce") throw Malformed{"loop variable kind " + kind};
      var.kind = kind == "iter" ? VarKind::kIter : VarKind::kReduce;
      if (var.extent < 1) throw StepRefused{"empty loop"};
      body.vars.push_back(std::move(var));
    }
    for (const auto& item : document.at("ops")) body.block.ops.push_back(read_op(item));
    return body;
  }

  // A to_dtype recorded without its source type takes the type of its argument.
  void fill_source_types(Body& body) const {
    std::unordered_map<ValueId, DType> types;
    for_each_op(body.block, [&](Op& op) {
      if (no_source_.count(op.id) && !op.args.empty())
        if (const auto found = types.find(op.args[0]); found != types.end()) op.src_dtype = found->second;
      types[op.id] = op.dtype;
    });
  }

 private:
  Block read_block(const json& document) {
    Block block;
    if (const json* params = find(document, "params")) block.params = params->get<std::vector<ValueId>>();
    for (const auto& item : document.at("ops")) block.ops.push_back(read_op(item));
    block.results = document.at("results").get<std::vector<ValueId>>();
    return block;
  }

  Op read_op(const json& document) {
    const auto name = document.at("op").get<std::string>();
    const auto code = parse_op(name);
    if (!code) throw StepRefused{"op " + name};
    Op op;
    op.code = *code;
    op.id = document.at("id").get<ValueId>();
    if (const json* args = find(document, "args")) op.args = args->get<std::vector<ValueId>>();
    if (const json* type = find(document, "dtype")) op.dtype = step_dtype(*type);
    if (const json* type = find(document, "src_dtype")) op.src_dtype = step_dtype(*type);
    if (const json* types = find(document, "dtypes"))
      for (const auto& type : *types) op.dtypes.push_back(step_dtype(type));
    switch (op.code) {
      case OpCode::kLoad:
      case OpCode::kStore:
      case OpCode::kStoreReduction: {
        op.buffer = document.at("buffer").get<std::string>();
        op.index = read_expr(document.at("index"));
        const std::string mode = text_or(document, "mode", "");
        if (mode == "atomic_add") op.atomic_add = true;
        else if (!mode.empty()) throw StepRefused{"store mode " + mode};
        break;
      }
      case OpCode::kConstant: op.value = read_scalar(document.at("value")); break;
      case OpCode::kIndexExpr: op.index = read_expr(document.at("index")); break;
      case OpCode::kIndirect:
        op.size = read_expr(document.at("size"));
        op.symbol = document.at("symbol").get<std::string>();
        op.check = flag(document, "check", true);
        op.wrap_neg = flag(document, "wrap_neg", true);
        break;
      case OpCode::kCheckBounds:
        op.index = read_expr(document.at("index"));
        op.size = read_expr(document.at("size"));
        op.lower = flag(document, "lower", true);
        op.upper = flag(document, "upper", true);
        break;
      case OpCode::kToDType:
      case OpCode::kBitcast:
        if (!find(document, "dtype")) throw Malformed{name + " without dtype"};
        if (!find(document, "src_dtype")) no_source_.insert(op.id);
        op.use_compute_types = flag(document, "use_compute_types", true);
        break;
      case OpCode::kMasked:
        op.value = read_scalar(document.at("value"));
        op.blocks.push_back(read_block(document.at("block")));
        break;
      case OpCode::kReduction: {
        const auto type = document.at("type").get<std::string>();
        const auto kind = parse_reduction(type);
        if (!kind) throw StepRefused{"reduction " + type};
        if (!find(document, "dtype")) throw Malformed{"reduction without dtype"};
        if (!find(document, "src_dtype")) op.src_dtype = op.dtype;
        op.reduction = *kind;
        break;
      }
      case OpCode::kGet: op.which = document.at("which").get<int>(); break;
      case OpCode::kScan: op.blocks.push_back(read_block(document.at("block"))); break;
      case OpCode::kSort:
        op.stable = flag(document, "stable", false);
        op.descending = flag(document, "descending", false);
        break;
      case OpCode::kLoadSeed:
        op.buffer = document.at("buffer").get<std::string>();
        op.value = document.at("offset").get<int64_t>();
        break;
      default: break;  // pointwise: nothing but args and dtype
    }
    return op;
  }

  std::set<ValueId> no_source_;
};

Buffer read_buffer(const std::string& name, const json& document) {
  Buffer buffer;
  buffer.name = name;
  const auto kind = document.at("kind").get<std::string>();
  if (kind == "input") buffer.kind = BufferKind::kInput;
  else if (kind == "constant") buffer.kind = BufferKind::kConstant;
  else if (kind == "computed") buffer.kind = BufferKind::kComputed;
  else throw Malformed{"buffer kind " + kind};
  const auto layout = text_or(document, "layout", "fixed");
  if (layout == "fixed") buffer.layout = LayoutKind::kFixed;
  else if (layout == "mutation") buffer.layout = LayoutKind::kMutation;
  else if (layout == "non_owning") buffer.layout = LayoutKind::kNonOwning;
  else if (layout == "none") buffer.layout = LayoutKind::kNone;
  else throw Malformed{"layout " + layout};
  if (const json* size = find(document, "size")) buffer.size = size->get<std::vector<int64_t>>();
  if (const json* stride = find(document, "stride")) buffer.stride = stride->get<std::vector<int64_t>>();
  if (buffer.size.size() != buffer.stride.size()) throw Malformed{"size and stride differ in rank"};
  if (const json* offset = find(document, "offset")) buffer.offset = offset->get<int64_t>();
  buffer.device = text_or(document, "device", "");
  if (const json* base = find(document, "base")) buffer.base = base->get<std::string>();
  if (const json* mutates = find(document, "mutates")) buffer.mutates = mutates->get<std::string>();
  buffer.is_output = flag(document, "is_output", false);
  buffer.removable = flag(document, "removable", false);
  if (const json* value = find(document, "value")) buffer.value = scalar_as_double(read_scalar(*value));
  return buffer;
}

StepKind read_step_kind(const std::string& text) {
  if (text == "generated") return StepKind::kGenerated;
  if (text == "extern") return StepKind::kExtern;
  if (text == "template") return StepKind::kTemplate;
  if (text == "nop") return StepKind::kNop;
  throw Malformed{"step kind " + text};
}

StridedOperand read_operand(const json& document) {
  StridedOperand operand;
  operand.name = document.at("name").get<std::string>();
  operand.size = document.at("size").get<std::vector<int64_t>>();
  operand.stride = document.at("stride").get<std::vector<int64_t>>();
  operand.offset = document.at("offset").get<int64_t>();
  return operand;
}

ConvolutionNumbers read_convolution(const json& document) {
  ConvolutionNumbers numbers;
  if (const json* transposed = find(document, "transposed")) numbers.transposed = transposed->get<bool>();
  if (const json* groups = find(document, "groups")) numbers.groups = groups->get<int64_t>();
  numbers.stride = document.at("stride").get<std::vector<int64_t>>();
  numbers.padding = document.at("padding").get<std::vector<int64_t>>();
  numbers.dilation = document.at("dilation").get<std::vector<int64_t>>();
  numbers.x = read_operand(document.at("x"));
  numbers.w = read_operand(document.at("w"));
  numbers.out = read_operand(document.at("out"));
  const size_t rank = numbers.stride.size();
  for (const auto* values : {&numbers.padding, &numbers.dilation})
    if (values->size() != rank) throw Malformed{"a convolution of unclear rank"};
  for (const auto* operand : {&numbers.x, &numbers.w, &numbers.out})
    if (operand->size.size() != rank + 2 || operand->stride.size() != rank + 2) throw Malformed{"a convolution of unclear rank"};
  return numbers;
}

Step read_step(const json& document, const std::map<std::string, Buffer>& buffers) {
  Step step;
  step.name = document.at("name").get<std::string>();
  step.kind = read_step_kind(document.at("kind").get<std::string>());
  step.reads = texts(document, "reads");
  step.writes = texts(document, "writes");
  step.last_use = texts(document, "last_use");
  step.origins = texts(document, "origins");
  if (const json* refused = find(document, "refused")) step.refused = refused->get<std::string>();
  if (const json* call = find(document, "extern")) {
    step.extern_call.call = text_or(*call, "call", "");
    step.extern_call.op = text_or(*call, "op", "");
    step.extern_call.args = texts(*call, "args");
    if (const json* numbers = find(*call, "convolution")) step.extern_call.convolution = read_convolution(*numbers);
    step.extern_call.scan = find(*call, "scan") != nullptr;
    step.extern_call.pool = find(*call, "pool") != nullptr;
  }
  const json* bodies = find(document, "bodies");
  if (step.refused || !bodies) return step;
  try {
    for (const auto& item : *bodies) {
      BodyReader reader;
      Body body = reader.read(item);
      if (auto status = infer_types(body, buffers); !status.ok()) throw Malformed{body.name + ": " + status.error().message()};
      reader.fill_source_types(body);
      step.bodies.push_back(std::move(body));
    }
  } catch (const StepRefused& refused) {
    step.refused = refused.reason;
    step.bodies.clear();
  }
  return step;
}

// Runs `part` and puts `place` before whatever it throws.
template <typename Part>
auto in(const std::string& place, Part&& part) {
  try {
    return part();
  } catch (const Malformed& malformed) {
    throw Malformed{place + ": " + malformed.message};
  } catch (const json::exception& error) {
    throw Malformed{place + ": " + error.what()};
  }
}

Program read_document(const json& document) {
  Program program;
  program.torch = document.at("torch").get<std::string>();
  program.adapter = text_or(document, "adapter", "");
  program.device = document.at("device").get<std::string>();
  program.graph = document.at("graph").get<int>();
  program.inputs = texts(document, "inputs");
  program.outputs = texts(document, "outputs");
  for (const auto& [name, item] : document.at("buffers").items()) {
    if (const json* type = find(item, "dtype")) {
      const auto parsed = parse_dtype(type->get<std::string>());
      if (!parsed.ok()) throw StepRefused{"buffer " + name + ": " + parsed.error().message()};
      Buffer buffer = in("buffer " + name, [&, &item = item, &name = name] { return read_buffer(name, item); });
      buffer.dtype = *parsed;
      program.buffers.emplace(name, std::move(buffer));
    } else {
      // Layout `none`: a tuple of results or an effect; it has no element type.
      program.buffers.emplace(name, in("buffer " + name, [&, &item = item, &name = name] { return read_buffer(name, item); }));
    }
  }
  for (const auto& item : document.at("steps")) {
    const std::string name = text_or(item, "name", "without a name");
    program.steps.push_back(in("step " + name, [&] { return read_step(item, program.buffers); }));
  }
  program.wrapper = text_or(document, "wrapper", "");
  if (const json* kernels = find(document, "kernels"))
    for (const auto& item : *kernels)
      program.kernels.push_back({item.at("name").get<std::string>(), text_or(item, "source", "")});
  return program;
}

}  // namespace

Result<Program> read_program(const json& document) {
  try {
    if (!document.is_object() || text_or(document, "format", "") != "kernelopt.program")
      return Error(ErrorCode::kInternal, "not a kernelopt.program document");
    const int version = document.at("version").get<int>();
    if (version != kProgramVersion)
      return Error(ErrorCode::kUnsupported, "kernelopt.program version " + std::to_string(version) +
                                                "; this engine reads version " + std::to_string(kProgramVersion));
    Program program = read_document(document);
    if (auto status = verify(program); !status.ok()) return std::move(status).error().with_context("program document");
    return program;
  } catch (const Malformed& malformed) {
    return Error(ErrorCode::kInternal, "program document: " + malformed.message);
  } catch (const StepRefused& refused) {
    return Error(ErrorCode::kUnsupported, "program document: " + refused.reason);
  } catch (const json::exception& error) {
    return Error(ErrorCode::kInternal, std::string("program document: ") + error.what());
  }
}

Result<Program> read_program_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error(ErrorCode::kIo, "cannot open " + path);
  json document;
  try {
    document = json::parse(file);
  } catch (const json::exception& error) {
    return Error(ErrorCode::kInternal, path + ": " + error.what());
  }
  auto program = read_program(document);
  if (!program.ok()) return std::move(program).error().with_context(path);
  return program;
}

}  // namespace kernelopt
