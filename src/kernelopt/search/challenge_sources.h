// The plans of challenges to library calls as PlanSources (plan/product.h, plan/convolution.h).
#pragma once

#include "kernelopt/plan/convolution.h"
#include "kernelopt/plan/product.h"
#include "kernelopt/search/agents.h"

namespace kernelopt {

class ProductSource final : public PlanSource {
 public:
  explicit ProductSource(Product product);
  const KernelPlan& seed() const override { return seed_; }
  std::vector<Move> starts() const override;
  std::vector<Move> moves(const KernelPlan& plan) const override;

 private:
  Product product_;
  KernelPlan seed_;
};

class ConvolutionSource final : public PlanSource {
 public:
  explicit ConvolutionSource(Convolution convolution);
  const KernelPlan& seed() const override { return seed_; }
  std::vector<Move> starts() const override;
  std::vector<Move> moves(const KernelPlan& plan) const override;

 private:
  Convolution convolution_;
  KernelPlan seed_;
};

}  // namespace kernelopt
