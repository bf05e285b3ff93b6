#include <set>
#include <unordered_map>

#include "kernelopt/ir/program.h"
#include "kernelopt/ir/type_inference.h"

namespace kernelopt {
namespace {

Error wrong(const std::string& message) { return Error(ErrorCode::kInternal, message); }

// Number of arguments of a reduction.
int reduction_arity(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kWelfordCombine: return 3;
    case ReductionKind::kDot: return 2;
    case ReductionKind::kSum:
    case ReductionKind::kProd:
    case ReductionKind::kMax:
    case ReductionKind::kMin:
    case ReductionKind::kAny:
    case ReductionKind::kXorSum:
    case ReductionKind::kArgMax:
    case ReductionKind::kArgMin:
    case ReductionKind::kWelford:
    case ReductionKind::kOnlineSoftmax: break;
  }
  return 1;
}

class BodyVerifier {
 public:
  BodyVerifier(const Body& body, const Program& program) : body_(body), program_(program) {}

  Status run() {
    bool reduce = false;
    for (const auto& var : body_.vars) {
      if (var.name.empty() || !symbols_.insert(var.name).second) return wrong("loop variable " + var.name + " declared twice");
      if (var.extent < 1) return wrong("loop variable " + var.name + " has no iterations");
      if (var.kind == VarKind::kReduce) reduce = true;
      else if (reduce) return wrong("iteration variable " + var.name + " after a reduction variable");
    }
    if (!body_.block.params.empty() || !body_.block.results.empty()) return wrong("parameters or results of a whole body");
    KO_RETURN_IF_ERROR(block(body_.block, {}, false));
    return types();
  }

 private:
  // `values`: the number of results of each value in scope.
  using Scope = std::unordered_map<ValueId, size_t>;

  static std::string label(const Op& op) { return std::string(op_name(op.code)) + " " + std::to_string(op.id); }

  Status block(const Block& block, Scope scope, bool combine) {
    for (const ValueId param : block.params) KO_RETURN_IF_ERROR(define(param, 1, scope));
    const std::set<std::string> outer_symbols = symbols_;
    for (const auto& op : block.ops)
      if (auto status = one(op, scope, combine); !status.ok()) return wrong(label(op) + ": " + status.error().message());
    for (const ValueId result : block.results)
      if (!scope.count(result)) return wrong("block result " + std::to_string(result) + " is not defined");
    symbols_ = outer_symbols;
    return ok_status();
  }

  Status define(ValueId id, size_t results, Scope& scope) {
    if (id < 0) return wrong("a value without an id");
    if (!ids_.insert(id).second) return wrong("id " + std::to_string(id) + " defined twice");
    scope.emplace(id, results);
    return ok_status();
  }

  Status known_symbols(const Expr& expr) const {
    for (const auto& name : expr.variables())
      if (!symbols_.count(name)) return wrong("index uses " + name + ", which is not defined here");
    return ok_status();
  }

  Status one(const Op& op, Scope& scope, bool combine) {
    const int arity = op_arity(op.code);
    if (arity >= 0 && static_cast<size_t>(arity) != op.args.size())
      return wrong(std::to_string(op.args.size()) + " arguments instead of " + std::to_string(arity));
    for (const ValueId arg : op.args) {
      const auto found = scope.find(arg);
      if (found == scope.end()) return wrong("argument " + std::to_string(arg) + " is not defined before");
      if (op.code != OpCode::kGet && found->second != 1)
        return wrong("argument " + std::to_string(arg) + " has several results");
      if (op.code == OpCode::kGet && (op.which < 0 || static_cast<size_t>(op.which) >= found->second))
        return wrong("result " + std::to_string(op.which) + " does not exist");
    }
    const bool effect = op_type_rule(op.code) == TypeRule::kNone;
    if (combine && (effect || op_class(op.code) != OpClass::kPointwise)) return wrong("not allowed in a combine function");
    size_t results = 1;
    switch (op.code) {
      case OpCode::kLoad:
      case OpCode::kStore:
      case OpCode::kStoreReduction:
      case OpCode::kLoadSeed:
        if (!program_.buffers.count(op.buffer)) return wrong("unknown buffer " + op.buffer);
        KO_RETURN_IF_ERROR(known_symbols(op.index));
        break;
      case OpCode::kIndexExpr: KO_RETURN_IF_ERROR(known_symbols(op.index)); break;
      case OpCode::kCheckBounds:
        KO_RETURN_IF_ERROR(known_symbols(op.index));
        KO_RETURN_IF_ERROR(known_symbols(op.size));
        break;
      case OpCode::kIndirect:
        KO_RETURN_IF_ERROR(known_symbols(op.size));
        if (op.symbol.empty() || !symbols_.insert(op.symbol).second) return wrong("symbol " + op.symbol + " defined twice");
        break;
      case OpCode::kMasked:
        if (op.blocks.size() != 1 || !op.blocks[0].params.empty() || op.blocks[0].results.size() != 1)
          return wrong("one block without parameters and with one result expected");
        KO_RETURN_IF_ERROR(block(op.blocks[0], scope, combine));
        break;
      case OpCode::kReduction:
        if (op.args.size() != static_cast<size_t>(reduction_arity(op.reduction)))
          return wrong(std::string(reduction_name(op.reduction)) + " of " + std::to_string(op.args.size()) + " arguments");
        if (!body_.has_reduction_vars()) return wrong("reduction in a body without reduction variables");
        results = static_cast<size_t>(reduction_results(op.reduction));
        if (op.dtypes.size() != results) return wrong("result types are not filled in");
        break;
      case OpCode::kScan:
      case OpCode::kSort:
        results = op.dtypes.size();
        if (results == 0 || op.args.size() != results) return wrong("as many arguments as result types expected");
        if (op.code == OpCode::kSort) break;
        if (op.blocks.size() != 1 || op.blocks[0].params.size() != 2 * results || op.blocks[0].results.size() != results)
          return wrong("the combine function does not match the scanned values");
        KO_RETURN_IF_ERROR(block(op.blocks[0], {}, true));
        break;
      default: break;  // pointwise: arity is all there is
    }
    if (effect) return ok_status();
    return define(op.id, results, scope);
  }

  // The types in the body are those that inference gives.
  Status types() const {
    Body again = body_;
    KO_RETURN_IF_ERROR(infer_types(again, program_.buffers));
    std::vector<std::pair<DType, std::vector<DType>>> expected;
    for_each_op(again.block, [&](const Op& op) { expected.emplace_back(op.dtype, op.dtypes); });
    Status status = ok_status();
    size_t at = 0;
    for_each_op(body_.block, [&](const Op& op) {
      const auto& [type, all] = expected[at++];
      const bool typed = op_type_rule(op.code) != TypeRule::kNone || op.code == OpCode::kStore || op.code == OpCode::kStoreReduction;
      if (status.ok() && typed && (op.dtype != type || op.dtypes != all))
        status = wrong(label(op) + ": type " + dtype_name(op.dtype) + " instead of " + dtype_name(type));
    });
    return status;
  }

  const Body& body_;
  const Program& program_;
  std::set<std::string> symbols_;
  std::set<ValueId> ids_;
};

Status known(const Program& program, const std::string& name, const std::string& where) {
  if (program.buffers.count(name)) return ok_status();
  return wrong(where + ": unknown buffer " + name);
}

bool names(const std::vector<std::string>& list, const std::string& name) {
  for (const auto& item : list)
    if (item == name) return true;
  return false;
}

Status verify_step(const Step& step, const Program& program) {
  for (const auto* list : {&step.reads, &step.writes})
    for (const auto& name : *list) KO_RETURN_IF_ERROR(known(program, name, "step " + step.name));
  if (step.kind != StepKind::kGenerated && step.kind != StepKind::kExtern && !step.bodies.empty())
    return wrong("step " + step.name + ": bodies of a step that is neither generated nor a library call");
  if (step.refused && !step.bodies.empty()) return wrong("step " + step.name + ": refused, and yet with bodies");
  for (const auto& body : step.bodies) {
    if (auto status = verify(body, program); !status.ok())
      return std::move(status).error().with_context("body " + body.name).with_context("step " + step.name);
    Status status = ok_status();
    for_each_op(body.block, [&](const Op& op) {
      const bool store = op.code == OpCode::kStore || op.code == OpCode::kStoreReduction;
      if (store && !names(step.writes, op.buffer)) status = wrong("step " + step.name + " stores to " + op.buffer + ", which is not among its writes");
      if (op.code == OpCode::kLoad && !names(step.reads, op.buffer) && !names(step.writes, op.buffer))
        status = wrong("step " + step.name + " loads " + op.buffer + ", which is not among its reads");
    });
    KO_RETURN_IF_ERROR(status);
  }
  return ok_status();
}

}  // namespace

Status verify(const Body& body, const Program& program) { return BodyVerifier(body, program).run(); }

Status verify(const Program& program) {
  for (const auto& [name, buffer] : program.buffers) {
    if (name != buffer.name) return wrong("buffer " + name + " is filed under another name");
    if (buffer.size.size() != buffer.stride.size()) return wrong("buffer " + name + ": size and stride differ in rank");
    for (const int64_t extent : buffer.size)
      if (extent < 0) return wrong("buffer " + name + ": negative size");
    if (buffer.layout == LayoutKind::kNonOwning && !buffer.base) return wrong("buffer " + name + ": non-owning without a base");
    if (buffer.layout == LayoutKind::kMutation && !buffer.mutates) return wrong("buffer " + name + ": mutation of nothing");
    if (buffer.base) KO_RETURN_IF_ERROR(known(program, *buffer.base, "base of " + name));
    if (buffer.mutates) KO_RETURN_IF_ERROR(known(program, *buffer.mutates, "mutation target of " + name));
  }
  for (const auto& [name, buffer] : program.buffers) {
    const Buffer* at = &buffer;
    for (size_t hops = 0; at->base || at->mutates; ++hops) {
      if (hops > program.buffers.size()) return wrong("buffer " + name + ": its bases form a cycle");
      at = &program.buffers.at(at->mutates ? *at->mutates : *at->base);
    }
  }
  for (const auto& name : program.inputs) KO_RETURN_IF_ERROR(known(program, name, "inputs"));
  for (const auto& name : program.outputs) KO_RETURN_IF_ERROR(known(program, name, "outputs"));
  std::set<std::string> seen;
  for (const auto& step : program.steps) {
    if (!seen.insert(step.name).second) return wrong("two steps named " + step.name);
    KO_RETURN_IF_ERROR(verify_step(step, program));
  }
  return ok_status();
}

}  // namespace kernelopt
