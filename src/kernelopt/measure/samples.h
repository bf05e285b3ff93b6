// Time samples as the worker reports them: seconds per call, never aggregated there (docs/protocol.md).
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "kernelopt/base/result.h"

namespace kernelopt {

using Seconds = std::chrono::duration<double>;
using Samples = std::vector<Seconds>;

// Both sides of one race, sampled in alternation: element i of each side was taken next to element i of the other.
// Same length, every sample finite and positive; `create` refuses anything else, so that no time is ever a sentinel.
class PairedSamples {
 public:
  static Result<PairedSamples> create(Samples baseline, Samples candidate);

  std::span<const Seconds> baseline() const { return baseline_; }
  std::span<const Seconds> candidate() const { return candidate_; }
  size_t pairs() const { return baseline_.size(); }
  // Time the samples took, both sides.
  Seconds total() const;
  // More pairs of the same race, taken later.
  void extend(const PairedSamples& later);

 private:
  PairedSamples(Samples baseline, Samples candidate)
      : baseline_(std::move(baseline)), candidate_(std::move(candidate)) {}
  Samples baseline_, candidate_;
};

// A list of numbers; kInternal where one is not a finite positive number.
Result<Samples> read_samples(const nlohmann::json& list);
// The `samples` field of `time_group` and `time_model`: [baseline, candidate].
Result<PairedSamples> read_paired_samples(const nlohmann::json& sides);
nlohmann::json samples_to_json(std::span<const Seconds> samples);

}  // namespace kernelopt
