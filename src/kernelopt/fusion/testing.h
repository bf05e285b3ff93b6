// Builders of small programs for the tests of fusion/ and of modules above it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernelopt/ir/program.h"
#include "kernelopt/ir/type_inference.h"

namespace kernelopt::testing {

inline Expr v(const std::string& name) { return Expr::var(name); }

inline Buffer make_buffer(const std::string& name, std::vector<int64_t> size, BufferKind kind = BufferKind::kComputed) {
  Buffer buffer;
  buffer.name = name;
  buffer.kind = kind;
  buffer.stride.assign(size.size(), 1);
  for (size_t i = size.size(); i-- > 1;) buffer.stride[i - 1] = buffer.stride[i] * size[i];
  buffer.size = std::move(size);
  buffer.device = "cpu";
  buffer.removable = kind == BufferKind::kComputed;
  return buffer;
}

inline LoopVar iter(const std::string& name, int64_t extent) { return {name, extent, VarKind::kIter}; }
inline LoopVar reduce(const std::string& name, int64_t extent) { return {name, extent, VarKind::kReduce}; }

using Loads = std::vector<std::pair<std::string, Expr>>;

// The sum of loads (1 where there is none), then a sum reduction if there are reduction variables, stored to target[index].
inline Body make_body(const std::string& name, std::vector<LoopVar> vars, const Loads& loads, const std::string& target, Expr index) {
  Body body;
  body.name = name;
  body.vars = std::move(vars);
  int next = 0;
  auto& ops = body.block.ops;
  ValueId value = kNoValue;
  for (const auto& [buffer, at] : loads) {
    Op load;
    load.code = OpCode::kLoad;
    load.id = next++;
    load.buffer = buffer;
    load.index = at;
    ops.push_back(load);
    if (value != kNoValue) {
      Op add;
      add.code = OpCode::kAdd;
      add.id = next++;
      add.args = {value, load.id};
      ops.push_back(add);
    }
    value = ops.back().id;
  }
  if (value == kNoValue) {
    Op constant;
    constant.code = OpCode::kConstant;
    constant.id = value = next++;
    constant.value = 1.0;
    ops.push_back(constant);
  }
  Op store;
  store.code = OpCode::kStore;
  if (body.has_reduction_vars()) {
    Op sum;
    sum.code = OpCode::kReduction;
    sum.id = next++;
    sum.args = {value};
    ops.push_back(sum);
    value = sum.id;
    store.code = OpCode::kStoreReduction;
  }
  store.buffer = target;
  store.index = std::move(index);
  store.args = {value};
  ops.push_back(store);
  return body;
}

inline Step generated(const std::string& name, std::vector<Body> bodies) {
  Step step;
  step.name = name;
  step.bodies = std::move(bodies);
  for (const auto& body : step.bodies)
    for_each_op(body.block, [&](const Op& op) {
      if (op.code == OpCode::kLoad) step.reads.push_back(op.buffer);
      if (op.code == OpCode::kStore || op.code == OpCode::kStoreReduction) step.writes.push_back(op.buffer);
    });
  return step;
}

inline Step external(const std::string& name, std::vector<std::string> reads, std::vector<std::string> writes,
                     StepKind kind = StepKind::kExtern) {
  Step step;
  step.name = name;
  step.kind = kind;
  step.reads = std::move(reads);
  step.writes = std::move(writes);
  return step;
}

// Types inferred and verified; aborts on a mistake in the test.
inline Program make_program(std::vector<Buffer> buffers, std::vector<Step> steps) {
  Program program;
  program.device = "cpu";
  for (auto& buffer : buffers) {
    if (buffer.kind == BufferKind::kInput) program.inputs.push_back(buffer.name);
    if (buffer.is_output) program.outputs.push_back(buffer.name);
    program.buffers.emplace(buffer.name, buffer);
  }
  for (auto& step : steps)
    for (auto& body : step.bodies) {
      const auto status = infer_types(body, program.buffers);
      KO_CHECK(status.ok(), status.error().to_string());
    }
  program.steps = std::move(steps);
  const auto status = verify(program);
  KO_CHECK(status.ok(), status.error().to_string());
  return program;
}

inline Buffer output(Buffer buffer) {
  buffer.is_output = true;
  buffer.removable = false;
  return buffer;
}

}  // namespace kernelopt::testing
