// The names b0, b1, … of a group's buffers (docs/formats.md, "Group"), which candidates use in place of real names.
#pragma once

#include <map>
#include <string>

#include "kernelopt/fusion/group.h"

namespace kernelopt {

// Real name -> canonical name. A group that the bridge has not described yet gets names in the order inputs, outputs,
// internals.
std::map<std::string, std::string> canonical_names(const Group& group);

}  // namespace kernelopt
