// Statistics over paired time samples (DESIGN.md section 8). Pure; the random seed is the caller's.
#pragma once

#include <cstdint>
#include <span>

#include <nlohmann/json_fwd.hpp>

#include "kernelopt/measure/samples.h"

namespace kernelopt {

// Middle sample, or the mean of the two middle ones. At least one sample (our own bug otherwise).
Seconds median(std::span<const Seconds> samples);

// Confidence interval of a ratio.
struct ConfidenceInterval {
  double low, high;
  bool contains(double value) const { return low <= value && value <= high; }
};

// ratio = median(candidate) / median(baseline): below 1 the candidate is faster.
struct RatioEstimate {
  double ratio;
  ConfidenceInterval interval;
  Seconds baseline, candidate;  // medians
  size_t pairs;
  double speedup() const { return 1.0 / ratio; }
};

struct BootstrapOptions {
  uint64_t seed = 0;
  double confidence = 0.95;
  int resamples = 2000;  // fewer when there are very many pairs, never under 200
};

// Percentile bootstrap over pairs. Runs of neighbouring pairs are drawn together (circular blocks of about the cube root
// of the number of pairs), because neighbours in time share frequency and interference and are not independent.
RatioEstimate estimate_ratio(const PairedSamples& samples, const BootstrapOptions& options);

// The same program on both sides: what the method itself calls a difference on this machine at this moment.
struct AaControl {
  RatioEstimate estimate;
  double bias;  // |ratio - 1|
  bool clean;   // the interval covers 1, or the bias is at most the tolerance
};
AaControl evaluate_aa(const PairedSamples& same_program, const BootstrapOptions& options, double tolerance);

// Of positive finite numbers; kInternal for an empty list or any other number.
Result<double> geometric_mean(std::span<const double> values);

nlohmann::json ratio_to_json(const RatioEstimate& estimate);

}  // namespace kernelopt
