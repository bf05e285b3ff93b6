// Compiles many candidates as one shared library and runs them on test data.
#pragma once

#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "kernelopt/codegen/cpp/prelude.h"
#include "kernelopt/codegen/printer.h"
#include "kernelopt/codegen/testing/reference_interpreter.h"

namespace kernelopt::testing {

// One candidate within a library.
struct Compiled {
  Candidate candidate;
  void (*entry)(void**) = nullptr;  // takes the kernel's arguments in order
};

class KernelLibrary {
 public:
  // The flags are those with which the compiler's own kernels are built, but for the level of optimisation.
  static constexpr const char* kFlags =
      "-std=c++17 -O1 -fPIC -shared -fopenmp -ffast-math -fno-finite-math-only -fno-unsafe-math-optimizations -ffp-contract=off -march=native";

  explicit KernelLibrary(int lanes) : lanes_(lanes) {}
  ~KernelLibrary() {
    // The library stays loaded: the OpenMP runtime that came with it has threads of its own.
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  size_t add(Candidate candidate) {
    kernels_.push_back({std::move(candidate), nullptr});
    return kernels_.size() - 1;
  }

  // Empty, or the compiler's message.
  std::string build() {
    char pattern[] = "/tmp/kernelopt_codegen_XXXXXX";
    if (mkdtemp(pattern) == nullptr) return "no temporary folder";
    folder_ = pattern;
    PreludeNeeds needs;
    needs.math = needs.transpose = needs.wide = true;
    std::ofstream file(folder_ + "/kernels.cpp");
    file << cpp_prelude(lanes_, needs);
    const std::string end_of_prelude = "using namespace ko;\n";
    for (size_t i = 0; i < kernels_.size(); ++i) {
      const KernelSource& kernel = kernels_[i].candidate.parts().kernels[0];
      std::string text = kernel.source.substr(kernel.source.find(end_of_prelude) + end_of_prelude.size());
      const std::string entry = "extern \"C\" void kernel(";
      text.replace(text.find(entry), entry.size(), "static void kernel(");
      file << "namespace k" << i << " {\n" << text << "}\n";
      file << "extern \"C\" void entry" << i << "(void** a) { (void)a; k" << i << "::kernel(";
      for (size_t p = 0; p < kernel.params.size(); ++p) file << (p == 0 ? "" : ", ") << "(" << c_type(kernel.params[p].dtype) << "*)a[" << p << "]";
      file << "); }\n";
    }
    file.close();
    const std::string command = std::string("g++ ") + kFlags + " -o " + folder_ + "/kernels.so " + folder_ + "/kernels.cpp 2> " + folder_ + "/log";
    if (std::system(command.c_str()) != 0) {
      std::ifstream log(folder_ + "/log");
      std::string text((std::istreambuf_iterator<char>(log)), {});
      return "compile error: " + text.substr(0, 4000);
    }
    handle_ = dlopen((folder_ + "/kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) return dlerror();
    for (size_t i = 0; i < kernels_.size(); ++i)
      kernels_[i].entry = reinterpret_cast<void (*)(void**)>(dlsym(handle_, ("entry" + std::to_string(i)).c_str()));
    return {};
  }

  const Compiled& kernel(size_t i) const { return kernels_[i]; }
  size_t size() const { return kernels_.size(); }

 private:
  static const char* c_type(DType type) {
    switch (type) {
      case DType::kBool:
      case DType::kUInt8: return "uint8_t";
      case DType::kInt8: return "int8_t";
      case DType::kInt16: return "int16_t";
      case DType::kInt32: return "int32_t";
      case DType::kInt64: return "int64_t";
      case DType::kFloat16:
      case DType::kBFloat16: return "uint16_t";
      case DType::kFloat32: return "float";
      case DType::kFloat64: return "double";
    }
    return "void";
  }
  int lanes_;
  std::string folder_;
  void* handle_ = nullptr;
  std::vector<Compiled> kernels_;
};

// Elements <-> bytes.
inline void put(uint8_t* at, DType type, const Number& n) {
  const auto write = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (type) {
    case DType::kBool: return write(static_cast<uint8_t>(n.whole != 0));
    case DType::kUInt8: return write(static_cast<uint8_t>(n.whole));
    case DType::kInt8: return write(static_cast<int8_t>(n.whole));
    case DType::kInt16: return write(static_cast<int16_t>(n.whole));
    case DType::kInt32: return write(static_cast<int32_t>(n.whole));
    case DType::kInt64: return write(n.whole);
    case DType::kFloat16: return write(static_cast<_Float16>(n.real));
    case DType::kBFloat16: {
      const float f = static_cast<float>(n.real);
      uint32_t u;
      std::memcpy(&u, &f, 4);
      return write(static_cast<uint16_t>(u >> 16));
    }
    case DType::kFloat32: return write(static_cast<float>(n.real));
    case DType::kFloat64: return write(n.real);
  }
}
inline Number take(const uint8_t* at, DType type) {
  Number n;
  const auto read = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (type) {
    case DType::kBool:
    case DType::kUInt8: n.whole = read(uint8_t{}); break;
    case DType::kInt8: n.whole = read(int8_t{}); break;
    case DType::kInt16: n.whole = read(int16_t{}); break;
    case DType::kInt32: n.whole = read(int32_t{}); break;
    case DType::kInt64: n.whole = read(int64_t{}); break;
    case DType::kFloat16: n.real = static_cast<double>(read(_Float16{})); break;
    case DType::kBFloat16: {
      const uint32_t u = static_cast<uint32_t>(read(uint16_t{})) << 16;
      float f;
      std::memcpy(&f, &u, 4);
      n.real = f;
      break;
    }
    case DType::kFloat32: n.real = read(float{}); break;
    case DType::kFloat64: n.real = read(double{}); break;
  }
  return n;
}

// Random contents; floating buffers hold a NaN and infinities where asked for. Integers are small, so that they index.
inline std::vector<Number> random_elements(const Buffer& buffer, std::mt19937& random, bool special, int64_t index_limit) {
  std::vector<Number> result(static_cast<size_t>(buffer.storage_elements()));
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int64_t> small(buffer.dtype == DType::kUInt8 ? 0 : -index_limit, index_limit - 1);
  for (auto& n : result) {
    n.real = rounded(buffer.dtype == DType::kBFloat16 ? std::round(normal(random) * 16) / 16 : normal(random), buffer.dtype);
    n.whole = buffer.dtype == DType::kBool ? small(random) & 1 : small(random);
  }
  if (special && is_floating(buffer.dtype) && result.size() > 8) {
    result[2].real = NAN;
    result[result.size() / 2].real = INFINITY;
    result[result.size() - 2].real = -INFINITY;
  }
  return result;
}

// Runs one kernel; `memory` holds the program's buffers by real name and is overwritten. Guard bytes around every buffer
// must survive; what the kernel does not write keeps its poison. Returns a complaint or nothing.
inline std::string run_kernel(const Compiled& compiled, const Program& program, const Group& group, Memory& memory) {
  const auto& parts = compiled.candidate.parts();
  const auto& params = parts.kernels[0].params;
  constexpr size_t kGuard = 256;
  std::vector<std::vector<uint8_t>> storage(params.size());
  std::vector<void*> pointers;
  std::vector<const Buffer*> buffers(params.size(), nullptr);
  for (size_t p = 0; p < params.size(); ++p) {
    const std::string& name = parts.launches[0].args[p];
    int64_t elements = 0;
    if (params[p].role == ParamRole::kScratch) {
      for (const auto& scratch : parts.scratch)
        if (scratch.name == name) elements = scratch.elements;
    } else {
      buffers[p] = &program.buffer(group.names.at(std::stoul(name.substr(1))));
      elements = buffers[p]->storage_elements();
    }
    const size_t width = static_cast<size_t>(dtype_bytes(params[p].dtype));
    // One vector's alignment, off by one element so that nothing relies on more.
    storage[p].assign(2 * kGuard + static_cast<size_t>(elements) * width, 0xA5);
    if (buffers[p] != nullptr && params[p].role != ParamRole::kOut)
      for (int64_t i = 0; i < elements; ++i) put(&storage[p][kGuard + static_cast<size_t>(i) * width], params[p].dtype, memory.at(buffers[p]->name)[static_cast<size_t>(i)]);
    pointers.push_back(&storage[p][kGuard]);
  }
  compiled.entry(pointers.data());
  for (size_t p = 0; p < params.size(); ++p) {
    for (size_t g = 0; g < kGuard; ++g)
      if (storage[p][g] != 0xA5 || storage[p][storage[p].size() - 1 - g] != 0xA5) return "memory around " + params[p].name + " was overwritten";
    if (buffers[p] == nullptr || params[p].role == ParamRole::kIn) continue;
    auto& elements = memory.at(buffers[p]->name);
    const size_t width = static_cast<size_t>(dtype_bytes(params[p].dtype));
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = take(&storage[p][kGuard + i * width], params[p].dtype);
  }
  return {};
}

// Empty, or the first difference of the outputs.
inline std::string compare(const Program& program, const Group& group, const Memory& ours, const Memory& reference) {
  for (const auto& name : group.outputs) {
    const Buffer& buffer = program.buffer(name);
    const double tolerance = buffer.dtype == DType::kFloat16 || buffer.dtype == DType::kBFloat16 ? 1e-2 : 2e-5;
    for (size_t i = 0; i < ours.at(name).size(); ++i) {
      const Number &a = ours.at(name)[i], &b = reference.at(name)[i];
      bool same;
      if (!is_floating(buffer.dtype)) same = a.whole == b.whole;
      else if (std::isnan(b.real)) same = std::isnan(a.real);
      else if (std::isinf(b.real)) same = a.real == b.real;
      else same = std::abs(a.real - b.real) <= tolerance * (1 + std::abs(b.real));
      if (!same)
        return name + "[" + std::to_string(i) + "] is " + (is_floating(buffer.dtype) ? std::to_string(a.real) : std::to_string(a.whole)) + ", not " +
               (is_floating(buffer.dtype) ? std::to_string(b.real) : std::to_string(b.whole));
    }
  }
  return {};
}

}  // namespace kernelopt::testing
