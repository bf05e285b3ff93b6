#include "kernelopt/ir/program.h"

namespace kernelopt {

int64_t Buffer::elements() const {
  int64_t count = 1;
  for (const int64_t extent : size) count *= extent;
  return count;
}

int64_t Buffer::storage_elements() const {
  // A non-owning buffer's offset lies in its base; its own pointer already includes it.
  int64_t last = layout == LayoutKind::kNonOwning ? 0 : offset;
  for (size_t i = 0; i < size.size(); ++i) {
    if (size[i] == 0) return 0;
    if (stride[i] > 0) last += (size[i] - 1) * stride[i];
  }
  return last + 1;
}

int64_t Buffer::bytes() const { return elements() * dtype_bytes(dtype); }

const Buffer& Program::buffer(const std::string& name) const {
  const auto found = buffers.find(name);
  KO_CHECK(found != buffers.end(), "no buffer " + name);
  return found->second;
}

}  // namespace kernelopt
