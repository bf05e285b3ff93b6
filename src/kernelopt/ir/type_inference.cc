#include "kernelopt/ir/type_inference.h"

#include <unordered_map>
#include <utility>

namespace kernelopt {
namespace {

struct Types {
  DType first;
  std::vector<DType> all;
};

class Inference {
 public:
  explicit Inference(const std::map<std::string, Buffer>& buffers) : buffers_(buffers) {}

  Status block(Block& block) {
    for (auto& op : block.ops) KO_RETURN_IF_ERROR(one(op));
    return ok_status();
  }

 private:
  static Error malformed(const Op& op, const std::string& what) {
    return Error(ErrorCode::kInternal, std::string(op_name(op.code)) + " " + std::to_string(op.id) + ": " + what);
  }

  Result<Types> argument(const Op& op, size_t at) const {
    if (at >= op.args.size()) return malformed(op, "argument " + std::to_string(at) + " is missing");
    const auto found = types_.find(op.args[at]);
    if (found == types_.end()) return malformed(op, "argument " + std::to_string(op.args[at]) + " is not defined before");
    return found->second;
  }

  Result<DType> promoted(const Op& op, size_t begin) const {
    KO_TRY(const Types first, argument(op, begin));
    DType result = compute_dtype(first.first);
    for (size_t i = begin + 1; i < op.args.size(); ++i) {
      KO_TRY(const Types next, argument(op, i));
      result = promote(result, next.first);
    }
    return result;
  }

  Result<const Buffer*> buffer(const Op& op) const {
    const auto found = buffers_.find(op.buffer);
    if (found == buffers_.end()) return malformed(op, "unknown buffer " + op.buffer);
    return &found->second;
  }

  // The result type of a kGiven op.
  Status given(Op& op) {
    switch (op.code) {
      case OpCode::kLoad: {
        KO_TRY(const Buffer* source, buffer(op));
        op.dtype = compute_dtype(source->dtype);
        return ok_status();
      }
      case OpCode::kMasked: {
        if (op.blocks.size() != 1 || op.blocks[0].results.size() != 1) return malformed(op, "one block with one result expected");
        KO_RETURN_IF_ERROR(block(op.blocks[0]));
        const auto found = types_.find(op.blocks[0].results[0]);
        if (found == types_.end()) return malformed(op, "the block's result is not defined");
        op.dtype = found->second.first;
        return ok_status();
      }
      case OpCode::kReduction:
        if (op.reduction == ReductionKind::kArgMax || op.reduction == ReductionKind::kArgMin) op.dtype = DType::kInt64;
        op.dtype = compute_dtype(op.dtype);
        op.dtypes.assign(static_cast<size_t>(reduction_results(op.reduction)), op.dtype);
        return ok_status();
      case OpCode::kGet: {
        KO_TRY(const Types source, argument(op, 0));
        if (op.which < 0 || static_cast<size_t>(op.which) >= source.all.size())
          return malformed(op, "result " + std::to_string(op.which) + " does not exist");
        op.dtype = source.all[static_cast<size_t>(op.which)];
        return ok_status();
      }
      case OpCode::kScan:
      case OpCode::kSort: {
        if (op.dtypes.empty()) return malformed(op, "no result types");
        for (auto& type : op.dtypes) type = compute_dtype(type);
        op.dtype = op.dtypes.front();
        if (op.code == OpCode::kSort) return ok_status();
        if (op.blocks.size() != 1) return malformed(op, "one combine function expected");
        Block& combine = op.blocks[0];
        if (combine.params.size() != 2 * op.dtypes.size() || combine.results.size() != op.dtypes.size())
          return malformed(op, "the combine function's parameters or results do not match the scanned values");
        for (size_t i = 0; i < combine.params.size(); ++i) {
          const DType type = op.dtypes[i % op.dtypes.size()];
          types_[combine.params[i]] = {type, {type}};
        }
        return block(combine);
      }
      case OpCode::kToDType:
        if (op.use_compute_types) op.dtype = compute_dtype(op.dtype);
        return ok_status();
      case OpCode::kBitcast: return ok_status();  // the bits are those of the declared type
      case OpCode::kLoadSeed: op.dtype = DType::kInt64; return ok_status();
      default: op.dtype = compute_dtype(op.dtype); return ok_status();
    }
  }

  Status one(Op& op) {
    switch (op_type_rule(op.code)) {
      case TypeRule::kPromote: {
        KO_TRY(op.dtype, promoted(op, 0));
        break;
      }
      case TypeRule::kFloat: {
        KO_TRY(const DType type, promoted(op, 0));
        op.dtype = is_floating(type) ? type : DType::kFloat32;
        break;
      }
      case TypeRule::kBool: op.dtype = DType::kBool; break;
      case TypeRule::kSelect: {
        KO_TRY(op.dtype, promoted(op, 1));
        break;
      }
      case TypeRule::kGiven: KO_RETURN_IF_ERROR(given(op)); break;
      case TypeRule::kFirst: {
        KO_TRY(const Types first, argument(op, 0));
        op.dtype = first.first;
        break;
      }
      case TypeRule::kNone:
        if (op.code == OpCode::kStore || op.code == OpCode::kStoreReduction) {
          KO_TRY(const Buffer* target, buffer(op));
          op.dtype = target->dtype;
        }
        return ok_status();
    }
    Types types{op.dtype, op.dtypes};
    if (types.all.empty()) types.all = {op.dtype};
    types_[op.id] = std::move(types);
    return ok_status();
  }

  const std::map<std::string, Buffer>& buffers_;
  std::unordered_map<ValueId, Types> types_;
};

}  // namespace

Status infer_types(Body& body, const std::map<std::string, Buffer>& buffers) { return Inference(buffers).block(body.block); }

}  // namespace kernelopt
