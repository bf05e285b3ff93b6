#include "kernelopt/search/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kernelopt {
namespace {

constexpr double kRidge = 1.0;

double log2_of(double value) { return std::log2(std::max(1.0, value)); }

}  // namespace

PlanFeatures plan_features(const KernelPlan& plan, Bottleneck bottleneck) {
  PlanFeatures f{};
  const double nests = std::max<size_t>(1, plan.nests.size());
  f[0] = 1;
  f[1] = log2_of(nests);
  f[2] = plan.math == MathVariant::kFast;
  f[3] = plan.threads > 1;
  f[4] = log2_of(plan.threads) / 4;
  for (const auto& rewrite : plan.rewrites) {
    switch (rewrite.kind) {
      case RewriteKind::kInline: f[5] += 0.5; break;
      case RewriteKind::kTwoPass: f[6] += 0.5; break;
      case RewriteKind::kSplit: f[7] += 0.25 * log2_of(static_cast<double>(rewrite.amount)); break;
      case RewriteKind::kSplitInner: f[8] += 0.25 * log2_of(static_cast<double>(rewrite.amount)); break;
      case RewriteKind::kUnrollWindow: f[9] += 0.5; break;
      case RewriteKind::kWalkRows: f[10] += 0.25 * log2_of(static_cast<double>(rewrite.amount)); break;
      case RewriteKind::kOnlineSoftmax: f[11] += 0.5; break;
      case RewriteKind::kJoinParts: f[28] += 0.5; break;
      case RewriteKind::kFlipScan: f[29] += 0.5; break;
      case RewriteKind::kTileLoop: f[26] += 0.25 * log2_of(static_cast<double>(rewrite.amount)); break;
    }
  }
  // Means over the nests.
  for (const auto& nest : plan.nests) {
    f[12] += (nest.axis == VectorAxis::kShared) / nests;
    f[13] += (nest.axis == VectorAxis::kScalar) / nests;
    f[14] += log2_of(nest.unroll) / 2 / nests;
    f[15] += static_cast<double>(nest.shared.size()) / 2 / nests;
    f[16] += nest.merge / nests;
    f[17] += nest.transpose / nests;
    f[18] += nest.stream / nests;
    f[19] += (nest.prefetch > 0) / nests;
    f[20] += log2_of(static_cast<double>(nest.program.block)) / 4 / nests;
    f[21] += (nest.program.inner_block == 0) / nests;
    f[22] += log2_of(static_cast<double>(nest.program.inner_block)) / 8 / nests;
    f[23] += log2_of(nest.program.warps) / 2 / nests;
    f[24] += (nest.program.stages > 1) / nests;
    f[27] += nest.keep_reduced_in_registers / nests;
  }
  // What costs traffic shows more where traffic is what costs.
  f[25] = bottleneck == Bottleneck::kMemory ? f[1] : 0;
  return f;
}

void CostModel::learn(const PlanFeatures& features, double log_ratio) {
  for (size_t i = 0; i < kPlanFeatures; ++i) {
    for (size_t j = 0; j <= i; ++j) squares_[i][j] += features[i] * features[j];
    products_[i] += features[i] * log_ratio;
  }
  rows_ += 1;
  weights_.reset();
}

void CostModel::merge(const CostModel& other, double weight) {
  for (size_t i = 0; i < kPlanFeatures; ++i) {
    for (size_t j = 0; j <= i; ++j) squares_[i][j] += weight * other.squares_[i][j];
    products_[i] += weight * other.products_[i];
  }
  rows_ += weight * other.rows_;
  weights_.reset();
}

std::optional<double> CostModel::predict(const PlanFeatures& features) const {
  if (rows_ < kEnoughRows) return std::nullopt;
  if (!weights_) {
    // Cholesky of the squares plus the ridge, which makes them positive definite.
    auto lower = squares_;
    for (size_t i = 0; i < kPlanFeatures; ++i) {
      lower[i][i] += kRidge;
      for (size_t j = 0; j <= i; ++j) {
        double sum = lower[i][j];
        for (size_t k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
        lower[i][j] = i == j ? std::sqrt(std::max(sum, 1e-12)) : sum / lower[j][j];
      }
    }
    PlanFeatures w = products_;
    for (size_t i = 0; i < kPlanFeatures; ++i) {
      for (size_t k = 0; k < i; ++k) w[i] -= lower[i][k] * w[k];
      w[i] /= lower[i][i];
    }
    for (size_t i = kPlanFeatures; i-- > 0;) {
      for (size_t k = i + 1; k < kPlanFeatures; ++k) w[i] -= lower[k][i] * w[k];
      w[i] /= lower[i][i];
    }
    weights_ = w;
  }
  return std::inner_product(features.begin(), features.end(), weights_->begin(), 0.0);
}

nlohmann::json CostModel::to_json() const {
  nlohmann::json squares = nlohmann::json::array();
  for (size_t i = 0; i < kPlanFeatures; ++i)
    squares.push_back(std::vector<double>(squares_[i].begin(), squares_[i].begin() + static_cast<std::ptrdiff_t>(i) + 1));
  return {{"rows", rows_}, {"squares", squares}, {"products", products_}};
}

Result<CostModel> CostModel::from_json(const nlohmann::json& document) {
  const Error wrong(ErrorCode::kBadInput, "not a cost model of this version");
  const auto number = [](const nlohmann::json& value) { return value.is_number() && std::isfinite(value.get<double>()); };
  CostModel model;
  if (!document.is_object() || !document.contains("rows") || !number(document["rows"])) return wrong;
  const auto squares = document.value("squares", nlohmann::json()), products = document.value("products", nlohmann::json());
  if (!squares.is_array() || squares.size() != kPlanFeatures || !products.is_array() || products.size() != kPlanFeatures)
    return wrong;
  model.rows_ = document["rows"];
  for (size_t i = 0; i < kPlanFeatures; ++i) {
    if (!number(products[i]) || !squares[i].is_array() || squares[i].size() != i + 1) return wrong;
    model.products_[i] = products[i];
    for (size_t j = 0; j <= i; ++j) {
      if (!number(squares[i][j])) return wrong;
      model.squares_[i][j] = squares[i][j];
    }
  }
  return model;
}

void LearningPredictor::learn(const Attempt& attempt) {
  if (attempt.brief.empty() && attempt.measured() && attempt.ratio() > 0)
    model_.learn(plan_features(attempt.plan, bottleneck_), std::log(attempt.ratio()));
}

std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.size() < 3) return std::nullopt;
  const auto ranks = [](const std::vector<double>& values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return values[i] < values[j]; });
    std::vector<double> result(values.size());
    for (size_t begin = 0; begin < order.size();) {
      size_t end = begin;
      while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
      for (size_t i = begin; i < end; ++i) result[order[i]] = static_cast<double>(begin + end - 1) / 2;
      begin = end;
    }
    return result;
  };
  const auto x = ranks(a), y = ranks(b);
  const double mean = static_cast<double>(a.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

RankingQuality ranking_quality(const std::vector<Attempt>& attempts) {
  std::vector<double> predicted, measured;
  for (const auto& attempt : attempts) {
    if (!attempt.predicted || !attempt.measured()) continue;
    predicted.push_back(*attempt.predicted);
    measured.push_back(attempt.ratio());
  }
  return {spearman(predicted, measured), static_cast<int>(predicted.size())};
}

}  // namespace kernelopt
