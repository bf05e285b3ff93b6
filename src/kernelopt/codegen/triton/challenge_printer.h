// What printers of challenges share (product_kernel.cc, convolution_kernel.cc): kernels that are text over buffers of the group and
// scratch of their own, gathered into the parts of a candidate.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernelopt/codegen/candidate.h"
#include "kernelopt/fusion/group.h"

namespace kernelopt::triton {

inline int64_t up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
inline int64_t blocks(int64_t value, int64_t of) { return (value + of - 1) / of; }

class ChallengePrinter {
 protected:
  // Name of a parameter (a buffer's canonical name, or of scratch) and what the kernel does with it.
  using Params = std::vector<std::pair<std::string, ParamRole>>;

  // `largest`: elements of the largest array that the candidate makes; beyond 2^31, there or in a buffer, indices have 64 bits.
  ChallengePrinter(const Program& program, const Group& group, std::string format);
  void count(int64_t largest);

  // Programs count in 32 bits, memory beyond 2^31 elements in 64.
  std::string index(const std::string& text) const { return wide_ ? "(" + text + ").to(tl.int64)" : text; }
  void declare(const std::string& name, DType type, int64_t elements, bool zeroed = false);
  // A call of the library over scratch x and w; the result, of as many elements, becomes scratch `out` of their type.
  void add_call(const std::string& name, LibraryCall call, const std::string& x, const std::string& w, const std::string& out, int64_t elements);
  // `text`: the indented lines of the function. Takes the helpers gathered so far along.
  void add_kernel(const std::string& name, const Params& params, const std::string& text, int64_t programs, int warps, int stages);
  // The canonical name of a buffer; adds it to the parameters where it is not among them.
  const std::string& touch(const std::string& buffer, ParamRole role, Params& params) const;

  const Program& program_;
  const std::map<std::string, std::string> names_;
  CandidateParts parts_;
  std::vector<std::string> helpers_;  // prelude functions that the next kernel calls

 private:
  const Buffer& buffer_of(const std::string& canonical) const;

  bool wide_ = false;
  std::map<std::string, DType> scratch_types_;
};

}  // namespace kernelopt::triton
