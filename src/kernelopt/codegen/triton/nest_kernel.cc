#include "kernelopt/codegen/triton/nest_kernel.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "kernelopt/base/check.h"

namespace kernelopt::triton {
namespace {

constexpr int64_t kLargestTile = 1 << 17;  // elements of one tensor; Triton's own limit is 2^20
constexpr int64_t kMostPieces = 64;        // of a slice in registers
constexpr const char* kRow = "#row";        // the loops of the rows as one
constexpr const char* kColumn = "#column";  // the inner loops as one
constexpr int64_t kWholeRow = 1024;        // points that every program of a team computes for itself

Error unsupported(const std::string& what) { return Error(ErrorCode::kUnsupported, what); }

// What a reduction kind folds with.
struct Fold {
  const char* helper;
  const char* neutral_float;
  const char* neutral_integer;  // of int64; nullptr where the type's limit is needed
};
Result<Fold> fold_of(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kSum: return Fold{"ko_add", "0.0", "0"};
    case ReductionKind::kProd: return Fold{"ko_mul", "1.0", "1"};
    case ReductionKind::kMax: return Fold{"ko_max", "float('-inf')", nullptr};
    case ReductionKind::kMin: return Fold{"ko_min", "float('inf')", nullptr};
    case ReductionKind::kAny: return Fold{"ko_or", "0", "0"};
    case ReductionKind::kXorSum: return Fold{"ko_xor", "0", "0"};
    case ReductionKind::kArgMax: return Fold{"ko_argmax", "float('-inf')", nullptr};
    case ReductionKind::kArgMin: return Fold{"ko_argmin", "float('inf')", nullptr};
    case ReductionKind::kWelford:
    case ReductionKind::kWelfordCombine: return Fold{"ko_welford", "0.0", "0"};
    case ReductionKind::kOnlineSoftmax: return Fold{"ko_online", "0.0", "0"};
    case ReductionKind::kDot: break;
  }
  return unsupported(std::string("reduction ") + reduction_name(kind) + " in Triton");
}

std::string limit_of(ReductionKind kind, DType type) {
  const bool lowest = kind == ReductionKind::kMax || kind == ReductionKind::kArgMax;
  switch (type) {
    case DType::kBool: return lowest ? "0" : "1";
    case DType::kUInt8: return lowest ? "0" : "255";
    case DType::kInt8: return lowest ? "-128" : "127";
    case DType::kInt16: return lowest ? "-32768" : "32767";
    case DType::kInt32: return lowest ? "-2147483648" : "2147483647";
    default: return lowest ? "-9223372036854775808" : "9223372036854775807";
  }
}

class Printer {
 public:
  Printer(const LoweredKernel& kernel, const LoweredNest& nest, const std::map<std::string, std::string>& names)
      : kernel_(kernel), nest_(nest), names_(names) {}

  Result<NestSource> print(const std::string& function) {
    block_ = std::max<int64_t>(1, nest_.plan.program.block);
    if (!std::has_single_bit(static_cast<uint64_t>(block_))) return unsupported("block is no power of two");
    rows_ = 1;
    for (const auto& v : nest_.shared) rows_ *= v.extent;
    block_ = std::min<int64_t>(block_, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows_))));
    result_.programs = (rows_ + block_ - 1) / block_;
    wide_ = rows_ > INT32_MAX / 2;
    for (const auto& [name, buffer] : kernel_.buffers)
      if (names_.count(name) && buffer.elements > INT32_MAX / 2) wide_ = true;
    indent_ = 1;
    rows_masked_ = rows_ % block_ != 0;
    KO_RETURN_IF_ERROR(start_team());
    if (team_ > 1) line("x = row + tl.arange(0, 1)[:, None]");
    else line(fmt::format("x = tl.program_id(0){} * {} + tl.arange(0, {})[:, None]", wide_ ? ".to(tl.int64)" : "", block_, block_));
    if (rows_masked_) line(fmt::format("xmask = x < {}", rows_));
    if (team_ <= 1) {
      rows_run_.tile = block_;
      rows_run_.tile_start = define(fmt::format("tl.zeros([1, 1], tl.int32) + tl.program_id(0){} * {}", wide_ ? ".to(tl.int64)" : "", block_));
    }
    set_run(rows_run_, nest_.shared, "x", kRows);
    for (const auto& phase : nest_.phases) KO_RETURN_IF_ERROR(print_phase(phase));
    std::string parameters;
    for (const auto& name : result_.buffers) parameters += (parameters.empty() ? "" : ", ") + names_.at(name);
    finish_team();
    for (const auto& extra : result_.team_scratch) parameters += (parameters.empty() ? "" : ", ") + extra.parameter;
    result_.source = "@triton.jit\ndef " + function + "(" + parameters + "):\n" + out_;
    result_.uses_libdevice = out_.find("libdevice.") != std::string::npos;
    return std::move(result_);
  }

 private:
  struct Variable {
    std::string text;
    int shape;
    int64_t extent;
  };
  struct Local {
    std::string index;  // canonical text of the element that was stored
    Value value;
    bool in_loop;
  };
  struct Accumulator {
    std::vector<std::string> names;
    ReductionKind kind;
    DType type;
  };

  void line(const std::string& text) { out_ += std::string(static_cast<size_t>(indent_) * 4, ' ') + text + "\n"; }

  // A name for a pure expression; equal expressions in scope share it.
  std::string define(const std::string& text) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto at = scope->find(text); at != scope->end()) return at->second;
    const std::string name = "t" + std::to_string(next_++);
    line(name + " = " + text);
    scopes_.back()[text] = name;
    return name;
  }

  std::optional<Interval> range(const Expr& expr) const {
    return bounds(expr, [&](const std::string& name) -> std::optional<Interval> {
      const auto at = variables_.find(name);
      if (at == variables_.end() || at->second.extent <= 0) return std::nullopt;
      return Interval{0, at->second.extent - 1};
    });
  }

  // Loops that one linear index runs over: those of the rows (`x`) or the inner ones of a phase (the column).
  struct Run {
    const char* whole;           // name of the linear index as a variable
    std::vector<LoopVar> loops;  // outermost first, those of one point left out
    std::string tile_start;      // index of a tile's first point; empty where tiles do not start at multiples of their width
    int64_t tile = 1;
    bool one_number(int64_t below) const { return tile > 1 && !tile_start.empty() && below % tile == 0; }
  };

  // Start of the tile where `expr` is a quotient of the run that is one number over it; nullptr otherwise.
  const std::string* one_per_tile(const Expr& expr) const {
    if (expr.kind() != Expr::Kind::kFloorDiv || expr.args()[0].kind() != Expr::Kind::kVar || !expr.args()[1].is_const()) return nullptr;
    for (const Run* run : {&rows_run_, &columns_run_})
      if (run->loops.size() == 1 && expr.args()[0].var_name() == run->loops[0].name && run->one_number(expr.args()[1].const_value()))
        return &run->tile_start;
    return nullptr;
  }

  // The loops of a run as one where an index goes over them so: c * (outer * extent + inner) + rest is c * whole + rest.
  static Expr over_whole(const Expr& expr, const Run& run) {
    if (run.loops.size() < 2) return expr;
    Expr rest = expr;
    int64_t wanted = 0, below = 1;
    for (size_t k = run.loops.size(); k-- > 0;) {
      const auto term = affine_in(rest, run.loops[k].name);
      if (!term || term->coefficient == 0 || (wanted != 0 && term->coefficient != wanted * below)) return expr;
      if (wanted == 0) wanted = term->coefficient;
      below *= run.loops[k].extent;
      rest = term->rest;
    }
    return Expr(wanted) * Expr::var(run.whole) + rest;
  }

  // Sets the variables of `loops` from their linear index.
  void set_run(Run& run, const std::vector<LoopVar>& loops, const std::string& index, int shape) {
    run.loops.clear();
    int64_t below = 1;
    for (const auto& v : loops)
      if (v.extent > 1) run.loops.push_back(v);
    for (size_t k = loops.size(); k-- > 0;) {
      const bool one = run.one_number(below);
      const std::string& from = one ? run.tile_start : index;
      std::string text = below == 1 ? from : fmt::format("{} // {}", from, below);
      if (k > 0) text = fmt::format("({}) % {}", text, loops[k].extent);
      if (loops[k].extent == 1) text = "tl.zeros([1, 1], tl.int32)";
      else if (text != from) text = define(text);
      variables_[loops[k].name] = {text, loops[k].extent == 1 || one ? kUniform : shape, loops[k].extent};
      below *= loops[k].extent;
    }
    variables_[run.whole] = {index, shape, below};
  }

  int shape_of(const Expr& expr) const {
    if (one_per_tile(expr) != nullptr) return kUniform;
    int shape = kUniform;
    if (expr.kind() != Expr::Kind::kVar) {
      for (const auto& arg : expr.is_const() ? std::vector<Expr>{} : expr.args()) shape |= shape_of(arg);
      return shape;
    }
    for (const auto& name : expr.variables()) {
      const auto at = variables_.find(name);
      KO_CHECK(at != variables_.end(), "variable " + name + " of " + expr.to_string() + " has no value in " + phase_->body.name + (looped_ ? " looped" : "") + (in_late_ ? " late" : "") + " loops " + std::to_string(phase_->body.vars.size()) + phase_->body.vars.back().name + column_);
      shape |= at->second.shape;
    }
    return shape;
  }

  std::string index_text(const Expr& expr) {
    switch (expr.kind()) {
      case Expr::Kind::kConst: return std::to_string(expr.const_value());
      case Expr::Kind::kVar: return variables_.at(expr.var_name()).text;
      case Expr::Kind::kAdd: {
        const Expr whole = over_whole(over_whole(expr, columns_run_), rows_run_);
        return whole.kind() == Expr::Kind::kAdd ? joined(whole, " + ") : index_text(whole);
      }
      case Expr::Kind::kMul: return joined(expr, " * ");
      case Expr::Kind::kFloorDiv:
      case Expr::Kind::kMod: {
        if (const std::string* start = one_per_tile(expr)) return define(fmt::format("{} // {}", *start, expr.args()[1].const_value()));
        const auto numerator = range(expr.args()[0]);
        const bool plain = numerator && numerator->low >= 0;
        const bool divide = expr.kind() == Expr::Kind::kFloorDiv;
        const std::string a = index_text(expr.args()[0]), b = index_text(expr.args()[1]);
        if (plain) return "(" + a + (divide ? " // " : " % ") + b + ")";
        result_.helpers.push_back(divide ? "ko_floordiv" : "ko_mod");
        return std::string(divide ? "ko_floordiv(" : "ko_mod(") + a + ", " + b + ")";
      }
      case Expr::Kind::kMin: return folded(expr, "tl.minimum");
      case Expr::Kind::kMax: return folded(expr, "tl.maximum");
    }
    return "0";
  }
  std::string joined(const Expr& expr, const char* sign) {
    std::string text;
    // In one order, so that phases whose loops have other names find what is already loaded.
    std::vector<std::string> terms;
    for (const auto& arg : expr.args()) terms.push_back(index_text(arg));
    std::sort(terms.begin(), terms.end());
    for (const auto& term : terms) text += (text.empty() ? "" : sign) + term;
    return "(" + text + ")";
  }
  std::string folded(const Expr& expr, const char* function) {
    std::string text = index_text(expr.args()[0]);
    for (size_t i = 1; i < expr.args().size(); ++i) text = std::string(function) + "(" + text + ", " + index_text(expr.args()[i]) + ")";
    return text;
  }
  // As a tensor even where it is a constant.
  std::string tensor_index(const Expr& expr) {
    const std::string text = index_text(expr);
    return expr.variables().empty() ? "tl.full([1, 1], " + text + ", tl.int32)" : define(text);
  }

  // Active elements of an access of the given shape; empty for all.
  std::string mask_text(int shape, const Value* predicate) {
    std::string text;
    const auto both = [&](const std::string& part) { text += (text.empty() ? "" : " & ") + part; };
    if (predicate != nullptr) {
      both(predicate->text);
      shape |= predicate->shape;
    }
    if ((shape & kRows) && rows_masked_) both("xmask");
    if ((shape & kColumns) && !column_mask_.empty()) both(column_mask_);
    return text;
  }
  // What all programs of a team have alike is stored by the first of them.
  std::string store_mask(int shape, const Value* predicate) {
    std::string text = mask_text(shape, predicate);
    if (team_ > 1 && !(split_ && (shape & kColumns))) text += (text.empty() ? "" : " & ") + define("(tl.zeros([1, 1], tl.int32) + member) == 0");
    return text;
  }

  Status print_phase(const LoweredPhase& phase) {
    phase_ = &phase;
    values_.clear();
    accumulators_.clear();
    late_ = after_reduction(phase.body);
    int64_t points = 1;
    std::vector<LoopVar> loops;
    const bool reduces = phase.body.has_reduction() || phase.body.has_scan();
    for (const auto& v : phase.body.vars) {
      if (std::any_of(nest_.shared.begin(), nest_.shared.end(), [&](const LoopVar& s) { return s.name == v.name; })) continue;
      if (reduces && v.kind == VarKind::kIter && v.extent > 1) return unsupported("a reduction inside a loop that is not shared");
      loops.push_back(v);
      points *= v.extent;
    }
    const int64_t all = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(points)));
    const int64_t wanted = nest_.plan.program.inner_block;
    split_ = team_ > 1 && points > kWholeRow;
    const int64_t share = split_ ? (points + team_ - 1) / team_ : points;
    columns_ = wanted <= 0 ? all : std::min(team_ > 0 ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(share))) : all, wanted);
    const int64_t pieces = team_ > 0 ? (share + columns_ - 1) / columns_ : 1;
    slice_ = pieces * columns_;
    points_ = points;
    pending_.clear();
    if (pieces > kMostPieces) return unsupported("a slice of " + std::to_string(pieces) + " pieces");
    if (team_ > 0 && phase.body.has_scan() && (split_ || pieces > 1)) return unsupported("a scan over several pieces");
    if (!std::has_single_bit(static_cast<uint64_t>(columns_))) return unsupported("inner block is no power of two");
    if (columns_ * block_ > kLargestTile) return unsupported("a tile of more than " + std::to_string(kLargestTile) + " elements");
    looped_ = team_ == 0 && columns_ < points;
    wide_columns_ = points > INT32_MAX / 2;

    results_.clear();
    find_column_dependence(loops);
    column_.clear();
    column_mask_.clear();
    columns_run_ = Run{kColumn, {}, {}, 1};
    if (looped_)
      for (size_t i = 0; i < phase.body.ops.size(); ++i)
        if (!along_columns_[i] && !is_late(phase.body.ops[i].op)) KO_RETURN_IF_ERROR(print_op(phase.body.ops[i]));
    for (const auto& f : phase.body.ops)
      if (f.op.code == OpCode::kReduction && looped_) KO_RETURN_IF_ERROR(declare(f.op));
    for (const auto& f : phase.body.ops)
      if (f.op.code == OpCode::kScan && looped_) KO_RETURN_IF_ERROR(declare_scan(f.op));
    const int64_t remainder = points % columns_;
    if (looped_) {
      line(fmt::format("for start in range(0, {}, {}):", points, columns_));
      ++indent_;
      scopes_.emplace_back();
      const std::string column = fmt::format("start{} + tl.arange(0, {})[None, :]", wide_columns_ ? ".to(tl.int64)" : "", columns_);
      column_ = define(column);
      columns_run_.tile_start = define("tl.zeros([1, 1], tl.int32) + start");
    }
    for (piece_ = 0; piece_ < pieces; ++piece_) {
      if (team_ > 0) {
        start_piece(piece_);
      } else {
        if (!looped_) column_ = columns_ == 1 ? "tl.zeros([1, 1], tl.int32)" : define(fmt::format("tl.arange(0, {})[None, :]", columns_));
        column_mask_ = remainder == 0 ? "" : define(fmt::format("{} < {}", column_, points));
      }
      columns_run_.tile = columns_;
      set_run(columns_run_, loops, column_, kColumns);
      for (size_t i = 0; i < phase.body.ops.size(); ++i)
        if (!is_late(phase.body.ops[i].op) && (along_columns_[i] || (!looped_ && piece_ == 0))) KO_RETURN_IF_ERROR(print_op(phase.body.ops[i]));
    }
    piece_ = 0;
    if (looped_) {
      scopes_.pop_back();
      --indent_;
    }
    if (team_ > 0) KO_RETURN_IF_ERROR(finish_slices());
    in_late_ = true;
    for (const auto& f : phase.body.ops) {
      if (f.op.code == OpCode::kReduction && looped_) KO_RETURN_IF_ERROR(finish(f.op));
      if (is_late(f.op)) KO_RETURN_IF_ERROR(print_op(f));
    }
    in_late_ = false;
    return ok_status();
  }

  // Which ops vary along the inner loops; the others are computed before them.
  void find_column_dependence(const std::vector<LoopVar>& loops) {
    along_columns_.assign(phase_->body.ops.size(), false);
    std::set<ValueId> ids;
    std::set<std::string> names;
    for (const auto& v : loops) names.insert(v.name);
    for (size_t i = 0; i < phase_->body.ops.size(); ++i) {
      const FlatOp& f = phase_->body.ops[i];
      bool along = f.op.code == OpCode::kReduction || f.op.code == OpCode::kScan || (f.predicate != kNoValue && ids.count(f.predicate) > 0);
      for (ValueId a : f.op.args) along = along || ids.count(a) > 0;
      for (const auto* expr : {&f.op.index, &f.op.size})
        for (const auto& name : expr->variables()) along = along || names.count(name) > 0;
      along_columns_[i] = along;
      if (!along) continue;
      if (f.op.id != kNoValue) ids.insert(f.op.id);
      if (f.op.code == OpCode::kIndirect) names.insert(f.op.symbol);
    }
  }

  // Computed after the loops: what depends on a reduction.
  bool is_late(const Op& op) const {
    if (op.code == OpCode::kReduction) return false;
    if (op.id != kNoValue && late_[static_cast<size_t>(op.id)]) return true;
    return std::any_of(op.args.begin(), op.args.end(), [&](ValueId a) { return late_[static_cast<size_t>(a)]; });
  }

  const Value& value(ValueId id) const {
    const auto at = values_.find(id);
    KO_CHECK(at != values_.end(), "value " + std::to_string(id) + " is not printed yet");
    return at->second;
  }
  int shape_of_args(const Op& op) const {
    int shape = kUniform;
    for (ValueId a : op.args) shape |= value(a).shape;
    return shape;
  }

  Status print_op(const FlatOp& f) {
    const Op& op = f.op;
    switch (op.code) {
      case OpCode::kLoad: return print_load(f);
      case OpCode::kStore:
      case OpCode::kStoreReduction: return print_store(f);
      case OpCode::kIndexExpr: {
        const auto known = range(op.index);
        const bool narrow = op.dtype == DType::kInt64 && known && known->low > INT32_MIN / 2 && known->high < INT32_MAX / 2;
        const std::string text = tensor_index(op.index);
        if (narrow || op.dtype == DType::kInt32) values_[op.id] = {text, op.dtype, narrow, shape_of(op.index)};
        else values_[op.id] = {define(text + ".to(" + type_text(op.dtype) + ")"), op.dtype, false, shape_of(op.index)};
        return ok_status();
      }
      case OpCode::kIndirect: {
        const Value index = value(op.args[0]);
        if (index.own) return unsupported("an index that a team may not agree on");
        std::string text = as_type(index, DType::kInt64);
        const std::string size = index_text(op.size);
        if (op.wrap_neg) text = define("tl.where(" + text + " < 0, " + text + " + " + size + ", " + text + ")");
        if (op.check) {
          std::string holds = "(0 <= " + text + ") & (" + text + " < " + size + ")";
          const std::string mask = mask_text(index.shape, f.predicate == kNoValue ? nullptr : &value(f.predicate));
          if (!mask.empty()) holds = "(" + holds + ") | ~(" + mask + ")";
          line("tl.device_assert(" + holds + ", 'index out of bounds')");
        }
        variables_[op.symbol] = {text, index.shape, op.size.is_const() && op.check ? op.size.const_value() : -1};
        return ok_status();
      }
      case OpCode::kCheckBounds: {
        const std::string text = tensor_index(op.index), size = index_text(op.size);
        std::string holds;
        if (op.lower) holds = "(0 <= " + text + ")";
        if (op.upper) holds += (holds.empty() ? "" : " & ") + ("(" + text + " < " + size + ")");
        if (holds.empty()) return ok_status();
        const std::string mask = mask_text(shape_of(op.index), f.predicate == kNoValue ? nullptr : &value(f.predicate));
        if (!mask.empty()) holds = "(" + holds + ") | ~(" + mask + ")";
        line("tl.device_assert(" + holds + ", 'index out of bounds')");
        return ok_status();
      }
      case OpCode::kReduction: return looped_ ? update(op) : team_ > 0 ? hold(op) : reduce_at_once(op);
      case OpCode::kGet: {
        const auto at = results_.find(op.args[0]);
        KO_CHECK(at != results_.end(), "get of a value without results");
        values_[op.id] = at->second.at(static_cast<size_t>(op.which));
        return ok_status();
      }
      case OpCode::kScan: return print_scan(f);
      case OpCode::kMasked: return Error(ErrorCode::kInternal, "a masked block in a flat body");
      default: break;
    }
    std::vector<Value> args;
    for (ValueId a : op.args) args.push_back(value(a));
    KO_TRY(const std::string text, pointwise(op, args, result_.helpers));
    DType type = op.dtype;
    if (op.code == OpCode::kToDType) type = compute_dtype(op.dtype);
    const bool own = std::any_of(args.begin(), args.end(), [](const Value& a) { return a.own; });
    values_[op.id] = {define(text), type, false, shape_of_args(op), own};
    return ok_status();
  }

  void use(const std::string& buffer) {
    if (std::find(result_.buffers.begin(), result_.buffers.end(), buffer) == result_.buffers.end()) result_.buffers.push_back(buffer);
  }

  Status print_load(const FlatOp& f) {
    const Op& op = f.op;
    const LoweredBuffer& buffer = kernel_.buffers.at(op.buffer);
    if (buffer.place == Place::kLocal || buffer.place == Place::kRegister) {
      auto at = locals_.find(op.buffer);
      if (piece_ > 0 && locals_.count(piece_name(op.buffer))) at = locals_.find(piece_name(op.buffer));
      if (at == locals_.end()) return unsupported(op.buffer + " is read before it is written");
      if (buffer.place == Place::kLocal && at->second.index != index_text(op.index)) return unsupported(op.buffer + " is read along other loops");
      if (at->second.in_loop || (looped_ && (at->second.value.shape & kColumns)))
        return unsupported(op.buffer + " does not survive the passes of a loop");
      values_[op.id] = at->second.value;
      return ok_status();
    }
    use(op.buffer);
    const int shape = shape_of(op.index);
    // The first of a team may already have stored what the others still read: of use to the first alone.
    const bool own = team_ > 1 && written_here_.count(op.buffer) > 0;
    if (own && (shape & kColumns)) return unsupported(op.buffer + " is read and written by a team");
    const std::string mask = mask_text(shape, f.predicate == kNoValue ? nullptr : &value(f.predicate));
    const int full = f.predicate == kNoValue ? shape : shape | value(f.predicate).shape;
    std::string index = tensor_index(op.index);
    // The mask must not have more dims than the pointer.
    if (full != shape) index = define(fmt::format("tl.broadcast_to({}, [{}, {}])", index, (full & kRows) ? block_ : 1, (full & kColumns) ? columns_ : 1));
    std::string text = "tl.load(" + names_.at(op.buffer) + " + " + index;
    if (!mask.empty()) text += ", mask=" + mask + ", other=0";
    text += ")" + after_load(buffer.dtype);
    // A buffer that the kernel also writes must be read again each time.
    std::string name;
    if (buffer.written) {
      name = "t" + std::to_string(next_++);
      line(name + " = " + text);
    } else {
      name = define(text);
    }
    values_[op.id] = {name, op.dtype, false, full, own};
    return ok_status();
  }

  Status print_store(const FlatOp& f) {
    const Op& op = f.op;
    const Value stored = value(op.args[0]);
    const LoweredBuffer& buffer = kernel_.buffers.at(op.buffer);
    if (buffer.place == Place::kLocal || buffer.place == Place::kRegister) {
      if (f.predicate != kNoValue) return unsupported("a masked store into a local buffer");
      Value kept = stored;
      const DType held = compute_dtype(buffer.dtype);
      if (kept.type != held || kept.narrow) kept = {define(as_type(stored, held)), held, false, stored.shape, stored.own};
      locals_[piece_ > 0 ? piece_name(op.buffer) : op.buffer] = {index_text(op.index), kept, looped_ && !in_late_};
      return ok_status();
    }
    use(op.buffer);
    const int shape = shape_of(op.index);
    if (stored.shape & ~shape && !(in_late_ && !(stored.shape & kColumns))) return unsupported("a store of many values into one element");
    if (stored.own && (shape & kColumns)) return unsupported("a value that a team may not agree on");
    if (f.predicate != kNoValue && value(f.predicate).own) return unsupported("a condition that a team may not agree on");
    const auto& inner = columns_run_.loops;
    if (split_ && !(shape & kColumns) && std::any_of(inner.begin(), inner.end(), [&](const LoopVar& v) { return op.index.depends_on(v.name); }))
      return unsupported("a store of a whole tile into one element");
    const std::string mask = store_mask(shape, f.predicate == kNoValue ? nullptr : &value(f.predicate));
    const std::string what = as_type(stored, compute_dtype(buffer.dtype));
    const std::string pointer = names_.at(op.buffer) + " + " + tensor_index(op.index);
    std::string kept = what;
    const int full = shape;
    if (stored.shape != full)
      kept = define(fmt::format("tl.broadcast_to({}, [{}, {}])", what, (full & kRows) ? block_ : 1, (full & kColumns) ? columns_ : 1));
    std::string text = std::string(op.atomic_add ? "tl.atomic_add(" : "tl.store(") + pointer + ", " + kept;
    if (op.atomic_add && (buffer.dtype == DType::kFloat16 || buffer.dtype == DType::kBFloat16)) return unsupported("atomic addition of half types");
    if (!mask.empty()) text += ", mask=" + mask;
    if (op.atomic_add) text += ", sem='relaxed'";
    line(text + ")");
    return ok_status();
  }

  // Position of the element among those that are reduced, in the order of the compiler's loops.
  std::string reduced_position() {
    Expr position(0);
    for (const auto& v : phase_->body.vars)
      if (v.kind == VarKind::kReduce) position = position * Expr(v.extent) + Expr::var(v.name);
    return tensor_index(position) + ".to(tl.int64)";
  }

  std::string neutral(const Op& op, const Fold& fold) const {
    const DType type = held_type(op);
    if (is_floating(type)) return fold.neutral_float;
    return fold.neutral_integer != nullptr ? fold.neutral_integer : limit_of(op.reduction, type);
  }
  DType held_type(const Op& op) const {
    if (op.reduction == ReductionKind::kArgMax || op.reduction == ReductionKind::kArgMin) {
      const DType type = value_type(op.args[0]);
      return type == DType::kBool ? DType::kInt32 : type;
    }
    if (op.reduction == ReductionKind::kAny) return DType::kInt32;
    const DType type = compute_dtype(op.dtype);
    return type == DType::kBool ? DType::kInt32 : type;
  }
  DType value_type(ValueId id) const {
    const FlatOp* def = phase_->body.definition(id);
    return compute_dtype(def == nullptr ? DType::kFloat32 : def->op.dtype);
  }

  // The tensors [block, columns] that one step contributes, neutral where the columns are masked.
  Result<std::vector<std::string>> contribution(const Op& op, const Fold& fold) {
    const DType type = held_type(op);
    std::vector<std::string> parts;
    const auto full = [&](const std::string& text) { return fmt::format("tl.broadcast_to({}, [{}, {}])", text, block_, columns_); };
    const auto masked = [&](const std::string& text, const std::string& other) {
      const std::string wide = define(full(text));
      return column_mask_.empty() ? wide : define("tl.where(" + column_mask_ + ", " + wide + ", " + other + ")");
    };
    switch (op.reduction) {
      case ReductionKind::kArgMax:
      case ReductionKind::kArgMin:
        parts.push_back(masked(as_type(value(op.args[0]), type), neutral(op, fold)));
        parts.push_back(masked(define(reduced_position()), "9223372036854775807"));
        break;
      case ReductionKind::kWelford:
        parts.push_back(masked(as_type(value(op.args[0]), type), "0.0"));
        parts.push_back(masked("tl.zeros([1, 1], " + type_text(type) + ")", "0.0"));
        parts.push_back(masked("tl.full([1, 1], 1.0, " + type_text(type) + ")", "0.0"));
        break;
      case ReductionKind::kWelfordCombine:
        for (size_t i = 0; i < 3; ++i) parts.push_back(masked(as_type(value(op.args[i]), type), "0.0"));
        break;
      case ReductionKind::kOnlineSoftmax:
        parts.push_back(masked(as_type(value(op.args[0]), type), "float('-inf')"));
        parts.push_back(masked("tl.full([1, 1], 1.0, " + type_text(type) + ")", "0.0"));
        break;
      case ReductionKind::kAny:
        parts.push_back(masked("(" + value(op.args[0]).text + " != 0).to(tl.int32)", "0"));
        break;
      default: parts.push_back(masked(as_type(value(op.args[0]), type), neutral(op, fold))); break;
    }
    return parts;
  }

  // The parts folded along dim `axis`: names of tensors without that dim.
  std::vector<std::string> fold_parts(const Op& op, const Fold& fold, const std::vector<std::string>& parts, int axis) {
    result_.helpers.push_back(fold.helper);
    std::vector<std::string> names;
    for (size_t i = 0; i < parts.size(); ++i) names.push_back("t" + std::to_string(next_++));
    if (parts.size() > 1) line(fmt::format("{} = tl.reduce(({}), {}, {})", listed(names), listed(parts), axis, fold.helper));
    else if (op.reduction == ReductionKind::kSum) line(fmt::format("{} = tl.sum({}, {})", names[0], parts[0], axis));
    else line(fmt::format("{} = tl.reduce({}, {}, {})", names[0], parts[0], axis, fold.helper));
    return names;
  }
  // [block, columns] tensors folded to [block, 1].
  std::vector<std::string> fold_columns(const Op& op, const Fold& fold, const std::vector<std::string>& parts) {
    std::vector<std::string> columns;
    for (const auto& name : fold_parts(op, fold, parts, 1)) columns.push_back(define(name + "[:, None]"));
    return columns;
  }

  // Takes the folded [block, 1] tensors of a reduction as its results.
  Status record(const Op& op, const std::vector<std::string>& names) {
    std::vector<Value> values;
    const DType type = held_type(op);
    for (const auto& name : names) values.push_back({name, type, false, kRows});
    switch (op.reduction) {
      case ReductionKind::kArgMax:
      case ReductionKind::kArgMin:
        values[1].type = DType::kInt64;
        values.erase(values.begin());
        break;
      case ReductionKind::kAny:
        values[0] = {define("(" + values[0].text + " != 0)"), DType::kBool, false, kRows};
        break;
      default:
        if (compute_dtype(op.dtype) == DType::kBool) values[0] = {define("(" + values[0].text + " != 0)"), DType::kBool, false, kRows};
        break;
    }
    results_[op.id] = values;
    values_[op.id] = values[0];
    return ok_status();
  }

  // A team: what one piece contributes to a reduction. Welford's values are kept as they are, the mean comes first.
  Status hold(const Op& op) {
    KO_TRY(const Fold fold, fold_of(op.reduction));
    for (ValueId a : op.args)
      if (value(a).own) return unsupported("a reduction of what a team may not agree on");
    if (op.reduction == ReductionKind::kWelford) {
      const std::string x = define(fmt::format("tl.broadcast_to({}, [{}, {}])", as_type(value(op.args[0]), held_type(op)), block_, columns_));
      pending_[op.id].push_back({x, column_mask_});
      return ok_status();
    }
    KO_TRY(std::vector<std::string> parts, contribution(op, fold));
    pending_[op.id].push_back(std::move(parts));
    return ok_status();
  }

  std::string temporary(const std::string& text) {
    const std::string name = "t" + std::to_string(next_++);
    line(name + " = " + text);
    return name;
  }
  static std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  // The pieces of a slice folded to [1, 1] tensors.
  Result<std::vector<std::string>> fold_slice(const Op& op, const Fold& fold) {
    const auto& pieces = pending_.at(op.id);
    const DType type = held_type(op);
    const auto kept = [](const std::string& text, const std::string& mask) { return mask.empty() ? text : "tl.where(" + mask + ", " + text + ", 0.0)"; };
    if (op.reduction == ReductionKind::kWelford) {
      std::string sum;
      for (const auto& piece : pieces) sum = sum.empty() ? kept(piece[0], piece[1]) : temporary(sum + " + " + kept(piece[0], piece[1]));
      std::string count = fmt::format("tl.full([1, 1], {}.0, {})", split_ ? slice_ : points_, type_text(type));
      if (split_ && slice_ * team_ != points_)
        count = fmt::format("tl.minimum(tl.maximum({} - (tl.zeros([1, 1], tl.int32) + member) * {}, 0), {}).to({})", points_, slice_, slice_, type_text(type));
      count = define(count);
      const std::string mean = temporary(fmt::format("tl.sum({}, 1)[:, None] / tl.maximum({}, 1.0)", sum, count));
      std::string squares;
      for (const auto& piece : pieces) {
        const std::string distance = temporary(piece[0] + " - " + mean);
        const std::string square = kept("(" + distance + " * " + distance + ")", piece[1]);
        squares = squares.empty() ? temporary(square) : temporary(squares + " + " + square);
      }
      return std::vector<std::string>{mean, temporary("tl.sum(" + squares + ", 1)[:, None]"), count};
    }
    if (op.reduction == ReductionKind::kOnlineSoftmax) {
      result_.helpers.push_back("ko_max");
      std::string most = pieces[0][0];
      for (size_t p = 1; p < pieces.size(); ++p) most = temporary("ko_max(" + most + ", " + pieces[p][0] + ")");
      most = temporary("tl.reduce(" + most + ", 1, ko_max)[:, None]");
      const std::string shift = temporary("tl.where(" + most + " == float('-inf'), 0.0, " + most + ")");
      std::string sum;
      for (const auto& piece : pieces) {
        const std::string part = "tl.exp(" + piece[0] + " - " + shift + ")";
        sum = temporary(sum.empty() ? part : sum + " + " + part);
      }
      return std::vector<std::string>{most, temporary("tl.sum(" + sum + ", 1)[:, None]")};
    }
    std::vector<std::string> parts = pieces[0];
    for (size_t p = 1; p < pieces.size(); ++p) {
      std::vector<std::string> names;
      for (size_t i = 0; i < parts.size(); ++i) names.push_back("t" + std::to_string(next_++));
      result_.helpers.push_back(fold.helper);
      line(listed(names) + " = " + fold.helper + "(" + listed(parts) + ", " + listed(pieces[p]) + ")");
      parts = names;
    }
    return fold_columns(op, fold, parts);
  }

  // Neutral element and type of part `i` of a reduction's folded state.
  std::pair<std::string, DType> part_of(const Op& op, const Fold& fold, size_t i) const {
    const bool position = i == 1 && (op.reduction == ReductionKind::kArgMax || op.reduction == ReductionKind::kArgMin);
    if (position) return {"9223372036854775807", DType::kInt64};
    if (op.reduction == ReductionKind::kOnlineSoftmax && i == 0) return {"float('-inf')", held_type(op)};
    return {neutral(op, fold), held_type(op)};
  }

  // Folds the phase's reductions over the slice and, for a split row, over the team.
  Status finish_slices() {
    struct Shared {
      const Op* op;
      Fold fold;
      std::vector<std::string> scratch;
    };
    std::vector<Shared> shared;
    for (const auto& f : phase_->body.ops) {
      if (f.op.code != OpCode::kReduction) continue;
      KO_TRY(const Fold fold, fold_of(f.op.reduction));
      KO_TRY(const std::vector<std::string> local, fold_slice(f.op, fold));
      if (!split_) {
        KO_RETURN_IF_ERROR(record(f.op, local));
        continue;
      }
      Shared entry{&f.op, fold, {}};
      for (size_t i = 0; i < local.size(); ++i) {
        entry.scratch.push_back("part" + std::to_string(result_.team_scratch.size()));
        result_.team_scratch.push_back({entry.scratch.back(), part_of(f.op, fold, i).second, rows_ * team_, false});
        line(fmt::format("tl.store({} + (x * {} + member), {})", entry.scratch.back(), team_, local[i]));
      }
      shared.push_back(std::move(entry));
    }
    if (shared.empty()) return ok_status();
    // All threads' stores come before the first thread's release, whose acquire comes before all threads' loads.
    line("tl.debug_barrier()");
    const std::string counter = fmt::format("arrived + (row + {})", barriers_++ * rows_);
    line("tl.atomic_add(" + counter + ", 1, sem='release')");
    line("while tl.atomic_add(" + counter + ", 0, sem='acquire') < " + std::to_string(team_) + ":");
    line("    pass");
    line("tl.debug_barrier()");
    const int64_t wide = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(team_)));
    // Scalars, spread afterwards: a [1, 1] tensor out of these few lanes would be spread in their layout and every piece converted.
    const std::string peer = define(fmt::format("tl.arange(0, {})", wide));
    for (const auto& entry : shared) {
      std::vector<std::string> parts;
      for (size_t i = 0; i < entry.scratch.size(); ++i) {
        const std::string mask = wide == team_ ? "" : fmt::format(", mask={} < {}, other={}", peer, team_, part_of(*entry.op, entry.fold, i).first);
        parts.push_back(temporary(fmt::format("tl.load({} + (row * {} + {}){}, volatile=True)", entry.scratch[i], team_, peer, mask)));
      }
      std::vector<std::string> whole = fold_parts(*entry.op, entry.fold, parts, 0);
      for (size_t i = 0; i < whole.size(); ++i)
        whole[i] = temporary(fmt::format("tl.full([1, 1], {}, {})", whole[i], type_text(part_of(*entry.op, entry.fold, i).second)));
      KO_RETURN_IF_ERROR(record(*entry.op, whole));
    }
    return ok_status();
  }

  // The loop of a program over rows; nothing without a team.
  Status start_team() {
    const ProgramPlan& plan = nest_.plan.program;
    team_ = plan.team;
    if (team_ <= 1) return ok_status();
    if (block_ != 1) return unsupported("a team over several rows");
    if (wide_) return unsupported("a team over more than 2^30 elements");
    for (const auto& phase : nest_.phases)
      for (const auto& f : phase.body.ops)
        if (f.op.code == OpCode::kStore || f.op.code == OpCode::kStoreReduction) written_here_.insert(f.op.buffer);
    const int64_t teams = std::min(rows_, plan.programs / team_);
    if (teams < 1) return unsupported("a team of more programs than are resident");
    result_.programs = teams * team_;
    line(fmt::format("member = tl.program_id(0) % {}", team_));
    line(fmt::format("for row in range(tl.program_id(0) // {}, {}, {}):", team_, rows_, teams));
    ++indent_;
    return ok_status();
  }
  void finish_team() {
    if (barriers_ == 0) return;
    result_.cooperative = true;
    result_.team_scratch.push_back({"arrived", DType::kInt32, rows_ * barriers_, true});
  }
  void start_piece(int64_t piece) {
    std::string text = columns_ == 1 ? "tl.zeros([1, 1], tl.int32)" : fmt::format("tl.arange(0, {})[None, :]", columns_);
    if (split_) text = fmt::format("(member * {} + {}) + {}", slice_, piece * columns_, text);
    else if (piece > 0) text = fmt::format("{} + {}", piece * columns_, text);
    column_ = columns_ == 1 && !split_ ? text : define(text);
    const int64_t end = split_ ? slice_ * team_ : (piece + 1) * columns_;
    std::string start = split_ ? fmt::format("tl.zeros([1, 1], tl.int32) + (member * {} + {})", slice_, piece * columns_)
                               : fmt::format("tl.full([1, 1], {}, tl.int32)", piece * columns_);
    if (split_ && end > points_) start = fmt::format("tl.minimum({}, {})", start, points_ - 1);
    columns_run_.tile_start = define(start);
    column_mask_ = end <= points_ ? "" : define(fmt::format("{} < {}", column_, points_));
  }
  std::string piece_name(const std::string& buffer) const { return buffer + "#" + std::to_string(piece_); }

  Status reduce_at_once(const Op& op) {
    KO_TRY(const Fold fold, fold_of(op.reduction));
    const DType type = held_type(op);
    if (op.reduction == ReductionKind::kWelford) {
      // All values are at hand: the mean first, then the squared distances.
      int64_t points = 1;
      for (const auto& v : phase_->body.vars)
        if (v.kind == VarKind::kReduce) points *= v.extent;
      const std::string x = define(fmt::format("tl.broadcast_to({}, [{}, {}])", as_type(value(op.args[0]), type), block_, columns_));
      const auto keep = [&](const std::string& text) { return column_mask_.empty() ? text : "tl.where(" + column_mask_ + ", " + text + ", 0.0)"; };
      const std::string mean = define(fmt::format("tl.sum({}, 1)[:, None] * {:.17g}", keep(x), 1.0 / static_cast<double>(points)));
      const std::string distance = define("(" + x + " - " + mean + ")");
      const std::string m2 = define("tl.sum(" + keep("(" + distance + " * " + distance + ")") + ", 1)[:, None]");
      const std::string weight = define(fmt::format("tl.full([1, 1], {}.0, {})", points, type_text(type)));
      results_[op.id] = {{mean, type, false, kRows}, {m2, type, false, kRows}, {weight, type, false, kUniform}};
      values_[op.id] = results_[op.id][0];
      return ok_status();
    }
    if (op.reduction == ReductionKind::kOnlineSoftmax) {
      KO_TRY(const std::vector<std::string> parts, contribution(op, fold));
      result_.helpers.push_back("ko_max");
      const std::string most = define("tl.reduce(" + parts[0] + ", 1, ko_max)[:, None]");
      const std::string shift = define("tl.where(" + most + " == float('-inf'), 0.0, " + most + ")");
      const std::string sum = define("tl.sum(tl.exp(" + parts[0] + " - " + shift + "), 1)[:, None]");
      results_[op.id] = {{most, type, false, kRows}, {sum, type, false, kRows}};
      values_[op.id] = results_[op.id][0];
      return ok_status();
    }
    KO_TRY(const std::vector<std::string> parts, contribution(op, fold));
    return record(op, fold_columns(op, fold, parts));
  }

  Status declare(const Op& op) {
    KO_TRY(const Fold fold, fold_of(op.reduction));
    Accumulator accumulator;
    accumulator.kind = op.reduction;
    accumulator.type = held_type(op);
    const size_t parts = op.reduction == ReductionKind::kWelford || op.reduction == ReductionKind::kWelfordCombine ? 3
                         : op.reduction == ReductionKind::kOnlineSoftmax || op.reduction == ReductionKind::kArgMax ||
                                 op.reduction == ReductionKind::kArgMin
                             ? 2
                             : 1;
    for (size_t i = 0; i < parts; ++i) {
      std::string start = neutral(op, fold);
      DType type = accumulator.type;
      if (op.reduction == ReductionKind::kOnlineSoftmax && i == 0) start = "float('-inf')";
      if ((op.reduction == ReductionKind::kArgMax || op.reduction == ReductionKind::kArgMin) && i == 1) {
        start = "9223372036854775807";
        type = DType::kInt64;
      }
      accumulator.names.push_back("loop" + std::to_string(next_++));
      line(fmt::format("{} = tl.full([{}, {}], {}, {})", accumulator.names.back(), block_, columns_, start, type_text(type)));
    }
    accumulators_[op.id] = accumulator;
    return ok_status();
  }

  Status update(const Op& op) {
    KO_TRY(const Fold fold, fold_of(op.reduction));
    KO_TRY(const std::vector<std::string> parts, contribution(op, fold));
    const auto& names = accumulators_.at(op.id).names;
    result_.helpers.push_back(fold.helper);
    std::string left, right, targets;
    for (size_t i = 0; i < names.size(); ++i) {
      left += (left.empty() ? "" : ", ") + names[i];
      right += ", " + parts[i];
      targets += (targets.empty() ? "" : ", ") + names[i];
    }
    line(targets + " = " + fold.helper + "(" + left + right + ")");
    return ok_status();
  }

  Status finish(const Op& op) {
    KO_TRY(const Fold fold, fold_of(op.reduction));
    return record(op, fold_columns(op, fold, accumulators_.at(op.id).names));
  }

  // The combine function as a Triton function of 2n parameters.
  Result<std::string> combine_function(const Op& op) {
    const Block& block = op.blocks[0];
    const std::string name = "ko_scan" + std::to_string(next_++);
    std::string parameters, body, results;
    std::map<ValueId, Value> inner;
    const size_t n = op.dtypes.size();
    for (size_t i = 0; i < block.params.size(); ++i) {
      const std::string param = "p" + std::to_string(i);
      parameters += (parameters.empty() ? "" : ", ") + param;
      inner[block.params[i]] = {param, compute_dtype(op.dtypes[i % n]), false, kUniform};
    }
    for (const auto& step : block.ops) {
      std::vector<Value> args;
      for (ValueId a : step.args) args.push_back(inner.at(a));
      if (step.code == OpCode::kConstant) {
        inner[step.id] = {literal(step.value, step.dtype).replace(0, 15, "tl.full([], "), step.dtype, false, kUniform};
        continue;
      }
      KO_TRY(const std::string text, pointwise(step, args, result_.helpers));
      const std::string local = "c" + std::to_string(step.id);
      body += "    " + local + " = " + text + "\n";
      inner[step.id] = {local, compute_dtype(step.dtype), false, kUniform};
    }
    for (size_t i = 0; i < block.results.size(); ++i)
      results += (results.empty() ? "" : ", ") + as_type(inner.at(block.results[i]), compute_dtype(op.dtypes[i]));
    result_.combines.push_back("@triton.jit\ndef " + name + "(" + parameters + "):\n" + body + "    return " + results + "\n");
    return name;
  }

  Status declare_scan(const Op& op) {
    std::vector<std::string> carries;
    for (DType type : op.dtypes) {
      carries.push_back("loop" + std::to_string(next_++));
      line(fmt::format("{} = tl.zeros([{}, 1], {})", carries.back(), block_, type_text(compute_dtype(type))));
    }
    carries_[op.id] = carries;
    return ok_status();
  }

  Status print_scan(const FlatOp& f) {
    const Op& op = f.op;
    if (f.reverse && (looped_ || !column_mask_.empty())) return unsupported("a scan that runs backwards over less than whole tiles");
    KO_TRY(const std::string combine, combine_function(op));
    std::vector<std::string> names;
    std::string list, targets;
    for (size_t i = 0; i < op.args.size(); ++i) {
      const std::string wide = define(fmt::format("tl.broadcast_to({}, [{}, {}])", as_type(value(op.args[i]), compute_dtype(op.dtypes[i])), block_, columns_));
      list += (list.empty() ? "" : ", ") + wide;
      names.push_back("t" + std::to_string(next_++));
      targets += (targets.empty() ? "" : ", ") + names.back();
    }
    const bool many = names.size() > 1;
    line(targets + (many ? " = tl.associative_scan((" + list + "), 1, " : " = tl.associative_scan(" + list + ", 1, ") + combine + (f.reverse ? ", reverse=True)" : ")"));
    if (looped_) {
      const auto& carries = carries_.at(op.id);
      std::string left, joined;
      std::vector<std::string> totals;
      for (size_t i = 0; i < names.size(); ++i) {
        left += (left.empty() ? "" : ", ") + carries[i];
        totals.push_back("t" + std::to_string(next_++));
        joined += (joined.empty() ? "" : ", ") + totals[i];
      }
      line(joined + " = " + combine + "(" + left + ", " + targets + ")");
      for (size_t i = 0; i < names.size(); ++i) {
        line(fmt::format("{} = tl.where(start == 0, {}, {})", totals[i], names[i], totals[i]));
        line(fmt::format("{} = tl.sum(tl.where({} == start + {}, {}, 0), 1)[:, None].to({})", carries[i], column_, columns_ - 1, totals[i],
                         type_text(compute_dtype(op.dtypes[i]))));
      }
      names = totals;
    }
    std::vector<Value> values;
    for (size_t i = 0; i < names.size(); ++i) values.push_back({names[i], compute_dtype(op.dtypes[i]), false, kRows | kColumns});
    results_[op.id] = values;
    values_[op.id] = values[0];
    return ok_status();
  }

  const LoweredKernel& kernel_;
  const LoweredNest& nest_;
  const std::map<std::string, std::string>& names_;
  NestSource result_;
  std::string out_;
  int indent_ = 0;
  int next_ = 0;
  std::vector<std::map<std::string, std::string>> scopes_{1};
  std::map<std::string, Variable> variables_;
  std::map<std::string, Local> locals_;
  const LoweredPhase* phase_ = nullptr;
  std::vector<bool> late_, along_columns_;
  std::map<ValueId, Value> values_;
  std::map<ValueId, std::vector<Value>> results_;
  std::map<ValueId, Accumulator> accumulators_;
  std::map<ValueId, std::vector<std::string>> carries_;
  std::map<ValueId, std::vector<std::vector<std::string>>> pending_;  // of each reduction, what every piece contributes
  std::set<std::string> written_here_;
  int64_t team_ = 0, slice_ = 0, points_ = 0, piece_ = 0, barriers_ = 0;
  bool split_ = false;
  int64_t block_ = 1, rows_ = 1, columns_ = 1;
  bool rows_masked_ = false, looped_ = false, wide_ = false, wide_columns_ = false, in_late_ = false;
  std::string column_, column_mask_;
  Run rows_run_{kRow, {}, {}, 1}, columns_run_{kColumn, {}, {}, 1};
};

}  // namespace

Result<NestSource> print_nest(const LoweredKernel& kernel, size_t nest, const std::map<std::string, std::string>& names,
                              const std::string& function) {
  return Printer(kernel, kernel.nests[nest], names).print(function);
}

}  // namespace kernelopt::triton
