// Program: one captured graph (docs/formats.md). Immutable once read and verified.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "kernelopt/ir/body.h"

namespace kernelopt {

enum class BufferKind { kInput, kConstant, kComputed };
enum class LayoutKind { kFixed, kMutation, kNonOwning, kNone };

struct Buffer {
  std::string name;
  BufferKind kind = BufferKind::kComputed;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> size, stride;
  int64_t offset = 0;
  std::string device;
  LayoutKind layout = LayoutKind::kFixed;
  std::optional<std::string> base, mutates;
  bool is_output = false, removable = false;
  std::optional<double> value;

  int64_t elements() const;         // product of sizes
  int64_t storage_elements() const; // highest reachable offset + 1, 0 if empty
  int64_t bytes() const;            // elements() * element size
};

enum class StepKind { kGenerated, kExtern, kTemplate, kNop };

// A tensor in a buffer; offset and strides in elements.
struct StridedOperand {
  std::string name;
  std::vector<int64_t> size, stride;
  int64_t offset = 0;
};

// A convolution: x is (image, channel, place…), w (channel out, channel in, window…), of a transposed one (channel in,
// channel out, window…).
struct ConvolutionNumbers {
  bool transposed = false;
  int64_t groups = 1;  // 1, or of a depthwise convolution the channels in
  std::vector<int64_t> stride, padding, dilation;  // one a spatial dim
  StridedOperand x, w, out;
};

struct ExternCall {
  std::string call, op;
  std::vector<std::string> args;
  std::optional<ConvolutionNumbers> convolution;
  // A scan or a pool that the compiler leaves to the library; its body is what a generated step's would be.
  bool scan = false, pool = false;
};

struct Step {
  std::string name;
  StepKind kind = StepKind::kGenerated;
  std::vector<std::string> reads, writes, last_use, origins;
  std::optional<std::string> refused;
  std::vector<Body> bodies;
  ExternCall extern_call;

  // Whether it is planned as the compiler's own loops are, alone or with its neighbours.
  bool is_loops() const {
    return kind == StepKind::kGenerated || (kind == StepKind::kExtern && (extern_call.scan || extern_call.pool));
  }
};

struct CompilerKernel {
  std::string name, source;
};

struct Program {
  std::string torch, adapter, device;
  int graph = 0;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, Buffer> buffers;
  std::vector<Step> steps;
  std::string wrapper;
  std::vector<CompilerKernel> kernels;

  const Buffer& buffer(const std::string& name) const;  // our own bug if it is not there
};

inline constexpr int kProgramVersion = 1;

// Reads, infers types, verifies. kUnsupported for another version, kInternal for a malformed document. A body with an op
// that is not in the op table makes its step refused ("op X"); it is not an error.
Result<Program> read_program(const nlohmann::json& document);
Result<Program> read_program_file(const std::string& path);

// Every invariant of docs/formats.md: ids defined before use, vars declared, buffers known, arity and types right.
Status verify(const Program& program);
Status verify(const Body& body, const Program& program);

// Text for people and goldens: one op a line.
std::string print(const Body& body);

}  // namespace kernelopt
