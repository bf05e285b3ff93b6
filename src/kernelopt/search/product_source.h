// ProductSource: the plans of a challenge to a library's product as a PlanSource (plan/product.h).
#pragma once

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

}  // namespace kernelopt
