#include "kernelopt/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <nlohmann/json.hpp>

namespace kernelopt {
namespace {

// Reorders its argument.
double median_in_place(std::vector<double>& values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  return 0.5 * (*std::max_element(values.begin(), values.begin() + middle) + upper);
}

// Uniform in [0, bound), the same on every standard library (std::uniform_int_distribution is not).
size_t draw(std::mt19937_64& generator, size_t bound) { return static_cast<size_t>((generator() >> 32) * bound >> 32); }

double percentile(const std::vector<double>& sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Bounds the work for races of very short kernels, where the interval is narrow anyway.
int resample_count(int wanted, size_t pairs) {
  constexpr double kMaxDraws = 2e7;
  return std::clamp(static_cast<int>(kMaxDraws / static_cast<double>(pairs)), 200, std::max(200, wanted));
}

}  // namespace

Seconds median(std::span<const Seconds> samples) {
  KO_CHECK(!samples.empty(), "median of no samples");
  std::vector<double> values;
  values.reserve(samples.size());
  for (Seconds value : samples) values.push_back(value.count());
  return Seconds(median_in_place(values));
}

RatioEstimate estimate_ratio(const PairedSamples& samples, const BootstrapOptions& options) {
  KO_CHECK(options.confidence > 0 && options.confidence < 1, "confidence lies between 0 and 1");
  const size_t pairs = samples.pairs();
  KO_CHECK(pairs < (size_t{1} << 32), "too many samples");
  const size_t block = std::max<size_t>(1, static_cast<size_t>(std::cbrt(static_cast<double>(pairs))));
  const int resamples = resample_count(options.resamples, pairs);

  std::mt19937_64 generator(options.seed);
  std::vector<double> baseline(pairs), candidate(pairs), ratios;
  ratios.reserve(resamples);
  for (int round = 0; round < resamples; ++round) {
    for (size_t filled = 0; filled < pairs;) {
      size_t from = draw(generator, pairs);
      for (size_t i = 0; i < block && filled < pairs; ++i, ++filled) {
        baseline[filled] = samples.baseline()[from].count();
        candidate[filled] = samples.candidate()[from].count();
        if (++from == pairs) from = 0;
      }
    }
    ratios.push_back(median_in_place(candidate) / median_in_place(baseline));
  }
  std::sort(ratios.begin(), ratios.end());

  const double tail = 0.5 * (1 - options.confidence);
  RatioEstimate estimate;
  estimate.baseline = median(samples.baseline());
  estimate.candidate = median(samples.candidate());
  estimate.ratio = estimate.candidate / estimate.baseline;
  estimate.interval = {percentile(ratios, tail), percentile(ratios, 1 - tail)};
  estimate.pairs = pairs;
  return estimate;
}

AaControl evaluate_aa(const PairedSamples& same_program, const BootstrapOptions& options, double tolerance) {
  AaControl control;
  control.estimate = estimate_ratio(same_program, options);
  control.bias = std::abs(control.estimate.ratio - 1);
  control.clean = control.estimate.interval.contains(1) || control.bias <= tolerance;
  return control;
}

Result<double> geometric_mean(std::span<const double> values) {
  if (values.empty()) return Error(ErrorCode::kInternal, "geometric mean of nothing");
  double sum = 0;
  for (double value : values) {
    if (!std::isfinite(value) || value <= 0)
      return Error(ErrorCode::kInternal, "geometric mean of a number that is not positive and finite");
    sum += std::log(value);
  }
  return std::exp(sum / static_cast<double>(values.size()));
}

nlohmann::json ratio_to_json(const RatioEstimate& estimate) {
  return {{"ratio", estimate.ratio},
          {"interval", {estimate.interval.low, estimate.interval.high}},
          {"baseline_seconds", estimate.baseline.count()},
          {"candidate_seconds", estimate.candidate.count()},
          {"pairs", estimate.pairs}};
}

}  // namespace kernelopt
