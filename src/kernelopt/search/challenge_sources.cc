#include "kernelopt/search/challenge_sources.h"

#include <fmt/format.h>

#include "kernelopt/base/check.h"

namespace kernelopt {
namespace {

Move move_to(const ProductPlan& plan, TransformKind kind) {
  KernelPlan next;
  next.product = plan;
  const std::string where = !plan.inside ? "split before" : plan.split_k > 1 ? fmt::format("split inside, k in {}", plan.split_k) : "split inside";
  return {kind, fmt::format("{} {}, {} x {} x {}, {} warps, {} stages, rows of {}", part_format_name(plan.format), where, plan.block_m,
                            plan.block_n, plan.block_k, plan.warps, plan.stages, plan.group_rows), std::move(next)};
}

Move move_to(const ConvolutionPlan& plan, TransformKind kind) {
  KernelPlan next;
  next.convolution = plan;
  if (plan.library) return {kind, fmt::format("fp16 by the library, then {} x {}, {} warps", plan.block_m, plan.block_n, plan.warps), std::move(next)};
  return {kind, fmt::format("fp16 {} x {} x {}, {} warps, {} stages", plan.block_m, plan.block_n, plan.block_k, plan.warps, plan.stages),
          std::move(next)};
}

}  // namespace

ProductSource::ProductSource(Product product) : product_(std::move(product)) {
  seed_.product = ProductPlan{};
}

std::vector<Move> ProductSource::starts() const {
  std::vector<Move> result;
  for (const auto& plan : product_starts(product_)) result.push_back(move_to(plan, TransformKind::kNumberFormat));
  return result;
}

std::vector<Move> ProductSource::moves(const KernelPlan& plan) const {
  KO_CHECK(plan.product.has_value(), "moves of a plan that is no product's");
  std::vector<Move> result;
  for (const auto& next : product_moves(product_, *plan.product)) result.push_back(move_to(next, TransformKind::kTileSize));
  return result;
}

ConvolutionSource::ConvolutionSource(Convolution convolution) : convolution_(std::move(convolution)) {
  seed_.convolution = ConvolutionPlan{};
}

std::vector<Move> ConvolutionSource::starts() const {
  std::vector<Move> result;
  for (const auto& plan : convolution_starts(convolution_)) result.push_back(move_to(plan, TransformKind::kNumberFormat));
  return result;
}

std::vector<Move> ConvolutionSource::moves(const KernelPlan& plan) const {
  KO_CHECK(plan.convolution.has_value(), "moves of a plan that is no convolution's");
  std::vector<Move> result;
  for (const auto& next : convolution_moves(convolution_, *plan.convolution)) result.push_back(move_to(next, TransformKind::kTileSize));
  return result;
}

}  // namespace kernelopt
