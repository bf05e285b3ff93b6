#include "kernelopt/codegen/cpp/nest_printer.h"

#include <algorithm>

#include "kernelopt/base/check.h"

namespace kernelopt::cpp {
namespace {

Error unsupported(const std::string& what) { return Error(ErrorCode::kUnsupported, what); }

}  // namespace

std::string NestPrinter::fresh(const char* stem) { return stem + std::to_string(text_.next_value++); }
void NestPrinter::line(const std::string& text) { out_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + text + "\n"; }
void NestPrinter::define(ValueId id, Value value) { values_[id] = std::move(value); }
const Value& NestPrinter::value(ValueId id) const {
  const auto at = values_.find(id);
  KO_CHECK(at != values_.end(), "value used before it is printed: " + std::to_string(id) + " in " + phase_->body.name);
  return at->second;
}
bool NestPrinter::is_vector_reduce() const {
  for (size_t l = first_reduce_; l < phase_->loops.size(); ++l)
    if (phase_->loops[l] == phase_->vector_loop) return true;
  return false;
}

Result<std::string> NestPrinter::print(const Instance& instance, int indent) {
  out_.clear();
  indent_ = indent;
  along_ = instance.along;
  // Registers of the nest.
  for (const auto& [name, buffer] : text_.kernel->buffers) {
    if (buffer.place != Place::kRegister || buffer.nest != number_) continue;
    const bool vector = nest_.axis == VectorAxis::kShared;
    const std::string& stem = text_.names.at(name).pointer;
    const std::string type = held_type(natural_rep(buffer.dtype), vector);
    if (!vector) line(type + " " + stem + " = {};");
    else
      for (size_t u = 0; u < instance.copies; ++u) line(type + " " + stem + "_" + std::to_string(u) + " = {};");
  }
  for (const auto& phase : nest_.phases) KO_RETURN_IF_ERROR(print_phase(phase, instance));
  return out_;
}

Status NestPrinter::print_phase(const LoweredPhase& phase, const Instance& instance) {
  phase_ = &phase;
  values_.clear();
  symbols_.clear();
  accumulators_.clear();
  interior_true_.clear();
  const bool reduces = phase.body.has_reduction() || phase.body.has_scan();
  first_reduce_ = phase.loops.size();
  for (size_t l = phase.loops.size(); l-- > 0;)
    if (reduces && phase.body.find_var(phase.loops[l])->kind == VarKind::kReduce) first_reduce_ = l;
  extent_of_vector_ = phase.vector_loop.empty() ? 0 : phase.body.find_var(phase.vector_loop)->extent;
  compute_levels();
  plan_blocks();
  line("{  // " + phase.body.name);
  ++indent_;
  const bool shared = nest_.axis == VectorAxis::kShared;
  KO_RETURN_IF_ERROR(shared ? emit_tile(0, instance) : emit_level(0, Instance{}));
  --indent_;
  line("}");
  return ok_status();
}

void NestPrinter::compute_levels() {
  const auto& body = phase_->body;
  const auto& loops = phase_->loops;
  levels_.assign(body.ops.size(), 0);
  late_.assign(body.ops.size(), false);
  const auto after = after_reduction(body);
  std::map<ValueId, size_t> level_of;
  std::map<std::string, size_t> level_of_symbol;
  for (size_t i = 0; i < body.ops.size(); ++i) {
    const FlatOp& f = body.ops[i];
    size_t level = 0;
    for (const Expr* expr : {&f.op.index, &f.op.size})
      for (const auto& name : expr->variables()) {
        if (const auto at = level_of_symbol.find(name); at != level_of_symbol.end()) level = std::max(level, at->second);
        for (size_t l = 0; l < loops.size(); ++l)
          if (loops[l] == name) level = std::max(level, l + 1);
      }
    bool late = false;
    for (ValueId arg : f.op.args) {
      level = std::max(level, level_of.at(arg));
      late = late || after[static_cast<size_t>(arg)];
    }
    if (f.predicate != kNoValue) level = std::max(level, level_of.at(f.predicate));
    if (f.op.code == OpCode::kStoreReduction) late = true;
    if (f.op.code == OpCode::kStore && !late) {
      if (f.op.atomic_add) level = loops.size();
    }
    if (f.op.code == OpCode::kLoad && body.writes(f.op.buffer)) level = std::max(level, late ? level : loops.size());
    if (f.op.code == OpCode::kReduction || f.op.code == OpCode::kScan) level = loops.size();
    if (late || f.op.code == OpCode::kReduction) {
      late = f.op.code != OpCode::kReduction;
      if (late) level = first_reduce_;
    }
    late_[i] = late;
    levels_[i] = level;
    if (f.op.id != kNoValue) level_of[f.op.id] = f.op.code == OpCode::kReduction ? first_reduce_ : level;
    if (f.op.code == OpCode::kIndirect) level_of_symbol[f.op.symbol] = level;
  }
}

std::optional<Interval> NestPrinter::range(const Expr& expr) const {
  return bounds(expr, [&](const std::string& name) -> std::optional<Interval> {
    if (const LoopVar* v = phase_->body.find_var(name)) return Interval{0, v->extent - 1};
    if (const auto at = symbols_.find(name); at != symbols_.end()) return at->second.range;
    return std::nullopt;
  });
}

bool NestPrinter::depends_on_vector(const Expr& expr) const {
  return depends_on_lanes(expr) || (!along_.empty() && expr.depends_on(along_));
}

bool NestPrinter::depends_on_lanes(const Expr& expr) const {
  for (const auto& name : expr.variables()) {
    if (name == phase_->vector_loop) return true;
    if (const auto at = symbols_.find(name); at != symbols_.end() && at->second.vector) return true;
  }
  return false;
}

std::string NestPrinter::scalar_text(const Expr& expr, size_t copy) const {
  switch (expr.kind()) {
    case Expr::Kind::kConst: return std::to_string(expr.const_value()) + (std::abs(expr.const_value()) > INT32_MAX ? "LL" : "");
    case Expr::Kind::kVar: {
      const std::string& name = expr.var_name();
      if (name == (along_.empty() ? phase_->vector_loop : along_) && copy > 0)
        return "(" + name + " + " + std::to_string(copy * static_cast<size_t>(along_.empty() ? text_.kernel->lanes : 1)) + ")";
      if (const auto at = symbols_.find(name); at != symbols_.end()) return "int64_t(" + at->second.text[0] + ")";
      return name;
    }
    case Expr::Kind::kAdd:
    case Expr::Kind::kMul: {
      const char* sign = expr.kind() == Expr::Kind::kAdd ? " + " : " * ";
      std::string text;
      for (const auto& arg : expr.args()) text += (text.empty() ? "" : sign) + scalar_text(arg, copy);
      return "(" + text + ")";
    }
    case Expr::Kind::kFloorDiv:
    case Expr::Kind::kMod: {
      const auto r = range(expr.args()[0]);
      const std::string a = scalar_text(expr.args()[0], copy), b = scalar_text(expr.args()[1], copy);
      const bool division = expr.kind() == Expr::Kind::kFloorDiv;
      if (r && r->low >= 0) return "(" + a + (division ? " / " : " % ") + b + ")";
      return std::string(division ? "fdiv(" : "fmod_index(") + a + ", " + b + ")";
    }
    case Expr::Kind::kMin:
    case Expr::Kind::kMax: {
      std::string text = scalar_text(expr.args()[0], copy);
      for (size_t i = 1; i < expr.args().size(); ++i)
        text = std::string(expr.kind() == Expr::Kind::kMin ? "imin(" : "imax(") + text + ", " + scalar_text(expr.args()[i], copy) + ")";
      return text;
    }
  }
  return "0";
}

bool NestPrinter::fits_narrow(const Expr& expr) const {
  const auto r = range(expr);
  if (!r || !fits_int32(*r)) return false;
  return std::all_of(expr.args().begin(), expr.args().end(), [&](const Expr& arg) { return fits_narrow(arg); });
}

std::string NestPrinter::vector_text(const Expr& expr, size_t copy, bool narrow) const {
  const std::string type = narrow ? "int32_t" : "int64_t";
  if (!depends_on_lanes(expr)) return "splat(" + type + "(" + scalar_text(expr, copy) + "))";
  const auto fold = [&](const char* open, const char* between) {
    std::string text = vector_text(expr.args()[0], copy, narrow);
    for (size_t i = 1; i < expr.args().size(); ++i) text = open + text + between + vector_text(expr.args()[i], copy, narrow) + ")";
    return text;
  };
  switch (expr.kind()) {
    case Expr::Kind::kConst: break;
    case Expr::Kind::kVar: {
      const std::string& name = expr.var_name();
      if (name == phase_->vector_loop) {
        const std::string lanes = narrow ? "iota()" : "cvt<int64_t>(iota())";
        return "(" + lanes + " + " + type + "(" + scalar_text(expr, copy) + "))";
      }
      return operand(symbols_.at(name), narrow ? DType::kInt32 : DType::kInt64, true, copy);
    }
    case Expr::Kind::kAdd: return fold("(", " + ");
    case Expr::Kind::kMul: return fold("(", " * ");
    case Expr::Kind::kFloorDiv:
    case Expr::Kind::kMod: {
      const auto r = range(expr.args()[0]);
      const bool division = expr.kind() == Expr::Kind::kFloorDiv;
      if (r && r->low >= 0 && expr.args()[1].is_const())
        return "(" + vector_text(expr.args()[0], copy, narrow) + (division ? " / " : " % ") + type + "(" + std::to_string(expr.args()[1].const_value()) + "))";
      return fold(division ? "div_floor(" : "mod_floor(", ", ");
    }
    case Expr::Kind::kMin: return fold("vmin(", ", ");
    case Expr::Kind::kMax: return fold("vmax(", ", ");
  }
  return "splat(" + type + "(0))";
}

std::string NestPrinter::active_mask(const FlatOp& f, const Instance& instance, size_t copy) const {
  std::string mask;
  if (f.predicate != kNoValue) {
    const Value& predicate = value(f.predicate);
    const bool always = predicate.constant && scalar_as_double(*predicate.constant) != 0;
    if (!always) mask = operand(predicate, DType::kBool, true, copy);
  }
  if (instance.has_tail(copy)) {
    const std::string tail = "tail_mask(" + std::to_string(instance.tail) + ")";
    mask = mask.empty() ? tail : "(" + mask + " & " + tail + ")";
  }
  return mask;
}

std::optional<Expr> NestPrinter::integer_expr(ValueId id) const {
  const FlatOp* f = phase_->body.definition(id);
  if (f == nullptr) return std::nullopt;
  if (f->op.code == OpCode::kIndexExpr) return f->op.index;
  if (f->op.code == OpCode::kConstant) {
    if (const auto* i = std::get_if<int64_t>(&f->op.value)) return Expr(*i);
    return std::nullopt;
  }
  if (f->op.code == OpCode::kToDType && is_integer(f->op.dtype) && dtype_bytes(f->op.dtype) >= 4) return integer_expr(f->op.args[0]);
  if (f->op.code == OpCode::kAdd || f->op.code == OpCode::kSub) {
    if (!is_integer(f->op.dtype)) return std::nullopt;
    const auto a = integer_expr(f->op.args[0]), b = integer_expr(f->op.args[1]);
    if (!a || !b) return std::nullopt;
    return f->op.code == OpCode::kAdd ? *a + *b : *a - *b;
  }
  return std::nullopt;
}

std::optional<std::vector<NestPrinter::Condition>> NestPrinter::conditions_of(ValueId id) const {
  const FlatOp* f = phase_->body.definition(id);
  if (f == nullptr || f->op.dtype != DType::kBool) return std::nullopt;
  const auto compare = [&](int sign, int64_t slack) -> std::optional<std::vector<Condition>> {
    const auto a = integer_expr(f->op.args[0]), b = integer_expr(f->op.args[1]);
    if (!a || !b) return std::nullopt;
    return std::vector<Condition>{{sign > 0 ? *a - *b - Expr(slack) : *b - *a - Expr(slack)}};
  };
  switch (f->op.code) {
    case OpCode::kLt: return compare(-1, 1);
    case OpCode::kLe: return compare(-1, 0);
    case OpCode::kGt: return compare(1, 1);
    case OpCode::kGe: return compare(1, 0);
    case OpCode::kAnd:
    case OpCode::kBitwiseAnd:
    case OpCode::kLogicalAnd: {
      auto a = conditions_of(f->op.args[0]);
      const auto b = conditions_of(f->op.args[1]);
      if (!a || !b) return std::nullopt;
      a->insert(a->end(), b->begin(), b->end());
      return a;
    }
    default: return std::nullopt;
  }
}

std::optional<Expr> NestPrinter::least(const Expr& expr, const Instance& instance, size_t level) const {
  Expr result = expr;
  const auto settle = [&](const std::string& name, const Expr& low, const Expr& high) {
    const auto affine = affine_in(result, name);
    if (!affine) return false;
    if (affine->coefficient != 0) result = result.substitute({{name, affine->coefficient > 0 ? low : high}});
    return true;
  };
  for (size_t l = level; l < phase_->loops.size(); ++l)
    if (!settle(phase_->loops[l], Expr(0), Expr(phase_->body.find_var(phase_->loops[l])->extent - 1))) return std::nullopt;
  if (!phase_->vector_loop.empty()) {
    const Expr base = Expr::var(phase_->vector_loop);
    const int64_t last = (along_.empty() ? static_cast<int64_t>(instance.copies) : 1) * text_.kernel->lanes - 1;
    if (!along_.empty() && !settle(along_, Expr::var(along_), Expr::var(along_) + Expr(static_cast<int64_t>(instance.copies) - 1))) return std::nullopt;
    const Expr high = instance.tail > 0 ? Expr(extent_of_vector_ - 1) : base + Expr(last);
    if (!settle(phase_->vector_loop, base, high)) return std::nullopt;
  }
  for (const auto& name : result.variables())
    if (phase_->body.find_var(name) == nullptr) return std::nullopt;
  return result;
}

// One tile of the vector loop (or a whole phase of lanes over a shared loop): a copy without masks first, where useful.
Status NestPrinter::emit_tile(size_t level, const Instance& instance) {
  std::set<ValueId> always;
  std::vector<std::string> checks;
  if (nest_.plan.split_interior) {
    for (const auto& f : phase_->body.ops) {
      std::vector<ValueId> candidates;
      if (f.predicate != kNoValue) candidates.push_back(f.predicate);
      if (f.op.code == OpCode::kWhere) candidates.push_back(f.op.args[0]);
      for (ValueId id : candidates) {
        if (always.count(id)) continue;
        const auto conditions = conditions_of(id);
        if (!conditions) continue;
        bool usable = true;
        std::vector<std::string> texts;
        for (const auto& condition : *conditions) {
          const auto smallest = least(condition.at_least_zero, instance, level);
          if (!smallest) {
            usable = false;
            break;
          }
          // The vector loop's variable stands for the tile's first element here.
          const auto r = range(*smallest);
          if (r && r->low >= 0) continue;
          if (r && r->high < 0) {
            usable = false;
            break;
          }
          texts.push_back(scalar_text(*smallest, 0) + " >= 0");
        }
        if (!usable) continue;
        always.insert(id);
        for (auto& text : texts)
          if (std::find(checks.begin(), checks.end(), text) == checks.end()) checks.push_back(std::move(text));
      }
    }
  }
  if (always.empty()) return emit_level(level, instance);
  Instance inside = instance;
  inside.interior = true;
  const auto values = values_;
  const auto symbols = symbols_;
  const auto accumulators = accumulators_;
  const auto assume = [&] {
    interior_true_ = always;
    Value known;
    known.type = known.rep = DType::kBool;
    known.constant = Scalar(true);
    for (ValueId id : always)
      if (values_.count(id)) define(id, known);
  };
  if (checks.empty()) {
    assume();
    KO_RETURN_IF_ERROR(emit_level(level, inside));
    interior_true_.clear();
    return ok_status();
  }
  std::string all;
  for (const auto& check : checks) all += (all.empty() ? "" : " && ") + check;
  line("if (" + all + ") {");
  ++indent_;
  assume();
  KO_RETURN_IF_ERROR(emit_level(level, inside));
  interior_true_.clear();
  --indent_;
  line("} else {");
  ++indent_;
  values_ = values;
  symbols_ = symbols;
  accumulators_ = accumulators;
  KO_RETURN_IF_ERROR(emit_level(level, instance));
  --indent_;
  line("}");
  return ok_status();
}

Status NestPrinter::emit_level(size_t level, const Instance& instance) {
  const auto& ops = phase_->body.ops;
  const bool reduction_level = level == first_reduce_;
  if (reduction_level) {
    for (const auto& f : ops) {
      if (f.op.code == OpCode::kReduction) KO_RETURN_IF_ERROR(declare_reduction(f, instance));
      if (f.op.code == OpCode::kScan) KO_RETURN_IF_ERROR(declare_scan(f, instance));
    }
  }
  for (size_t i = 0; i < ops.size(); ++i)
    if (levels_[i] == level && !late_[i] && ops[i].op.code != OpCode::kReduction) KO_RETURN_IF_ERROR(emit_op(ops[i], instance));
  if (level < phase_->loops.size()) {
    KO_RETURN_IF_ERROR(emit_loop(level, instance));
  } else {
    for (const auto& f : ops)
      if (f.op.code == OpCode::kReduction) KO_RETURN_IF_ERROR(update_reduction(f, instance));
  }
  if (reduction_level) {
    for (const auto& f : ops)
      if (f.op.code == OpCode::kReduction) KO_RETURN_IF_ERROR(finish_reduction(f));
    for (size_t i = 0; i < ops.size(); ++i)
      if (late_[i]) KO_RETURN_IF_ERROR(emit_op(ops[i], instance));
  }
  return ok_status();
}

Status NestPrinter::emit_loop(size_t level, const Instance& instance) {
  const std::string& name = phase_->loops[level];
  const int64_t extent = phase_->body.find_var(name)->extent;
  const auto values = values_;
  const auto symbols = symbols_;
  if (name != phase_->vector_loop) {
    int64_t inside = 1;
    for (size_t l = first_reduce_; l < phase_->loops.size(); ++l)
      if (phase_->loops[l] != phase_->vector_loop) inside *= phase_->body.find_var(phase_->loops[l])->extent;
    const bool block = level == block_loop_;
    if (block && block_steps_ > 1) {
      open_block(name, extent, 1);
      line("for (int64_t " + name + " = " + name + "_b; " + name + " < " + name + "_e; ++" + name + ") {");
      ++indent_;
      KO_RETURN_IF_ERROR(emit_level(level + 1, instance));
      --indent_;
      line("}");
      flush_block();
      --indent_;
      line("}");
      values_ = values;
      symbols_ = symbols;
      return ok_status();
    }
    if (level >= first_reduce_ && inside <= 36) line("#pragma GCC unroll " + std::to_string(extent < 2 ? 2 : extent));
    line("for (int64_t " + name + " = 0; " + name + " < " + std::to_string(extent) + "; ++" + name + ") {");
    ++indent_;
    KO_RETURN_IF_ERROR(emit_level(level + 1, instance));
    if (block) flush_block();
    --indent_;
    line("}");
    values_ = values;
    symbols_ = symbols;
    return ok_status();
  }
  const int64_t lanes = text_.kernel->lanes;
  const int64_t copies = std::max<int64_t>(1, std::min<int64_t>(phase_->unroll, (extent + lanes - 1) / lanes));
  const int64_t tile = copies * lanes, full = extent / tile, rest = extent % tile;
  const bool reduce = level >= first_reduce_;
  const auto part = [&](const Instance& inner) {
    return reduce ? emit_level(level + 1, inner) : emit_tile(level + 1, inner);
  };
  if (full > 0) {
    const bool block = level == block_loop_ && full > block_steps_;
    std::string start = "0", stop = std::to_string(full * tile);
    if (block) {
      open_block(name, full * tile, tile);
      start = name + "_b";
      stop = name + "_e";
    }
    line("for (int64_t " + name + " = " + start + "; " + name + " < " + stop + "; " + name + " += " + std::to_string(tile) + ") {");
    ++indent_;
    KO_RETURN_IF_ERROR(part({static_cast<size_t>(copies), 0, false}));
    --indent_;
    line("}");
    if (block) {
      flush_block();
      --indent_;
      line("}");
    }
    values_ = values;
    symbols_ = symbols;
  }
  if (rest > 0) {
    line("{");
    ++indent_;
    line("const int64_t " + name + " = " + std::to_string(full * tile) + ";");
    KO_RETURN_IF_ERROR(part({static_cast<size_t>((rest + lanes - 1) / lanes), static_cast<int>(rest % lanes), false}));
    --indent_;
    line("}");
    values_ = values;
    symbols_ = symbols;
  }
  return ok_status();
}

Status NestPrinter::emit_op(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  if (instance.interior && op.id != kNoValue && interior_true_.count(op.id)) {
    Value known;
    known.type = known.rep = DType::kBool;
    known.constant = Scalar(true);
    define(op.id, known);
    return ok_status();
  }
  switch (op.code) {
    case OpCode::kConstant: {
      Value constant;
      constant.type = op.dtype;
      constant.rep = natural_rep(op.dtype);
      constant.constant = op.value;
      define(op.id, constant);
      return ok_status();
    }
    case OpCode::kLoad: return emit_load(f, instance);
    case OpCode::kStore:
    case OpCode::kStoreReduction: return emit_store(f, instance);
    case OpCode::kIndirect: return emit_indirect(f, instance);
    case OpCode::kCheckBounds: return emit_check_bounds(f, instance);
    case OpCode::kIndexExpr: return emit_index_expr(f, instance);
    case OpCode::kScan:
      if (f.reverse) return Error(ErrorCode::kUnsupported, "a scan that runs backwards in C++");
      return emit_scan(f, instance);
    case OpCode::kGet: {
      // finish_reduction and emit_scan leave the results under negative ids of their own.
      const auto at = values_.find(-1000 - op.args[0] * 8 - op.which);
      if (at == values_.end()) return unsupported("get of something else than a reduction or scan");
      define(op.id, at->second);
      return ok_status();
    }
    case OpCode::kSort: return unsupported("op sort");
    case OpCode::kLoadSeed:
    case OpCode::kRand:
    case OpCode::kRandn: return unsupported(std::string("op ") + op_name(op.code));
    default: break;
  }
  std::vector<const Value*> args;
  bool vector = false;
  for (ValueId arg : op.args) {
    args.push_back(&value(arg));
    vector = vector || args.back()->vector;
  }
  KO_TRY(Value result, pointwise(op, args, vector, instance.copies, text_.kernel->math, text_.needs));
  const std::string name = fresh("v");
  for (size_t u = 0; u < result.text.size(); ++u) {
    const std::string variable = vector ? name + "_" + std::to_string(u) : name;
    line("const " + held_type(result.rep, vector) + " " + variable + " = " + result.text[u] + ";");
    result.text[u] = variable;
  }
  define(op.id, std::move(result));
  return ok_status();
}

Status NestPrinter::emit_index_expr(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  Value result;
  result.type = op.dtype;
  result.vector = depends_on_vector(op.index);
  const bool narrow = fits_narrow(op.index);
  DType rep = narrow ? DType::kInt32 : DType::kInt64;
  result.range = range(op.index);
  const DType wanted = natural_rep(op.dtype);
  const bool keep = op.dtype == DType::kInt64;
  const std::string name = fresh("x");
  for (size_t u = 0; u < (result.vector ? instance.copies : 1); ++u) {
    std::string text = result.vector ? vector_text(op.index, u, narrow) : memory_type(rep) + ("(" + scalar_text(op.index, u) + ")");
    if (!keep) text = convert_text(text, rep, wanted, result.vector);
    const std::string variable = result.vector ? name + "_" + std::to_string(u) : name;
    line("const " + held_type(keep ? rep : wanted, result.vector) + " " + variable + " = " + text + ";");
    result.text.push_back(variable);
  }
  result.rep = keep ? rep : wanted;
  if (is_floating(wanted)) result.range.reset();
  define(op.id, std::move(result));
  return ok_status();
}

Status NestPrinter::emit_load(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  const LoweredBuffer& buffer = text_.kernel->buffers.at(op.buffer);
  const std::string& pointer = text_.names.at(op.buffer).pointer;
  Value result;
  result.type = op.dtype;
  const bool shared = nest_.axis == VectorAxis::kShared;
  const bool own = buffer.place == Place::kLocal || buffer.place == Place::kRegister;
  const DType stored = own ? compute_dtype(buffer.dtype) : buffer.dtype;
  result.rep = natural_rep(buffer.dtype);
  if (buffer.place == Place::kRegister) {
    result.vector = shared;
    if (shared)
      for (size_t u = 0; u < instance.copies; ++u) result.text.push_back(pointer + "_" + std::to_string(u));
    else
      result.text.push_back(pointer);
    define(op.id, std::move(result));
    return ok_status();
  }
  const std::string type = memory_type(stored);
  const std::string name = fresh("l");
  const bool local_lanes = buffer.place == Place::kLocal && shared;
  const bool varies = depends_on_vector(op.index);
  const bool never = f.predicate != kNoValue && value(f.predicate).constant && scalar_as_double(*value(f.predicate).constant) == 0;
  result.vector = local_lanes || varies;
  const auto affine = affine_in(op.index, phase_->vector_loop);
  const bool strided = affine && !depends_on_lanes(affine->rest);
  const auto across = along_.empty() ? std::nullopt : affine_in(op.index, along_);
  const bool square = across && across->coefficient == 1 && strided && affine->coefficient != 0 && affine->coefficient != 1 && f.predicate == kNoValue;
  const std::string tile_name = fresh("q");
  if (square) {
    text_.needs.transpose = true;
    line("vec<" + type + "> " + tile_name + "[W] = {};");
    const int rows = instance.tail > 0 ? instance.tail : text_.kernel->lanes;
    for (int l = 0; l < rows; ++l) {
      const std::string address = pointer + " + " + scalar_text(op.index, 0) + " + " + std::to_string(l * affine->coefficient) + "LL";
      const bool whole = instance.copies == static_cast<size_t>(text_.kernel->lanes);
      line(tile_name + "[" + std::to_string(l) + "] = " + (whole ? "load(" + address + ")" : "load_n(" + address + ", " + std::to_string(instance.copies) + ")") + ";");
    }
    line("transpose<" + type + ">(" + tile_name + ");");
  }
  for (size_t u = 0; u < (result.vector ? instance.copies : 1); ++u) {
    std::string text;
    const bool has_tail = instance.has_tail(u);
    if (never) {
      text = result.vector ? "vec<" + type + ">{}" : type + "(0)";
    } else if (local_lanes) {
      if (varies) return unsupported("a local buffer indexed along its own lanes");
      const std::string tile = std::to_string(static_cast<size_t>(nest_.unroll) * static_cast<size_t>(text_.kernel->lanes));
      std::string at = "load(" + pointer + " + " + scalar_text(op.index, u) + " * " + tile + " + " + std::to_string(u * static_cast<size_t>(text_.kernel->lanes)) + ")";
      // A predicate may keep the index in range.
      if (f.predicate != kNoValue && !value(f.predicate).constant) {
        const std::string flag = value(f.predicate).vector ? "any(" + active_mask(f, instance, u) + ")" : operand(value(f.predicate), DType::kBool, false, 0);
        at = "(" + flag + " ? " + at + " : vec<" + type + ">{})";
      }
      text = at;
    } else if (!result.vector) {
      text = pointer + "[" + scalar_text(op.index, 0) + "]";
      if (f.predicate != kNoValue && !value(f.predicate).constant) {
        const Value& predicate = value(f.predicate);
        std::string flag;
        if (predicate.vector) {
          for (size_t c = 0; c < instance.copies; ++c) flag += (c == 0 ? "any(" : " | ") + active_mask(f, instance, c);
          flag += ")";
        } else {
          flag = operand(predicate, DType::kBool, false, 0);
        }
        text = "(" + flag + " ? " + text + " : " + type + "(0))";
      }
    } else {
      const bool plain_predicate = f.predicate == kNoValue || value(f.predicate).constant.has_value();
      const bool uniform_predicate = !plain_predicate && !value(f.predicate).vector;
      const FlatOp unmasked{f.op, kNoValue};
      const std::string mask = active_mask(uniform_predicate ? unmasked : f, instance, u);
      if (square) {
        text = tile_name + "[" + std::to_string(u) + "]";
      } else if (strided && affine->coefficient == 0) {
        text = "splat<" + type + ">(" + pointer + "[" + scalar_text(op.index, u) + "])";
        if (!mask.empty() && !plain_predicate && !uniform_predicate) text = "(any(" + mask + ") ? " + text + " : vec<" + type + ">{})";
      } else if (strided && affine->coefficient == 1) {
        const std::string address = pointer + " + " + scalar_text(op.index, u);
        if (plain_predicate || uniform_predicate) text = has_tail ? "load_n(" + address + ", " + std::to_string(instance.tail) + ")" : "load(" + address + ")";
        else text = "load_m(" + address + ", " + mask + ")";
        if (nest_.plan.prefetch > 0 && !own && phase_->loops.size() > 0)
          line("__builtin_prefetch(" + address + " + " + std::to_string(nest_.plan.prefetch * 64 / dtype_bytes(buffer.dtype)) + ");");
      } else if (strided && affine->coefficient == 2 && mask.empty()) {
        text = "load_2(" + pointer + " + " + scalar_text(op.index, u) + ")";
      } else if (strided) {
        const std::string address = pointer + " + " + scalar_text(op.index, u), step = std::to_string(affine->coefficient);
        const bool small = affine->coefficient * text_.kernel->lanes < INT32_MAX / 2 && affine->coefficient > -INT32_MAX / 64;
        if (small && dtype_bytes(stored) == 4)
          text = mask.empty() ? "gather(" + address + ", iota() * " + step + ")" : "gather_m(" + address + ", iota() * " + step + ", " + mask + ")";
        else
          text = mask.empty() ? "load_step(" + address + ", " + step + ")" : "load_step_m(" + address + ", " + step + ", " + mask + ")";
      } else {
        const std::string index = vector_text(op.index, u, fits_narrow(op.index));
        text = mask.empty() ? "gather(" + pointer + ", " + index + ")" : "gather_m(" + pointer + ", " + index + ", " + mask + ")";
      }
      if (uniform_predicate) text = "(" + operand(value(f.predicate), DType::kBool, false, 0) + " ? " + text + " : vec<" + type + ">{})";
    }
    text = from_memory(text, stored, result.vector);
    const std::string variable = result.vector ? name + "_" + std::to_string(u) : name;
    line("const " + held_type(result.rep, result.vector) + " " + variable + " = " + text + ";");
    result.text.push_back(variable);
  }
  define(op.id, std::move(result));
  return ok_status();
}

Status NestPrinter::emit_store(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  const LoweredBuffer& buffer = text_.kernel->buffers.at(op.buffer);
  const std::string& pointer = text_.names.at(op.buffer).pointer;
  const Value& stored = value(op.args[0]);
  const bool shared = nest_.axis == VectorAxis::kShared;
  const int lanes = text_.kernel->lanes;
  if (buffer.place == Place::kRegister) {
    const DType rep = natural_rep(buffer.dtype);
    if (!shared) {
      if (stored.vector) return unsupported("a vector is stored to a scalar");
      line(pointer + " = " + operand(stored, rep, false, 0) + ";");
    } else {
      for (size_t u = 0; u < instance.copies; ++u) line(pointer + "_" + std::to_string(u) + " = " + operand(stored, rep, true, u) + ";");
    }
    return ok_status();
  }
  const bool own = buffer.place == Place::kLocal;
  const DType memory = own ? compute_dtype(buffer.dtype) : buffer.dtype;
  if (own && shared) {
    if (depends_on_vector(op.index)) return unsupported("a local buffer indexed along its own lanes");
    const std::string tile = std::to_string(nest_.unroll * lanes);
    for (size_t u = 0; u < instance.copies; ++u)
      line("store(" + pointer + " + " + scalar_text(op.index, u) + " * " + tile + " + " + std::to_string(u * static_cast<size_t>(lanes)) + ", " +
           to_memory(operand(stored, stored.rep, true, u), stored.rep, memory, true) + ");");
    return ok_status();
  }
  const bool varies = depends_on_vector(op.index);
  if (op.atomic_add) {
    if (memory == DType::kFloat16 || memory == DType::kBFloat16 || memory == DType::kBool) return unsupported("atomic addition to a half type");
    if (phase_->vector_loop.empty()) {
      std::string text = "atomic_add1(" + pointer + " + " + scalar_text(op.index, 0) + ", " + to_memory(operand(stored, memory, false, 0), memory, memory, false) + ");";
      if (f.predicate != kNoValue && !value(f.predicate).constant) text = "if (" + operand(value(f.predicate), DType::kBool, false, 0) + ") " + text;
      line(text);
      return ok_status();
    }
    for (size_t u = 0; u < instance.copies; ++u) {
      const std::string index = fresh("i"), amount = fresh("d");
      const std::string mask = active_mask(f, instance, u);
      line("{");
      line("  const auto " + index + " = " + vector_text(op.index, u, fits_narrow(op.index)) + ";");
      line("  const auto " + amount + " = " + operand(stored, memory, true, u) + ";");
      if (!mask.empty()) line("  const vi mask = " + mask + ";");
      line("  for (int l = 0; l < W; ++l) " + std::string(mask.empty() ? "" : "if (mask[l]) ") + "atomic_add1(" + pointer + " + " + index + "[l], " +
           memory_type(memory) + "(" + amount + "[l]));");
      line("}");
    }
    return ok_status();
  }
  if (!varies) {
    if (stored.vector) return unsupported("lanes of a vector are stored to one place");
    std::string text = pointer + "[" + scalar_text(op.index, 0) + "] = " + to_memory(operand(stored, stored.rep, false, 0), stored.rep, memory, false) + ";";
    if (f.predicate != kNoValue && !value(f.predicate).constant) text = "if (" + operand(value(f.predicate), DType::kBool, false, 0) + ") " + text;
    line(text);
    return ok_status();
  }
  const auto affine = affine_in(op.index, phase_->vector_loop);
  const bool strided = affine && !depends_on_lanes(affine->rest);
  if (strided && affine->coefficient == 0) return unsupported("lanes of a vector are stored to one place");
  for (size_t u = 0; u < instance.copies; ++u) {
    const bool has_tail = instance.has_tail(u);
    const bool predicated = f.predicate != kNoValue && !value(f.predicate).constant;
    const std::string mask = active_mask(f, instance, u);
    const std::string content = to_memory(operand(stored, stored.rep, true, u), stored.rep, memory, true);
    if (strided && affine->coefficient == 1) {
      const std::string address = pointer + " + " + scalar_text(op.index, u);
      if (predicated) line("store_m(" + address + ", " + content + ", " + mask + ");");
      else if (has_tail) line("store_n(" + address + ", " + content + ", " + std::to_string(instance.tail) + ");");
      else if (nest_.plan.stream && buffer.place == Place::kMemory && !buffer.read && dtype_bytes(memory) == 4) {
        text_.streams = true;
        line("stream(" + address + ", " + content + ");");
      } else line("store(" + address + ", " + content + ");");
    } else if (strided) {
      const std::string address = pointer + " + " + scalar_text(op.index, u), step = std::to_string(affine->coefficient);
      if (mask.empty()) line("store_step(" + address + ", " + step + ", " + content + ");");
      else line("store_step_m(" + address + ", " + step + ", " + content + ", " + mask + ");");
    } else {
      line("scatter_m(" + pointer + ", " + vector_text(op.index, u, fits_narrow(op.index)) + ", " + content + ", " +
           (mask.empty() ? "splat_mask(true)" : mask) + ");");
    }
  }
  return ok_status();
}

Status NestPrinter::emit_indirect(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  const Value& index = value(op.args[0]);
  Value result;
  result.type = DType::kInt64;
  result.vector = index.vector || depends_on_vector(op.size);
  const auto size_range = range(op.size);
  if (size_range && size_range->high > 0) result.range = Interval{0, size_range->high - 1};
  const bool narrow = size_range && size_range->high < INT32_MAX / 2 && !depends_on_vector(op.size);
  result.rep = narrow ? DType::kInt32 : DType::kInt64;
  // Computed in 64 bits unless the value is known to be small.
  const DType work = index.range && fits_int32(*index.range) && narrow ? DType::kInt32 : DType::kInt64;
  const std::string type = memory_type(work);
  const std::string name = fresh("t");
  if (op.check) text_.may_fail = true;
  for (size_t u = 0; u < (result.vector ? instance.copies : 1); ++u) {
    const std::string raw = name + "r" + std::to_string(u), variable = result.vector ? name + "_" + std::to_string(u) : name;
    const std::string held = held_type(work, result.vector);
    line(held + " " + raw + " = " + operand(index, work, result.vector, u) + ";");
    const std::string size = result.vector ? vector_text(op.size, u, work == DType::kInt32) : type + "(" + scalar_text(op.size, u) + ")";
    if (op.wrap_neg) line(raw + " = " + raw + " < 0 ? " + raw + " + " + size + " : " + raw + ";");
    if (op.check) {
      const std::string bad = name + "b" + std::to_string(u);
      if (result.vector) {
        line("const vi " + bad + " = to_mask(" + raw + " < 0) | to_mask(" + raw + " >= " + size + ");");
        const std::string mask = active_mask(f, instance, u);
        line("failed |= any(" + bad + (mask.empty() ? "" : " & " + mask) + ");");
        line(raw + " = select(" + bad + ", " + held + "{}, " + raw + ");");
      } else {
        line("const bool " + bad + " = " + raw + " < 0 || " + raw + " >= " + size + ";");
        std::string flag = bad;
        if (f.predicate != kNoValue) {
          const Value& predicate = value(f.predicate);
          if (predicate.vector) {
            for (size_t c = 0; c < instance.copies; ++c) flag += (c == 0 ? " && any(" : " | ") + active_mask(f, instance, c);
            flag += ")";
          } else {
            flag += " && " + operand(predicate, DType::kBool, false, 0);
          }
        }
        line("failed |= " + flag + ";");
        line(raw + " = " + bad + " ? 0 : " + raw + ";");
      }
    } else if (f.predicate != kNoValue || (instance.tail > 0 && result.vector)) {
      // Lanes that nobody asked for may hold anything; memory is not touched there.
    }
    line("const " + held_type(result.rep, result.vector) + " " + variable + " = " + convert_text(raw, work, result.rep, result.vector) + ";");
    result.text.push_back(variable);
  }
  symbols_[op.symbol] = std::move(result);
  return ok_status();
}

Status NestPrinter::emit_check_bounds(const FlatOp& f, const Instance& instance) {
  const Op& op = f.op;
  text_.may_fail = true;
  const bool vector = depends_on_vector(op.index) || depends_on_vector(op.size) || (f.predicate != kNoValue && value(f.predicate).vector);
  for (size_t u = 0; u < (vector ? instance.copies : 1); ++u) {
    const auto text = [&](const Expr& e) { return vector ? vector_text(e, u, false) : scalar_text(e, u); };
    std::string bad;
    if (op.lower) bad = vector ? "to_mask(" + text(op.index) + " < 0)" : "(" + text(op.index) + " < 0)";
    if (op.upper) {
      const std::string above = vector ? "to_mask(" + text(op.index) + " >= " + text(op.size) + ")" : "(" + text(op.index) + " >= " + text(op.size) + ")";
      bad = bad.empty() ? above : "(" + bad + " | " + above + ")";
    }
    if (bad.empty()) return ok_status();
    if (vector) {
      const std::string mask = active_mask(f, instance, u);
      line("failed |= any(" + bad + (mask.empty() ? "" : " & " + mask) + ");");
    } else if (f.predicate != kNoValue) {
      line("failed |= " + bad + " && " + operand(value(f.predicate), DType::kBool, false, 0) + ";");
    } else {
      line("failed |= " + bad + ";");
    }
  }
  return ok_status();
}

}  // namespace kernelopt::cpp
