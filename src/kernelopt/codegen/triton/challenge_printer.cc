#include "kernelopt/codegen/triton/challenge_printer.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernelopt/base/check.h"
#include "kernelopt/codegen/canonical_names.h"
#include "kernelopt/codegen/triton/ops.h"

namespace kernelopt::triton {

ChallengePrinter::ChallengePrinter(const Program& program, const Group& group, std::string format)
    : program_(program), names_(canonical_names(group)) {
  parts_.language = "triton";
  parts_.group = group.digest;
  parts_.formats = {std::move(format)};
}

void ChallengePrinter::count(int64_t largest) {
  for (const auto& [name, canonical] : names_) largest = std::max(largest, program_.buffer(name).storage_elements());
  wide_ = largest >= (int64_t{1} << 31);
}

void ChallengePrinter::declare(const std::string& name, DType type, int64_t elements, bool zeroed) {
  parts_.scratch.push_back({name, type, elements, zeroed});
  scratch_types_[name] = type;
}

void ChallengePrinter::add_call(const std::string& name, LibraryCall call, const std::string& x, const std::string& w, const std::string& out,
                                int64_t elements) {
  declare(out, scratch_types_.at(x), elements);
  parts_.scratch.back().returned = true;
  KernelSource kernel;
  kernel.name = name;
  Launch launch;
  launch.kernel = name;
  for (const auto& arg : {x, w, out}) {
    kernel.params.push_back({arg, scratch_types_.at(arg), ParamRole::kScratch});
    launch.args.push_back(arg);
  }
  kernel.library = std::move(call);
  parts_.kernels.push_back(std::move(kernel));
  parts_.launches.push_back(std::move(launch));
}

void ChallengePrinter::add_kernel(const std::string& name, const Params& params, const std::string& text, int64_t programs, int warps,
                                  int stages) {
  KernelSource kernel;
  kernel.name = name;
  Launch launch;
  std::string list;
  for (const auto& [param, role] : params) {
    list += (list.empty() ? "" : ", ") + param;
    kernel.params.push_back({param, role == ParamRole::kScratch ? scratch_types_.at(param) : buffer_of(param).dtype, role});
    launch.args.push_back(param);
  }
  const std::string prelude = helper_source(helpers_);
  helpers_.clear();
  kernel.source = "import triton\nimport triton.language as tl\n";
  if ((text + prelude).find("libdevice.") != std::string::npos) kernel.source += "from triton.language.extra import libdevice\n";
  kernel.source += "\n" + prelude + fmt::format("@triton.jit\ndef {}({}):\n{}", name, list, text);
  launch.kernel = name;
  launch.programs = programs;
  launch.warps = warps;
  launch.stages = stages;
  parts_.kernels.push_back(std::move(kernel));
  parts_.launches.push_back(std::move(launch));
}

const std::string& ChallengePrinter::touch(const std::string& buffer, ParamRole role, Params& params) const {
  const std::string& name = names_.at(buffer);
  const bool known = std::any_of(params.begin(), params.end(), [&](const auto& param) { return param.first == name; });
  if (!known) params.emplace_back(name, role);
  return name;
}

const Buffer& ChallengePrinter::buffer_of(const std::string& canonical) const {
  for (const auto& [name, short_name] : names_)
    if (short_name == canonical) return program_.buffer(name);
  KO_CHECK(false, "a canonical name without a buffer");
}

}  // namespace kernelopt::triton
