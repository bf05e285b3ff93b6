#include "kernelopt/plan/convolution.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace kernelopt {
namespace {

constexpr int64_t kLeastChannels = 8;  // with fewer, most of a step along the channels would be padding of our own kernel

int64_t product(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{1}, std::multiplies<int64_t>());
}

// (image, channel, place) side by side without gaps, as plain tensors have them.
bool dense_channels_first(const StridedOperand& operand) {
  int64_t expected = 1;
  for (size_t dim = operand.size.size(); dim-- > 0;) {
    if (operand.size[dim] != 1 && operand.stride[dim] != expected) return false;
    expected *= operand.size[dim];
  }
  return true;
}
// The same with channels innermost.
bool dense_channels_last(const StridedOperand& operand) {
  int64_t expected = 1;
  if (operand.size[1] != 1 && operand.stride[1] != 1) return false;
  expected *= operand.size[1];
  for (size_t dim = operand.size.size(); dim-- > 2;) {
    if (operand.size[dim] != 1 && operand.stride[dim] != expected) return false;
    expected *= operand.size[dim];
  }
  return operand.size[0] == 1 || operand.stride[0] == expected;
}

bool reads(const Step& step, const std::string& name) { return std::count(step.reads.begin(), step.reads.end(), name) > 0; }
bool writes(const Step& step, const std::string& name) { return std::count(step.writes.begin(), step.writes.end(), name) > 0; }
bool is_call(const Step& step) { return step.kind == StepKind::kExtern || step.kind == StepKind::kTemplate; }

// The only step that reads a buffer which nothing else needs.
std::optional<int> only_reader(const Program& program, const std::string& name) {
  if (!program.buffer(name).removable || program.buffer(name).is_output) return std::nullopt;
  std::optional<int> found;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (!reads(program.steps[i], name)) continue;
    if (found) return std::nullopt;
    found = static_cast<int>(i);
  }
  return found;
}

bool calls_between(const Program& program, int first, int last) {
  for (int i = first + 1; i < last; ++i)
    if (is_call(program.steps[static_cast<size_t>(i)])) return true;
  return false;
}

// A body of nothing but loads, pointwise ops and one store, without masks.
bool pointwise(const Body& body) {
  int stores = 0;
  for (const auto& op : body.block.ops) {
    if (!op.blocks.empty() || op.atomic_add) return false;
    if (op.code == OpCode::kStore) ++stores;
    else if (op.code != OpCode::kLoad && op_class(op.code) != OpClass::kPointwise) return false;
  }
  for (const auto& var : body.vars)
    if (var.kind == VarKind::kReduce) return false;
  return stores == 1;
}

// The body of the step that follows, its loops solved for the place in the convolution's result; nothing where it goes through
// the result in a way of its own.
std::optional<FlatBody> late_body(const Program& program, const Step& step, const Convolution& convolution) {
  if (step.kind != StepKind::kGenerated || step.refused || step.bodies.size() != 1 || !pointwise(step.bodies[0])) return std::nullopt;
  const Body& body = step.bodies[0];
  if (body.iter_elements() != convolution.pixels() * convolution.outputs) return std::nullopt;
  const std::map<std::string, int64_t> extents{{Convolution::kPixel, convolution.pixels()}, {Convolution::kChannel, convolution.outputs}};
  const Expr place = convolution.out_place();
  FlatBody flat = flatten(body);
  std::optional<std::map<std::string, Expr>> solution;
  for (const auto& f : flat.ops) {
    if (f.op.buffer != convolution.out.name) continue;
    if (f.op.code != OpCode::kLoad) return std::nullopt;
    auto here = solve_index(f.op.index, flat.vars, place, extents);
    if (!here || (solution && *solution != *here)) return std::nullopt;
    solution = std::move(here);
  }
  if (!solution) return std::nullopt;
  // Buffers other than the result must not be written and read in one step, whatever the order of its iterations.
  for (const auto& name : step.writes)
    if (reads(step, name) || program.buffer(name).mutates || program.buffer(name).base) return std::nullopt;
  flat.vars = {{Convolution::kPixel, convolution.pixels(), VarKind::kIter}, {Convolution::kChannel, convolution.outputs, VarKind::kIter}};
  for (auto& f : flat.ops) f.op.index = simplify(f.op.index.substitute(*solution), extents);
  return flat;
}

// What a copy reads, as the operand that it writes: both walk through the same loops. Nothing for any other step.
std::optional<StridedOperand> copied(const Program& program, const Step& step, const StridedOperand& target) {
  if (step.kind != StepKind::kGenerated || step.refused || step.bodies.size() != 1) return std::nullopt;
  const Body& body = step.bodies[0];
  const auto& ops = body.block.ops;
  if (ops.size() != 2 || ops[0].code != OpCode::kLoad || ops[1].code != OpCode::kStore || ops[1].args != std::vector<ValueId>{ops[0].id})
    return std::nullopt;
  if (ops[1].buffer != target.name || program.buffer(ops[0].buffer).dtype != DType::kFloat32) return std::nullopt;
  // The place of an element of the target, digit by digit, and from it the loops of the copy.
  Expr place(target.offset);
  std::map<std::string, int64_t> extents;
  std::vector<std::string> digits;
  for (size_t dim = 0; dim < target.size.size(); ++dim) {
    digits.push_back("d" + std::to_string(dim));
    extents[digits.back()] = target.size[dim];
    place = place + Expr::var(digits.back()) * Expr(target.stride[dim]);
  }
  const auto solution = solve_index(ops[1].index, body.vars, place, extents);
  if (!solution) return std::nullopt;
  Expr rest = simplify(ops[0].index.substitute(*solution), extents);
  StridedOperand result = target;
  result.name = ops[0].buffer;
  for (size_t dim = 0; dim < digits.size(); ++dim) {
    if (target.size[dim] == 1) {
      rest = rest.substitute({{digits[dim], Expr(0)}});
      result.stride[dim] = 0;
      continue;
    }
    const auto in = affine_in(rest, digits[dim]);
    if (!in || in->coefficient < 0) return std::nullopt;
    result.stride[dim] = in->coefficient;
    rest = in->rest;
  }
  rest = simplify(rest, extents);
  if (!rest.is_const()) return std::nullopt;
  result.offset = rest.const_value();
  return result;
}

std::optional<Convolution> of_step(const Step& step) {
  if (step.kind != StepKind::kExtern || step.bodies.empty() || !step.extern_call.convolution) return std::nullopt;
  const ConvolutionNumbers& numbers = *step.extern_call.convolution;
  Convolution result;
  result.transposed = numbers.transposed;
  result.batch = numbers.x.size[0];
  result.channels = numbers.x.size[1];
  result.outputs = numbers.w.size[numbers.transposed ? 1 : 0];
  result.size.assign(numbers.x.size.begin() + 2, numbers.x.size.end());
  result.out_size.assign(numbers.out.size.begin() + 2, numbers.out.size.end());
  result.window.assign(numbers.w.size.begin() + 2, numbers.w.size.end());
  result.stride = numbers.stride;
  result.padding = numbers.padding;
  result.dilation = numbers.dilation;
  result.x = numbers.x;
  result.w = numbers.w;
  if (numbers.transposed) {
    std::swap(result.w.size[0], result.w.size[1]);
    std::swap(result.w.stride[0], result.w.stride[1]);
  }
  result.out = numbers.out;
  if (!(dense_channels_last(result.out) || dense_channels_first(result.out))) return std::nullopt;
  return result;
}

std::optional<int> copy_before(const Program& program, int step, const Convolution& convolution) {
  const auto reader = only_reader(program, convolution.x.name);
  if (!reader || *reader != step) return std::nullopt;
  for (int i = step - 1; i >= 0; --i)
    if (writes(program.steps[static_cast<size_t>(i)], convolution.x.name)) {
      if (calls_between(program, i, step) || !copied(program, program.steps[static_cast<size_t>(i)], convolution.x)) return std::nullopt;
      return i;
    }
  return std::nullopt;
}

std::optional<int> step_after(const Program& program, int step, const Convolution& convolution) {
  const auto reader = only_reader(program, convolution.out.name);
  if (!reader || *reader <= step || calls_between(program, step, *reader)) return std::nullopt;
  if (!late_body(program, program.steps[static_cast<size_t>(*reader)], convolution)) return std::nullopt;
  return reader;
}

// Our own kernel walks over every place of the window: of a transposed convolution with a stride most would be skipped.
bool multiplied_here(const Convolution& convolution) {
  if (convolution.channels < kLeastChannels) return false;
  return !convolution.transposed || std::all_of(convolution.stride.begin(), convolution.stride.end(), [](int64_t step) { return step == 1; });
}

int columns_for(int64_t outputs) {
  return static_cast<int>(std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(outputs))), 16, 128));
}

}  // namespace

int64_t Convolution::pixels() const { return batch * product(out_size); }

Expr Convolution::out_place() const {
  const Expr pixel = Expr::var(kPixel), channel = Expr::var(kChannel), start(out.offset);
  if (dense_channels_last(out)) return pixel * Expr(outputs) + channel + start;
  const int64_t places = product(out_size);
  return Expr::floordiv(pixel, Expr(places)) * Expr(places * outputs) + channel * Expr(places) + Expr::mod(pixel, Expr(places)) + start;
}

std::vector<int> convolution_steps(const Program& program, int step) {
  const auto convolution = of_step(program.steps.at(static_cast<size_t>(step)));
  if (!convolution) return {};
  std::vector<int> steps{step};
  if (const auto before = copy_before(program, step, *convolution)) steps.insert(steps.begin(), *before);
  if (const auto after = step_after(program, step, *convolution)) steps.push_back(*after);
  return steps;
}

std::optional<Convolution> group_convolution(const Program& program, const Group& group) {
  std::optional<Convolution> result;
  for (const int index : group.steps) {
    const Step& step = program.steps.at(static_cast<size_t>(index));
    if (step.kind != StepKind::kExtern) continue;
    if (result) return std::nullopt;
    result = of_step(step);
    if (!result || step.extern_call.convolution->groups != 1) return std::nullopt;
  }
  if (!result) return std::nullopt;
  const std::string x = result->x.name;
  for (const int index : group.steps) {
    const Step& step = program.steps.at(static_cast<size_t>(index));
    if (step.kind == StepKind::kExtern) continue;
    if (writes(step, x)) {
      const auto source = copied(program, step, result->x);
      if (!source) return std::nullopt;
      result->x = *source;
    } else {
      result->late = late_body(program, step, *result);
      if (!result->late) return std::nullopt;
    }
  }
  return result;
}

std::vector<ConvolutionPlan> convolution_starts(const Convolution& convolution) {
  const int columns = columns_for(convolution.outputs);
  const int behind = std::min(64, columns);
  std::vector<ConvolutionPlan> by_library{{true, 64, behind, 0, 4, 1}, {true, 32, columns, 0, 8, 1}, {true, 128, std::min(32, columns), 0, 4, 1}};
  if (!multiplied_here(convolution)) return by_library;
  const int deep = convolution.channels > 32 ? 64 : convolution.channels > 16 ? 32 : 16;
  std::vector<ConvolutionPlan> result{
      {false, 128, columns, deep, 8, 3}, {false, 128, columns, deep, 4, 3}, {false, 64, columns, deep, 4, 4}};
  if (columns == 128) result.push_back({false, 128, 64, deep, 4, 4});
  if (convolution.outputs > 128) result.push_back({false, 64, 128, deep, 4, 3});
  if (deep == 64) result.push_back({false, 128, columns, 32, 8, 4});
  if (columns <= 64) result.push_back({false, 256, columns, deep, 8, 3});
  // Few blocks leave multiprocessors idle: smaller ones first.
  constexpr int64_t kBusy = 132;
  const auto programs = [&](const ConvolutionPlan& plan) {
    return (convolution.pixels() + plan.block_m - 1) / plan.block_m * ((convolution.outputs + plan.block_n - 1) / plan.block_n);
  };
  std::stable_sort(result.begin(), result.end(),
                   [&](const auto& a, const auto& b) { return programs(a) >= kBusy && programs(b) < kBusy; });
  // By turns, so that the first few already compare the two.
  for (size_t i = 0; i < by_library.size(); ++i)
    result.insert(result.begin() + static_cast<std::ptrdiff_t>(std::min(2 * i, result.size())), by_library[i]);
  return result;
}

std::vector<ConvolutionPlan> convolution_moves(const Convolution& convolution, const ConvolutionPlan& plan) {
  std::vector<ConvolutionPlan> result;
  const int widest = columns_for(convolution.outputs), deepest = convolution.channels > 32 ? 64 : convolution.channels > 16 ? 32 : 16;
  const auto add = [&](ConvolutionPlan next) {
    if (next.library && (next.block_m > 128 || next.block_m * next.block_n < 512)) return;
    if (next.block_m * next.block_n <= 256 * 128 && next.block_n <= widest && next.block_k <= deepest) result.push_back(next);
  };
  for (const int value : {32, 64, 128, 256}) {
    ConvolutionPlan next = plan;
    next.block_m = value;
    if (value != plan.block_m && (plan.library || value >= 64)) add(next);
  }
  for (const int value : {16, 32, 64, 128}) {
    ConvolutionPlan next = plan;
    next.block_n = value;
    if (value != plan.block_n) add(next);
    next = plan;
    next.block_k = value;
    if (!plan.library && value != plan.block_k) add(next);
  }
  for (const int value : {2, 3, 4, 5}) {
    ConvolutionPlan next = plan;
    next.stages = value;
    if (!plan.library && value != plan.stages) add(next);
  }
  for (const int value : {4, 8}) {
    ConvolutionPlan next = plan;
    next.warps = value;
    if (value != plan.warps) add(next);
  }
  return result;
}

double convolution_operations(const Convolution& convolution) {
  const int64_t places = convolution.transposed ? convolution.batch * product(convolution.size) : convolution.pixels();
  return 2.0 * static_cast<double>(places) * static_cast<double>(convolution.outputs) *
         static_cast<double>(convolution.channels) * static_cast<double>(product(convolution.window));
}

}  // namespace kernelopt
