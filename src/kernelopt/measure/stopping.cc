#include "kernelopt/measure/stopping.h"

#include <algorithm>

namespace kernelopt {

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kContinue: return "continue";
    case StopReason::kPrecise: return "precise";
    case StopReason::kDecided: return "decided";
    case StopReason::kTimeLimit: return "time limit";
  }
  return "unknown";
}

StopReason StoppingRule::decide(const PairedSamples& samples) const {
  const bool enough =
      samples.pairs() >= min_pairs && (samples.total() >= min_total || samples.pairs() >= plenty_pairs);
  const bool out_of_time = samples.total() >= max_total || samples.pairs() >= max_pairs;
  if (!enough) return out_of_time ? StopReason::kTimeLimit : StopReason::kContinue;

  const RatioEstimate estimate = estimate_ratio(samples, bootstrap);
  if (estimate.interval.high - estimate.interval.low <= 2 * relative_half_width * estimate.ratio)
    return StopReason::kPrecise;
  const bool undecided = std::any_of(thresholds.begin(), thresholds.end(),
                                      [&](double threshold) { return estimate.interval.contains(threshold); });
  if (estimate.interval.low > lost_above) return StopReason::kDecided;
  if (!thresholds.empty() && !undecided) return StopReason::kDecided;
  return out_of_time ? StopReason::kTimeLimit : StopReason::kContinue;
}

}  // namespace kernelopt
