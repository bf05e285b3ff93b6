#include "kernelopt/plan/kernel_plan.h"

#include <nlohmann/json.hpp>

#include "kernelopt/plan/plan_space.h"

namespace kernelopt {

const char* transform_name(TransformKind kind) {
  switch (kind) {
#define KO_X(name, text) \
  case TransformKind::name: return text;
    KERNELOPT_TRANSFORMS(KO_X)
#undef KO_X
  }
  return "?";
}

const char* rewrite_name(RewriteKind kind) {
  switch (kind) {
#define KO_X(name, text) \
  case RewriteKind::name: return text;
    KERNELOPT_REWRITES(KO_X)
#undef KO_X
  }
  return "?";
}

namespace {

const char* axis_name(VectorAxis axis) {
  switch (axis) {
    case VectorAxis::kInner: return "inner";
    case VectorAxis::kShared: return "shared";
    case VectorAxis::kScalar: return "scalar";
  }
  return "?";
}

nlohmann::json to_json(const ProductPlan& plan, bool sizes) {
  nlohmann::json document{{"product", part_format_name(plan.format)}, {"inside", plan.inside}, {"split", plan.split_k > 1}};
  if (sizes)
    document.update({{"split_k", plan.split_k}, {"block_m", plan.block_m}, {"block_n", plan.block_n}, {"block_k", plan.block_k}, {"warps", plan.warps},
                     {"stages", plan.stages}, {"group_rows", plan.group_rows}});
  return document;
}

nlohmann::json to_json(const ConvolutionPlan& plan, bool sizes) {
  nlohmann::json document{{"convolution", "fp16"}, {"library", plan.library}};
  if (sizes)
    document.update({{"block_m", plan.block_m}, {"block_n", plan.block_n}, {"block_k", plan.block_k}, {"warps", plan.warps},
                     {"stages", plan.stages}});
  return document;
}

nlohmann::json to_json(const KernelPlan& plan, bool sizes) {
  if (plan.convolution) return to_json(*plan.convolution, sizes);
  if (plan.product) return to_json(*plan.product, sizes);
  nlohmann::json document;
  document["lanes"] = plan.lanes;
  document["threads"] = sizes ? plan.threads : static_cast<int>(plan.threads > 1);
  document["math"] = plan.math == MathVariant::kFast ? "fast" : "precise";
  document["rewrites"] = nlohmann::json::array();
  for (const auto& rewrite : plan.rewrites) {
    nlohmann::json entry{{"kind", rewrite_name(rewrite.kind)}, {"target", rewrite.target}};
    if (sizes) entry["amount"] = rewrite.amount;
    if (rewrite.wide) entry["wide"] = true;
    document["rewrites"].push_back(entry);
  }
  document["nests"] = nlohmann::json::array();
  for (const auto& nest : plan.nests) {
    nlohmann::json entry{{"bodies", nest.bodies}, {"anchor", nest.anchor},       {"shared", nest.shared},
                         {"axis", axis_name(nest.axis)}, {"merge", nest.merge},
                         {"split_interior", nest.split_interior}, {"transpose", nest.transpose}, {"stream", nest.stream},
                         {"keep_reduced_in_registers", nest.keep_reduced_in_registers}};
    if (sizes) {
      entry["program"] = {{"block", nest.program.block},
                          {"inner_block", nest.program.inner_block},
                          {"warps", nest.program.warps},
                          {"stages", nest.program.stages}};
      if (nest.program.team > 0) {
        entry["program"]["team"] = nest.program.team;
        entry["program"]["programs"] = nest.program.programs;
      }
    } else {
      entry["program"] = {{"rows", nest.program.block > 1}, {"persistent", nest.program.inner_block == 0}};
      if (nest.program.team > 0) entry["program"]["team"] = nest.program.team > 1;
    }
    if (sizes) {
      entry["unroll"] = nest.unroll;
      entry["prefetch"] = nest.prefetch;
    } else {
      entry["prefetch"] = nest.prefetch > 0;
    }
    document["nests"].push_back(entry);
  }
  return document;
}

}  // namespace

nlohmann::json plan_to_json(const KernelPlan& plan) { return to_json(plan, true); }
std::string plan_key(const KernelPlan& plan) { return to_json(plan, true).dump(); }
std::string plan_shape_key(const KernelPlan& plan) { return to_json(plan, false).dump(); }

}  // namespace kernelopt
