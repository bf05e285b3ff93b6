// Reductions and scans of a phase: accumulators before the reduction loops, one step a point, the result after them.
#include <algorithm>
#include <cmath>

#include "kernelopt/base/check.h"
#include "kernelopt/codegen/cpp/nest_printer.h"

namespace kernelopt::cpp {
namespace {

Error unsupported(const std::string& what) { return Error(ErrorCode::kUnsupported, what); }
std::string num(size_t n) { return std::to_string(n); }

// The value that changes nothing.
std::string neutral(ReductionKind kind, DType rep) {
  switch (kind) {
    case ReductionKind::kSum:
    case ReductionKind::kAny:
    case ReductionKind::kXorSum: return rep == DType::kBool ? "false" : literal(0.0, rep);
    case ReductionKind::kProd: return literal(1.0, rep);
    case ReductionKind::kMax:
    case ReductionKind::kArgMax:
      if (rep == DType::kBool) return "false";
      return is_floating(rep) ? literal(-INFINITY, rep) : std::string("std::numeric_limits<") + memory_type(rep) + ">::lowest()";
    case ReductionKind::kMin:
    case ReductionKind::kArgMin:
      if (rep == DType::kBool) return "true";
      return is_floating(rep) ? literal(INFINITY, rep) : std::string("std::numeric_limits<") + memory_type(rep) + ">::max()";
    case ReductionKind::kWelford:
    case ReductionKind::kWelfordCombine:
    case ReductionKind::kOnlineSoftmax:
    case ReductionKind::kDot: break;
  }
  return "0";
}

bool is_plain(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kSum:
    case ReductionKind::kProd:
    case ReductionKind::kMax:
    case ReductionKind::kMin:
    case ReductionKind::kAny:
    case ReductionKind::kXorSum: return true;
    case ReductionKind::kArgMax:
    case ReductionKind::kArgMin:
    case ReductionKind::kWelford:
    case ReductionKind::kWelfordCombine:
    case ReductionKind::kOnlineSoftmax:
    case ReductionKind::kDot: return false;
  }
  return false;
}

std::string joined(ReductionKind kind, DType rep, const std::string& a, const std::string& b) {
  const bool boolean = rep == DType::kBool;
  switch (kind) {
    case ReductionKind::kSum: return boolean ? a + " | " + b : a + " + " + b;
    case ReductionKind::kProd: return boolean ? a + " & " + b : a + " * " + b;
    case ReductionKind::kMax: return boolean ? a + " | " + b : "vmax(" + a + ", " + b + ")";
    case ReductionKind::kMin: return boolean ? a + " & " + b : "vmin(" + a + ", " + b + ")";
    case ReductionKind::kAny: return a + " | " + b;
    case ReductionKind::kXorSum: return a + " ^ " + b;
    default: return a;
  }
}

std::string across_lanes(ReductionKind kind, DType rep, const std::string& v) {
  if (rep == DType::kBool) {
    const bool both = kind == ReductionKind::kMin || kind == ReductionKind::kProd;
    if (kind == ReductionKind::kXorSum) return "(hxor(" + v + ") != 0)";
    return (both ? "all(" : "any(") + v + ")";
  }
  switch (kind) {
    case ReductionKind::kSum: return "hsum(" + v + ")";
    case ReductionKind::kProd: return "hprod(" + v + ")";
    case ReductionKind::kMax: return "hmax(" + v + ")";
    case ReductionKind::kMin: return "hmin(" + v + ")";
    case ReductionKind::kAny: return "fold_all(" + v + ", [](auto a, auto b) { return a | b; })[0]";
    default: return "hxor(" + v + ")";
  }
}

// The type in which a plain reduction accumulates.
DType accumulator_rep(const Op& op) {
  if (op.reduction == ReductionKind::kAny) return DType::kBool;
  return natural_rep(op.dtype);
}

// The functor of the prelude for a scan that is one sum or product of numbers; empty for any other.
std::string plain_scan(const Op& scan) {
  if (scan.args.size() != 1 || natural_rep(scan.dtypes.empty() ? scan.dtype : scan.dtypes[0]) == DType::kBool) return "";
  const Block& block = scan.blocks[0];
  if (block.ops.size() != 1 || block.results != std::vector<ValueId>{block.ops[0].id}) return "";
  const Op& op = block.ops[0];
  if (op.args != block.params && op.args != std::vector<ValueId>{block.params[1], block.params[0]}) return "";
  return op.code == OpCode::kAdd ? "ScanSum" : op.code == OpCode::kMul ? "ScanProduct" : "";
}

}  // namespace

// Whether any of the reduction's inputs depends on the vector loop: decided on the body, because the inputs are printed
// only inside the loops.
static bool input_varies(const FlatBody& body, const std::string& vector_loop, const LoweredKernel& kernel, bool shared,
                         const std::vector<ValueId>& roots) {
  std::map<ValueId, bool> varies;
  std::map<std::string, bool> symbols;
  for (const auto& f : body.ops) {
    bool v = false;
    for (ValueId arg : f.op.args) v = v || varies[arg];
    for (const Expr* expr : {&f.op.index, &f.op.size})
      for (const auto& name : expr->variables()) {
        v = v || name == vector_loop;
        if (const auto at = symbols.find(name); at != symbols.end()) v = v || at->second;
      }
    if (f.op.code == OpCode::kLoad && shared) {
      const Place place = kernel.buffers.at(f.op.buffer).place;
      v = v || place == Place::kLocal || place == Place::kRegister;
    }
    if (f.op.code == OpCode::kIndirect) symbols[f.op.symbol] = v;
    if (f.op.id != kNoValue) varies[f.op.id] = v;
  }
  return std::any_of(roots.begin(), roots.end(), [&](ValueId id) { return varies[id]; });
}

Status NestPrinter::declare_reduction(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  Accumulator a;
  const bool reduce = is_vector_reduce();
  a.vector = reduce || input_varies(phase_->body, phase_->vector_loop, *text_.kernel, nest_.axis == VectorAxis::kShared, op.args);
  a.copies = 1;
  if (reduce) {
    const int64_t lanes = text_.kernel->lanes;
    a.copies = static_cast<size_t>(std::max<int64_t>(1, std::min<int64_t>(phase_->unroll, (extent_of_vector_ + lanes - 1) / lanes)));
  } else if (a.vector) {
    a.copies = instance.copies;
  }
  const DType rep = accumulator_rep(op);
  const auto declare = [&](const std::string& stem, DType type, const std::string& start) {
    for (size_t u = 0; u < a.copies; ++u) {
      const std::string filled = !a.vector ? start : type == DType::kBool ? "splat_mask(" + start + ")" : "splat<" + std::string(memory_type(type)) + ">(" + start + ")";
      line(held_type(type, a.vector) + " " + stem + "_" + num(u) + " = " + filled + ";");
    }
    a.parts.push_back(stem);
  };
  switch (op.reduction) {
    case ReductionKind::kSum:
    case ReductionKind::kProd:
    case ReductionKind::kMax:
    case ReductionKind::kMin:
    case ReductionKind::kAny:
    case ReductionKind::kXorSum:
      declare(fresh("a"), rep, neutral(op.reduction, rep));
      declare_total(f, a);
      break;
    case ReductionKind::kArgMax:
    case ReductionKind::kArgMin: {
      const FlatOp* input = phase_->body.definition(op.args[0]);
      DType type = natural_rep(input->op.dtype);
      if (type == DType::kBool) type = DType::kInt32;
      declare(fresh("best"), type, neutral(op.reduction, type));
      const bool narrow = phase_->body.reduce_elements() < INT32_MAX / 2;
      declare(fresh("at"), narrow ? DType::kInt32 : DType::kInt64, "0");
      break;
    }
    case ReductionKind::kWelford: KO_RETURN_IF_ERROR(declare_welford(f, a)); break;
    case ReductionKind::kWelfordCombine:
      if (!is_floating(rep)) return unsupported("welford of integers");
      declare(fresh("mean"), rep, "0");
      declare(fresh("m2"), rep, "0");
      declare(fresh("weight"), rep, "0");
      break;
    case ReductionKind::kOnlineSoftmax:
      if (rep != DType::kFloat32) return unsupported("online softmax in this type");
      text_.needs.math = true;
      declare(fresh("top"), rep, neutral(ReductionKind::kMax, rep));
      declare(fresh("total"), rep, "0");
      break;
    case ReductionKind::kDot: return unsupported("reduction dot");
  }
  accumulators_[op.id] = a;
  return ok_status();
}

Status NestPrinter::update_reduction(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  if (op.reduction == ReductionKind::kWelford) {
    update_welford(f, instance);
    return ok_status();
  }
  const Accumulator& a = accumulators_.at(op.id);
  const bool reduce = is_vector_reduce();
  const size_t copies = reduce ? instance.copies : a.copies;
  for (size_t u = 0; u < copies; ++u) {
    // Lanes past the end must not count where lanes are reduced over.
    const bool tail = reduce && instance.tail > 0 && u + 1 == instance.copies;
    const std::string mask = tail ? "tail_mask(" + std::to_string(instance.tail) + ")" : "";
    const auto name = [&](size_t part) { return a.parts[part] + "_" + num(u); };
    const auto in = [&](size_t i, DType rep) { return operand(value(op.args[i]), rep, a.vector, u); };
    if (is_plain(op.reduction)) {
      const DType rep = accumulator_rep(op);
      std::string next = joined(op.reduction, rep, name(0), in(0, rep));
      if (tail) {
        if (rep == DType::kBool) next = "(" + mask + " & (" + next + ")) | (~" + mask + " & " + name(0) + ")";
        else next = "select(" + mask + ", " + held_type(rep, true) + "(" + next + "), " + name(0) + ")";
      }
      line(name(0) + " = " + next + ";");
      continue;
    }
    switch (op.reduction) {
      case ReductionKind::kArgMax:
      case ReductionKind::kArgMin: {
        DType type = natural_rep(phase_->body.definition(op.args[0])->op.dtype);
        if (type == DType::kBool) type = DType::kInt32;
        const bool narrow = phase_->body.reduce_elements() < INT32_MAX / 2;
        const Expr index = op.index;  // row-major over the reduction loops as the body was written
        const std::string less = op.reduction == ReductionKind::kArgMin ? "true" : "false";
        const DType index_type = narrow ? DType::kInt32 : DType::kInt64;
        // A second argument is the index itself.
        std::string at;
        if (op.args.size() > 1) at = in(1, index_type);
        else at = a.vector ? vector_text(index, u, narrow) : std::string(memory_type(index_type)) + "(" + scalar_text(index, 0) + ")";
        if (a.vector) line("arg_step<" + less + ">(" + name(0) + ", " + name(1) + ", " + in(0, type) + ", " + at + ", " + (tail ? mask : "splat_mask(true)") + ");");
        else line("arg_step1<" + less + ">(" + name(0) + ", " + name(1) + ", " + in(0, type) + ", " + at + ");");
        break;
      }
      case ReductionKind::kWelfordCombine: {
        const DType rep = natural_rep(op.dtype);
        const std::string weight = fresh("w");
        const std::string type = held_type(rep, a.vector);
        line(type + " " + weight + " = " + in(2, rep) + ";");
        if (tail) line(weight + " = select(" + mask + ", " + weight + ", " + type + "{});");
        line("welford_join<" + type + ">(" + name(0) + ", " + name(1) + ", " + name(2) + ", " + in(0, rep) + ", " + in(1, rep) + ", " + weight + ");");
        break;
      }
      case ReductionKind::kOnlineSoftmax: {
        const std::string x = fresh("x");
        line("const " + held_type(DType::kFloat32, a.vector) + " " + x + " = " + in(0, DType::kFloat32) + ";");
        line("online_step(" + name(0) + ", " + name(1) + ", " + (tail ? "select(" + mask + ", " + x + ", splat(" + literal(-INFINITY, DType::kFloat32) + "))" : x) + ");");
        break;
      }
      default: return unsupported(std::string("reduction ") + reduction_name(op.reduction));
    }
  }
  return ok_status();
}

Status NestPrinter::finish_reduction(const FlatOp& f) {
  const Op& op = f.op;
  const Accumulator& a = accumulators_.at(op.id);
  const bool reduce = is_vector_reduce();
  std::vector<Value> results;
  const auto result_value = [&](const std::string& stem, DType rep, DType type) {
    Value v;
    v.type = type;
    v.rep = rep;
    v.vector = a.vector && !reduce;
    if (v.vector)
      for (size_t u = 0; u < a.copies; ++u) v.text.push_back(stem + "_" + num(u));
    else
      v.text.push_back(stem);
    return v;
  };
  if (op.reduction == ReductionKind::kWelford) {
    results = finish_welford(f);
  } else if (!a.totals.empty()) {
    results = finish_sum(f);
  } else if (is_plain(op.reduction)) {
    const DType rep = accumulator_rep(op);
    if (!reduce) {
      results.push_back(result_value(a.vector ? a.parts[0] : a.parts[0] + "_0", rep, op.dtype));
    } else {
      // Pairwise over the copies, then over the lanes.
      for (size_t step = 1; step < a.copies; step *= 2)
        for (size_t u = 0; u + step < a.copies; u += 2 * step) {
          const std::string left = a.parts[0] + "_" + num(u), right = a.parts[0] + "_" + num(u + step);
          line(left + " = " + joined(op.reduction, rep, left, right) + ";");
        }
      const std::string name = fresh("r");
      line("const " + held_type(rep, false) + " " + name + " = " + across_lanes(op.reduction, rep, a.parts[0] + "_0") + ";");
      results.push_back(result_value(name, rep, op.dtype));
    }
    if (rep != natural_rep(op.dtype)) {
      // any() of a reduction declared as an integer
      Value& v = results[0];
      for (auto& text : v.text) text = convert_text(text, rep, natural_rep(op.dtype), v.vector);
      v.rep = natural_rep(op.dtype);
    }
  } else if (op.reduction == ReductionKind::kArgMax || op.reduction == ReductionKind::kArgMin) {
    const bool narrow = phase_->body.reduce_elements() < INT32_MAX / 2;
    const DType rep = narrow ? DType::kInt32 : DType::kInt64;
    std::string stem = a.parts[1];
    if (!a.vector) stem += "_0";
    if (reduce) {
      const std::string best = fresh("best"), at = fresh("at");
      line("auto " + best + " = " + a.parts[0] + "_0[0];");
      line("auto " + at + " = " + a.parts[1] + "_0[0];");
      for (size_t u = 0; u < a.copies; ++u)
        line("for (int l = 0; l < W; ++l) arg_join1<" + std::string(op.reduction == ReductionKind::kArgMin ? "true" : "false") + ">(" + best + ", " + at +
             ", " + a.parts[0] + "_" + num(u) + "[l], " + a.parts[1] + "_" + num(u) + "[l]);");
      stem = at;
    }
    Value v = result_value(stem, rep, DType::kInt64);
    v.range = Interval{0, phase_->body.reduce_elements() - 1};
    results.push_back(v);
  } else {
    const bool welford = op.reduction != ReductionKind::kOnlineSoftmax;
    const DType rep = natural_rep(op.dtype);
    std::vector<std::string> stems;
    for (const auto& part : a.parts) stems.push_back(a.vector ? part : part + "_0");
    if (reduce) {
      const auto list = [&](size_t u) {
        std::string text;
        for (const auto& part : a.parts) text += (text.empty() ? "" : ", ") + part + "_" + num(u);
        return text;
      };
      const std::string type = held_type(rep, true);
      for (size_t u = 1; u < a.copies; ++u) line((welford ? "welford_join<" : "online_join<") + type + ">(" + list(0) + ", " + list(u) + ");");
      line((welford ? "welford_across(" : "online_across(") + list(0) + ");");
      for (auto& stem : stems) stem += "_0[0]";
    }
    if (!welford) {
      // Nothing but -inf: the differences are NaN in the two-pass form.
      if (reduce) {
        const std::string total = fresh("sum");
        line("const float " + total + " = " + stems[0] + " == -std::numeric_limits<float>::infinity() ? std::numeric_limits<float>::quiet_NaN() : " + stems[1] + ";");
        stems[1] = total;
      } else {
        for (size_t u = 0; u < a.copies; ++u) {
          const std::string top = a.parts[0] + "_" + num(u), total = a.parts[1] + "_" + num(u);
          line(total + " = " + top + " == -std::numeric_limits<float>::infinity() ? " + (a.vector ? "splat(std::numeric_limits<float>::quiet_NaN())" : "std::numeric_limits<float>::quiet_NaN()") + " : " + total + ";");
        }
      }
    }
    for (const auto& stem : stems) results.push_back(result_value(stem, rep, op.dtype));
  }
  for (size_t i = 0; i < results.size(); ++i) define(-1000 - op.id * 8 - static_cast<int>(i), results[i]);
  define(op.id, results[0]);
  return ok_status();
}

Status NestPrinter::declare_scan(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  Accumulator a;
  const bool along = is_vector_reduce();
  a.vector = !along && input_varies(phase_->body, phase_->vector_loop, *text_.kernel, nest_.axis == VectorAxis::kShared, op.args);
  a.copies = a.vector ? instance.copies : 1;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const std::string stem = fresh("carry");
    const DType rep = natural_rep(op.dtypes.empty() ? op.dtype : op.dtypes[i]);
    const std::string plain = plain_scan(op);
    const std::string start = plain.empty() ? "{}" : literal(plain == "ScanSum" ? 0.0 : 1.0, rep);
    for (size_t u = 0; u < a.copies; ++u)
      line(held_type(rep, a.vector) + " " + stem + "_" + num(u) + " = " +
           (a.vector && !plain.empty() ? "splat<" + std::string(memory_type(rep)) + ">(" + start + ")" : start) + ";");
    a.parts.push_back(stem);
  }
  accumulators_[op.id] = a;
  return ok_status();
}

Result<std::vector<Value>> NestPrinter::combine(const Op& scan, const std::vector<Value>& left, const std::vector<Value>& right,
                                                const Instance& one) {
  const Block& block = scan.blocks[0];
  auto outer = std::move(values_);
  values_.clear();
  for (size_t i = 0; i < left.size(); ++i) {
    values_[block.params[i]] = left[i];
    values_[block.params[left.size() + i]] = right[i];
  }
  Status status = ok_status();
  for (const auto& op : block.ops) {
    if (op.code == OpCode::kLoad || op.code == OpCode::kMasked || op_class(op.code) == OpClass::kReduction) {
      status = unsupported("a scan that combines with " + std::string(op_name(op.code)));
      break;
    }
    status = emit_op(FlatOp{op, kNoValue}, one);
    if (!status.ok()) break;
  }
  std::vector<Value> results;
  if (status.ok())
    for (size_t i = 0; i < block.results.size(); ++i) results.push_back(values_.at(block.results[i]));
  values_ = std::move(outer);
  if (!status.ok()) return std::move(status).error();
  return results;
}

Status NestPrinter::emit_scan(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  const Accumulator& a = accumulators_.at(op.id);
  const bool along = is_vector_reduce();
  const size_t n = op.args.size();
  std::string scan_loop;
  size_t scan_loops = 0;
  for (const auto& v : phase_->body.vars)
    if (v.kind == VarKind::kReduce) {
      scan_loop = v.name;
      ++scan_loops;
    }
  if (scan_loops > 1) return unsupported("a scan over several loops");
  const auto type_of = [&](size_t i) { return natural_rep(op.dtypes.empty() ? op.dtype : op.dtypes[i]); };
  std::vector<Value> results(n);
  for (size_t i = 0; i < n; ++i) {
    results[i].type = op.dtypes.empty() ? op.dtype : op.dtypes[i];
    results[i].rep = type_of(i);
    results[i].vector = a.vector || along;
  }
  const auto single = [&](const std::string& text, size_t i, bool vector) {
    Value v;
    v.type = op.dtypes.empty() ? op.dtype : op.dtypes[i];
    v.rep = type_of(i);
    v.vector = vector;
    v.text = {text};
    return v;
  };
  const Instance one{1, 0, false};
  const size_t copies = along ? instance.copies : a.copies;
  std::vector<std::string> names(n);
  for (auto& name : names) name = fresh("scan");
  for (size_t u = 0; u < copies; ++u) {
    const bool vector = a.vector || along;
    for (size_t i = 0; i < n; ++i) {
      const std::string variable = vector ? names[i] + "_" + num(u) : names[i];
      line(held_type(type_of(i), vector) + " " + variable + " = " + operand(value(op.args[i]), type_of(i), vector, u) + ";");
      results[i].text.push_back(variable);
    }
    if (const std::string plain = plain_scan(op); !plain.empty() && scan_loops == 1) {
      const std::string& now = results[0].text[u];
      const std::string carry = a.parts[0] + "_" + num(along ? 0 : u);
      if (along) line(now + " = scan_step(" + now + ", " + carry + ", " + literal(plain == "ScanSum" ? 0.0 : 1.0, type_of(0)) + ", " + plain + "{});");
      else line(now + " = " + carry + " = " + plain + "{}(" + carry + ", " + now + ");");
      continue;
    }
    const auto assign = [&](const std::vector<Value>& from, const std::string& mask, const std::string& condition) {
      for (size_t i = 0; i < n; ++i) {
        const std::string variable = results[i].text[u];
        std::string text = operand(from[i], type_of(i), vector, 0);
        if (!mask.empty()) {
          if (type_of(i) == DType::kBool) text = "(" + mask + " & " + text + ") | (~" + mask + " & " + variable + ")";
          else text = "select(" + mask + ", " + text + ", " + variable + ")";
        }
        line((condition.empty() ? "" : "if (" + condition + ") ") + variable + " = " + text + ";");
      }
    };
    std::vector<Value> current;
    for (size_t i = 0; i < n; ++i) current.push_back(single(results[i].text[u], i, vector));
    if (along) {
      for (int k = 1; k < text_.kernel->lanes; k *= 2) {
        std::vector<Value> shifted;
        line("{");
        ++indent_;
        for (size_t i = 0; i < n; ++i) {
          const std::string name = fresh("sh");
          line("const auto " + name + " = shift_lanes<" + std::to_string(k) + ">(" + results[i].text[u] + ");");
          shifted.push_back(single(name, i, true));
        }
        KO_TRY(const auto next, combine(op, shifted, current, one));
        assign(next, "to_mask(iota() >= " + std::to_string(k) + ")", "");
        --indent_;
        line("}");
      }
    }
    if (scan_loops == 0) continue;
    // What came before: nothing at the first point.
    const std::string first = scan_loop + (u == 0 || !along ? " > 0" : " >= 0");
    line("if (" + first + ") {");
    ++indent_;
    std::vector<Value> carried;
    for (size_t i = 0; i < n; ++i) {
      Value v = single(a.parts[i] + "_" + num(along ? 0 : u), i, a.vector);
      carried.push_back(v);
    }
    KO_TRY(const auto next, combine(op, carried, current, one));
    assign(next, "", "");
    --indent_;
    line("}");
    for (size_t i = 0; i < n; ++i) {
      const std::string last = along ? results[i].text[u] + "[W - 1]" : results[i].text[u];
      line(a.parts[i] + "_" + num(along ? 0 : u) + " = " + (along && type_of(i) == DType::kBool ? last + " != 0" : last) + ";");
    }
  }
  for (size_t i = 0; i < n; ++i) define(-1000 - op.id * 8 - static_cast<int>(i), results[i]);
  define(op.id, results[0]);
  return ok_status();
}

}  // namespace kernelopt::cpp
