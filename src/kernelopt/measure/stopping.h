// When a race has been sampled enough. Pure: it sees samples and says whether more are wanted; the caller takes them.
#pragma once

#include <limits>
#include <vector>

#include "kernelopt/measure/statistics.h"

namespace kernelopt {

enum class StopReason {
  kContinue,   // more pairs are wanted
  kPrecise,    // the interval is as narrow as asked
  kDecided,    // the interval lies on one side of every threshold, or above lost_above
  kTimeLimit,  // max_total or max_pairs was reached before either
};
const char* stop_reason_name(StopReason reason);

struct StoppingRule {
  size_t min_pairs = 10;
  // Kernels of microseconds never fill the times below: so many pairs are enough, and so many the most.
  size_t plenty_pairs = 300, max_pairs = 1500;
  Seconds min_total{0.2};            // both sides together
  Seconds max_total{5.0};
  double relative_half_width = 0.01; // of the interval, against the ratio
  // Ratios at which a decision turns (gate 4: 1 and the margin). An interval that covers none of them has decided.
  std::vector<double> thresholds;
  // An interval that lies above this ratio has lost, and how far it lost is not worth more time.
  double lost_above = std::numeric_limits<double>::infinity();
  BootstrapOptions bootstrap;

  StopReason decide(const PairedSamples& samples) const;
};

}  // namespace kernelopt
