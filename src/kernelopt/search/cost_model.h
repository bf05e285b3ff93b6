// CostModel: a ridge regression from what a plan looks like to its log time ratio. Small enough to learn from a dozen races;
// keeps sums only, so that what several runs learned adds up. It orders plans before they are compiled and decides nothing.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/base/result.h"
#include "kernelopt/search/agents.h"
#include "kernelopt/search/bottleneck.h"

namespace kernelopt {

inline constexpr size_t kPlanFeatures = 30;
using PlanFeatures = std::array<double, kPlanFeatures>;
// Counts and logarithms of a plan's choices, each of about unit size; the first is 1.
PlanFeatures plan_features(const KernelPlan& plan, Bottleneck bottleneck);

class CostModel {
 public:
  void learn(const PlanFeatures& features, double log_ratio);
  // What `other` learned, each of its rows counting `weight` of one.
  void merge(const CostModel& other, double weight = 1);
  // Log ratio; nothing before kEnoughRows.
  std::optional<double> predict(const PlanFeatures& features) const;
  double rows() const { return rows_; }

  nlohmann::json to_json() const;
  static Result<CostModel> from_json(const nlohmann::json& document);  // kBadInput

 private:
  double rows_ = 0;
  std::array<std::array<double, kPlanFeatures>, kPlanFeatures> squares_{};  // lower triangle
  PlanFeatures products_{};
  mutable std::optional<PlanFeatures> weights_;
};

inline constexpr double kEnoughRows = 4;
inline constexpr double kOtherGroupsWeight = 0.2;  // a race of another group against one of this group

// The model of one group's search: starts with what the device's memory knows.
class LearningPredictor final : public Predictor {
 public:
  LearningPredictor(Bottleneck bottleneck, const CostModel* known) : bottleneck_(bottleneck) {
    if (known) model_.merge(*known, kOtherGroupsWeight);
  }
  std::optional<double> predict(const KernelPlan& plan) const override {
    return model_.predict(plan_features(plan, bottleneck_));
  }
  void learn(const Attempt& attempt) override;
  double confidence() const override { return model_.rows() / (model_.rows() + 2 * kEnoughRows); }

 private:
  Bottleneck bottleneck_;
  CostModel model_;
};

// Spearman's rank correlation, ties at their mean rank; nothing below three pairs or where one side is constant.
std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b);
// Of predicted against measured ratios, over attempts that have both.
struct RankingQuality {
  std::optional<double> spearman;
  int attempts = 0;
};
RankingQuality ranking_quality(const std::vector<Attempt>& attempts);

}  // namespace kernelopt
