// Accumulation in two levels: partial sums in the values' own type, a block at a time, and wider totals that they are
// flushed to. A single accumulator a lane would lose digits with the square root of the number of terms, and eager's
// sums (cascades, Welford in double) do not.
#include <algorithm>

#include "kernelopt/base/check.h"
#include "kernelopt/codegen/cpp/nest_printer.h"

namespace kernelopt::cpp {
namespace {

std::string num(size_t n) { return std::to_string(n); }

// Fewer terms than this round less than their result does.
constexpr int64_t kShortChain = 48;
// A block's error is that of about `terms` roundings, averaged over the blocks: with 2 sqrt(n) terms a block it is below
// half of the result's own rounding, and flushes cost a few instructions in a hundred.
constexpr int64_t kLeastBlock = 8, kMostBlock = 128;
// Squares of distances on a grid (values with a large mean) are rounded to one side where many are added up.
constexpr int64_t kWelfordBlock = 16;
// A first value far from all others is soon replaced as the shift.
constexpr int64_t kFirstBlock = 4;

int64_t block_terms(int64_t chain) {
  int64_t block = kLeastBlock;
  while (block < kMostBlock && block * block < 4 * chain) block *= 2;
  return block;
}

// The type of a Welford reduction's partial sums: its input's, also where its results are wider.
DType part_rep(const FlatBody& body, const Op& op) {
  const DType input = natural_rep(body.definition(op.args[0])->op.dtype), result = natural_rep(op.dtype);
  return input == DType::kFloat32 && result == DType::kFloat64 ? input : result;
}

bool is_float_sum(const Op& op) { return op.reduction == ReductionKind::kSum && natural_rep(op.dtype) == DType::kFloat32; }

bool is_welford(const Op& op) { return op.reduction == ReductionKind::kWelford; }

}  // namespace

void NestPrinter::plan_blocks() {
  const auto& loops = phase_->loops;
  block_loop_ = loops.size();
  block_steps_ = 0;
  const auto& ops = phase_->body.ops;
  const auto any = [&](auto test) {
    return std::any_of(ops.begin(), ops.end(), [&](const FlatOp& f) { return f.op.code == OpCode::kReduction && test(f.op); });
  };
  const bool welford = any(is_welford), sums = any(is_float_sum);
  if ((!sums && !welford) || phase_->body.has_scan()) return;
  const auto steps = [&](size_t l) {
    const int64_t extent = phase_->body.find_var(loops[l])->extent, lanes = text_.kernel->lanes;
    if (loops[l] != phase_->vector_loop) return extent;
    const int64_t tile = std::max<int64_t>(1, std::min<int64_t>(phase_->unroll, (extent + lanes - 1) / lanes)) * lanes;
    return (extent + tile - 1) / tile;
  };
  int64_t chain = 1;
  for (size_t l = first_reduce_; l < loops.size(); ++l) chain *= steps(l);
  if (chain < (welford ? kWelfordBlock + 1 : kShortChain)) return;
  const int64_t block = welford ? kWelfordBlock : block_terms(chain);
  int64_t inside = 1;
  for (size_t l = loops.size(); l-- > first_reduce_; inside *= steps(l)) {
    if (inside * steps(l) <= block) continue;
    block_loop_ = l;
    block_steps_ = std::max<int64_t>(1, block / inside);
    return;
  }
}

void NestPrinter::declare_total(const FlatOp& f, Accumulator& a) {
  if (block_loop_ == phase_->loops.size() || !is_float_sum(f.op)) return;
  text_.needs.wide = true;
  a.slots = a.copies;
  a.totals = {fresh("total")};
  for (size_t u = 0; u < a.slots; ++u) line("wide<" + held_type(DType::kFloat32, a.vector) + "> " + a.totals[0] + "_" + num(u) + " = {};");
}

void NestPrinter::flush(const FlatOp& f) {
  const Accumulator& a = accumulators_.at(f.op.id);
  if (a.totals.empty()) return;
  for (size_t u = 0; u < a.slots; ++u) {
    std::string list;
    for (const auto* stems : {&a.parts, &a.totals})
      for (const auto& stem : *stems) list += (list.empty() ? "" : ", ") + stem + "_" + num(u);
    const bool welford = is_welford(f.op);
    const std::string type = held_type(welford ? part_rep(phase_->body, f.op) : DType::kFloat32, a.vector);
    line((welford ? "flush_welford<" : "flush_sum<") + type + ">(" + list + ");");
  }
}

// Opens the loop over blocks: iterations <name>_b up to <name>_e of each.
void NestPrinter::open_block(const std::string& name, int64_t stop, int64_t unit) {
  const auto& ops = phase_->body.ops;
  const bool shifts = std::any_of(ops.begin(), ops.end(), [](const FlatOp& f) {
    return f.op.code == OpCode::kReduction && is_welford(f.op);
  });
  const std::string from = name + "_b", to = name + "_e", end = std::to_string(stop);
  std::string step = std::to_string(block_steps_ * unit);
  if (shifts && block_steps_ > kFirstBlock) step = "(" + from + " == 0 ? " + std::to_string(kFirstBlock * unit) + " : " + step + ")";
  line("for (int64_t " + from + " = 0, " + to + " = 0; " + from + " < " + end + "; " + from + " = " + to + ") {");
  ++indent_;
  line(to + " = imin(" + end + ", " + from + " + " + step + ");");
}

void NestPrinter::flush_block() {
  for (const auto& f : phase_->body.ops)
    if (f.op.code == OpCode::kReduction) flush(f);
}

std::vector<Value> NestPrinter::finish_sum(const FlatOp& f) {
  const Accumulator& a = accumulators_.at(f.op.id);
  flush(f);
  Value v;
  v.type = f.op.dtype;
  v.rep = DType::kFloat32;
  v.vector = a.vector && !is_vector_reduce();
  const std::string name = fresh("r");
  if (v.vector) {
    for (size_t u = 0; u < a.slots; ++u) {
      v.text.push_back(name + "_" + num(u));
      line("const vf " + v.text.back() + " = narrow<vf>(" + a.totals[0] + "_" + num(u) + ");");
    }
    return {v};
  }
  std::string all = a.totals[0] + "_0";
  for (size_t u = 1; u < a.slots; ++u) all += " + " + a.totals[0] + "_" + num(u);
  line("const float " + name + " = float(" + (a.vector ? "total_of(" + all + ")" : all) + ");");
  v.text.push_back(name);
  return {v};
}

// Sums of the distances to a shift near the mean, and of their squares: no division a step, and exact differences where
// the mean is large. The shift is the accumulator's first value, later its mean so far.
Status NestPrinter::declare_welford(const FlatOp& f, Accumulator& a) {
  const DType rep = part_rep(phase_->body, f.op);
  if (!is_floating(rep)) return Error(ErrorCode::kUnsupported, "welford of integers");
  text_.needs.wide = true;
  a.slots = a.copies + (is_vector_reduce() && extent_of_vector_ % text_.kernel->lanes != 0 ? 1 : 0);
  for (const char* stem : {"shift", "s1_", "s2_", "count"}) a.parts.push_back(fresh(stem));
  for (const char* stem : {"t1_", "t2_", "pending", "mean", "m2_", "weight"}) a.totals.push_back(fresh(stem));
  const std::string type = held_type(rep, a.vector);
  for (size_t u = 0; u < a.slots; ++u) {
    for (size_t i = 0; i < 3; ++i) line(type + " " + a.parts[i] + "_" + num(u) + " = {};");
    line("int64_t " + a.parts[3] + "_" + num(u) + " = 0;");
    for (size_t i : {0, 1, 3, 4}) line("wide<" + type + "> " + a.totals[i] + "_" + num(u) + " = {};");
    line("int64_t " + a.totals[2] + "_" + num(u) + " = 0;");
    line("double " + a.totals[5] + "_" + num(u) + " = 0;");
  }
  return ok_status();
}

void NestPrinter::update_welford(const FlatOp& f, const Instance& instance) {
  const Accumulator& a = accumulators_.at(f.op.id);
  const bool reduce = is_vector_reduce();
  const DType rep = part_rep(phase_->body, f.op);
  const std::string type = held_type(rep, a.vector);
  for (size_t u = 0; u < (reduce ? instance.copies : a.copies); ++u) {
    const size_t slot = reduce && instance.has_tail(u) ? a.slots - 1 : u;
    const auto part = [&](size_t i) { return a.parts[i] + "_" + num(slot); };
    const std::string x = fresh("x"), d = fresh("d");
    line("const " + type + " " + x + " = " + operand(value(f.op.args[0]), rep, a.vector, u) + ";");
    line("if (__builtin_expect(" + part(3) + " == 0, 0) && " + a.totals[5] + "_" + num(slot) + " == 0) " + part(0) + " = " + x + ";");
    line("const " + type + " " + d + " = " + x + " - " + part(0) + ";");
    line(part(1) + " = " + part(1) + " + " + d + ";");
    line(part(2) + " = fma(" + d + ", " + d + ", " + part(2) + ");");
    line("++" + part(3) + ";");
  }
}

std::vector<Value> NestPrinter::finish_welford(const FlatOp& f) {
  const Accumulator& a = accumulators_.at(f.op.id);
  flush(f);
  for (size_t u = 0; u < a.slots; ++u) {
    std::string list = a.parts[0] + "_" + num(u);
    for (const auto& stem : a.totals) list += ", " + stem + "_" + num(u);
    line("join_welford<" + held_type(part_rep(phase_->body, f.op), a.vector) + ">(" + list + ");");
  }
  const DType rep = natural_rep(f.op.dtype);
  const bool lanes = a.vector && !is_vector_reduce();
  std::vector<Value> results(3);
  for (auto& v : results) {
    v.type = f.op.dtype;
    v.rep = rep;
    v.vector = lanes;
  }
  const std::string name = fresh("w"), type = held_type(rep, lanes);
  const auto keep = [&](size_t i, const std::string& suffix, const std::string& text) {
    results[i].text.push_back(name + "abc"[i] + suffix);
    line("const " + type + " " + results[i].text.back() + " = " + text + ";");
  };
  const auto total = [&](size_t i, size_t slot) { return a.totals[3 + i] + "_" + num(slot); };
  if (lanes || !a.vector) {
    for (size_t u = 0; u < a.copies; ++u) {
      const std::string suffix = lanes ? "_" + num(u) : "";
      keep(0, suffix, "narrow_to<" + type + ">(mean_unless_nan(" + total(0, u) + ", " + total(1, u) + "))");
      keep(1, suffix, "narrow_to<" + type + ">(" + total(1, u) + ")");
      const std::string weight = std::string(memory_type(rep)) + "(" + total(2, u) + ")";
      keep(2, suffix, lanes ? "splat<" + std::string(memory_type(rep)) + ">(" + weight + ")" : weight);
    }
    return results;
  }
  // Lanes of a slot have seen equally many values.
  std::string count, mean, m2;
  for (size_t u = 0; u < a.slots; ++u) {
    const bool tail = u >= a.copies;
    const std::string n = tail ? std::to_string(extent_of_vector_ % text_.kernel->lanes) : "W", plus = u == 0 ? "" : " + ";
    count += plus + total(2, u) + " * " + n;
    mean += plus + total(2, u) + " * total_of(" + total(0, u) + ", " + n + ")";
    const std::string distance = "(" + total(0, u) + " - " + name + "m)";
    m2 += plus + "total_of(" + total(1, u) + " + " + distance + " * " + distance + " * " + total(2, u) + ", " + n + ")";
  }
  line("const double " + name + "n = " + count + ";");
  line("const double " + name + "m = (" + mean + ") / " + name + "n;");
  line("const double " + name + "s = " + m2 + ";");
  keep(0, "", type + "(mean_unless_nan(" + name + "m, " + name + "s))");
  keep(1, "", type + "(" + name + "s)");
  keep(2, "", type + "(" + name + "n)");
  return results;
}

}  // namespace kernelopt::cpp
