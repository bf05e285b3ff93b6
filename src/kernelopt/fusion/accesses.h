// Memory accesses of bodies, and when two views of one storage are disjoint. Internal to fusion/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernelopt/ir/program.h"

namespace kernelopt {

struct Access {
  std::string buffer;
  Expr index;
  bool store = false, atomic = false, indirect = false;  // indirect: the index depends on a loaded value
};

// Loads, stores and seed loads in order, nested blocks included.
std::vector<Access> accesses(const Body& body);

// Bounds of the symbols that `indirect` ops define: the compiler guarantees 0 <= symbol < size.
std::map<std::string, int64_t> symbol_extents(const Body& body);

// Two buffers of one storage that have no element in common (pieces of a concatenation). False when in doubt.
bool disjoint_views(const Buffer& a, const Buffer& b);

}  // namespace kernelopt
