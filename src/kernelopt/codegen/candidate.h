// Candidate: kernel source plus a declarative launch list; no host code (DESIGN.md section 5). Immutable: the digest is
// computed once, from what will be compiled and launched.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/base/result.h"
#include "kernelopt/ir/dtype.h"

namespace kernelopt {

enum class ParamRole { kIn, kOut, kInOut, kScratch };

struct KernelParam {
  std::string name;
  DType dtype;
  ParamRole role;
};

// A call of the library between kernels of a challenge: two scratch buffers in, a returned one out. `call` and `numbers` are those of
// docs/formats.md, with the operands as they lie in these buffers.
struct LibraryCall {
  std::string call;
  nlohmann::json numbers;
};

struct KernelSource {
  std::string name, source;
  std::vector<KernelParam> params;
  std::optional<LibraryCall> library;  // then without source; printed by challenges alone
};

struct Launch {
  std::string kernel;
  std::vector<std::string> args;  // canonical buffer names of the group, or scratch names
  // Triton only.
  int64_t programs = 0;           // grid, one-dimensional
  int warps = 0, stages = 0;
  bool cooperative = false;       // its programs wait for one another: all must be resident, or the driver refuses the launch
};

struct Scratch {
  std::string name;
  DType dtype;
  int64_t elements;
  bool zeroed;
  bool returned = false;  // made by the library call that has it as its last argument, nothing to allocate
};

struct CandidateParts {
  std::string language;      // "cpp" or "triton"
  std::string group;         // group digest
  std::vector<KernelSource> kernels;
  std::vector<Launch> launches;
  std::vector<Scratch> scratch;
  int threads = 1;
  nlohmann::json plan;       // for the journal and for people
  std::vector<std::string> formats;  // narrower number formats used; empty for none
};

class Candidate {
 public:
  explicit Candidate(CandidateParts parts);
  const CandidateParts& parts() const { return parts_; }
  const std::string& digest() const { return digest_; }
  // The `kernelopt.candidate` document of docs/formats.md.
  nlohmann::json to_json() const;

 private:
  CandidateParts parts_;
  std::string digest_;
};

// The candidate that such a document describes; its digest is computed again from what it holds. kBadInput for what is none.
Result<Candidate> read_candidate(const nlohmann::json& document);

}  // namespace kernelopt
