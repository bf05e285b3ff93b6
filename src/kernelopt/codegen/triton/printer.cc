// print_triton: a lowered kernel as one Triton source, function and launch a nest.
#include "kernelopt/codegen/printer.h"

#include <algorithm>

#include "kernelopt/base/check.h"
#include "kernelopt/codegen/canonical_names.h"
#include "kernelopt/codegen/triton/convolution_kernel.h"
#include "kernelopt/codegen/triton/nest_kernel.h"
#include "kernelopt/codegen/triton/product_kernel.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt {
namespace {

ParamRole role_of(const LoweredBuffer& buffer) {
  if (buffer.place == Place::kScratch) return ParamRole::kScratch;
  return !buffer.written ? ParamRole::kIn : buffer.read ? ParamRole::kInOut : ParamRole::kOut;
}

}  // namespace

Result<Candidate> print_triton(const Program& program, const Group& group, const KernelPlan& plan, const Target&) {
  if (plan.product) {
    const auto product = group_product(program, group);
    if (!product) return Error(ErrorCode::kInternal, "a plan for a product, and a group that is none");
    return triton::print_product(program, group, *product, plan);
  }
  if (plan.convolution) {
    const auto convolution = group_convolution(program, group);
    if (!convolution) return Error(ErrorCode::kInternal, "a plan for a convolution, and a group that is none");
    return triton::print_convolution(program, group, *convolution, plan);
  }
  KO_TRY(const LoweredKernel kernel, lower(program, group, plan));
  CandidateParts parts;
  parts.language = "triton";
  parts.group = group.digest;
  const auto canonical = canonical_names(group);
  std::map<std::string, std::string> names;
  for (const auto& [name, buffer] : kernel.buffers) {
    if (buffer.place == Place::kMemory) {
      const auto at = canonical.find(name);
      if (at == canonical.end()) return Error(ErrorCode::kInternal, "buffer " + name + " has no canonical name");
      names[name] = at->second;
    } else if (buffer.place == Place::kScratch) {
      names[name] = "s" + std::to_string(parts.scratch.size());
      parts.scratch.push_back({names[name], buffer.dtype, buffer.elements, false});
    }
  }
  for (size_t n = 0; n < kernel.nests.size(); ++n) {
    const std::string function = "kernel" + std::to_string(n);
    KO_TRY(triton::NestSource nest, triton::print_nest(kernel, n, names, function));
    if (nest.buffers.empty()) continue;
    KernelSource source;
    source.name = function;
    source.source = "import triton\nimport triton.language as tl\n";
    if (nest.uses_libdevice) source.source += "from triton.language.extra import libdevice\n";
    source.source += "\n" + triton::helper_source(nest.helpers);
    for (const auto& combine : nest.combines) source.source += combine + "\n";
    source.source += nest.source;
    Launch launch;
    launch.kernel = function;
    for (const auto& buffer : nest.buffers) {
      const LoweredBuffer& lowered = kernel.buffers.at(buffer);
      source.params.push_back({names.at(buffer), lowered.dtype, role_of(lowered)});
      launch.args.push_back(names.at(buffer));
    }
    for (const auto& extra : nest.team_scratch) {
      const std::string name = "s" + std::to_string(parts.scratch.size());
      parts.scratch.push_back({name, extra.dtype, extra.elements, extra.zeroed});
      source.params.push_back({extra.parameter, extra.dtype, ParamRole::kScratch});
      launch.args.push_back(name);
    }
    launch.programs = nest.programs;
    launch.cooperative = nest.cooperative;
    launch.warps = kernel.nests[n].plan.program.warps;
    launch.stages = kernel.nests[n].plan.program.stages;
    parts.kernels.push_back(std::move(source));
    parts.launches.push_back(std::move(launch));
  }
  parts.plan = plan_to_json(plan);
  return Candidate(std::move(parts));
}

}  // namespace kernelopt
