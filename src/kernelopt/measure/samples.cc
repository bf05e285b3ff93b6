#include "kernelopt/measure/samples.h"

#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

namespace kernelopt {
namespace {

bool is_time(Seconds value) { return std::isfinite(value.count()) && value.count() > 0; }

}  // namespace

Result<PairedSamples> PairedSamples::create(Samples baseline, Samples candidate) {
  if (baseline.size() != candidate.size())
    return Error(ErrorCode::kInternal, "paired samples of unequal length: " + std::to_string(baseline.size()) + " and " +
                                           std::to_string(candidate.size()));
  if (baseline.empty()) return Error(ErrorCode::kInternal, "no time samples");
  for (const auto* side : {&baseline, &candidate})
    for (Seconds value : *side)
      if (!is_time(value)) return Error(ErrorCode::kInternal, "a time sample is not a finite positive number");
  return PairedSamples(std::move(baseline), std::move(candidate));
}

Seconds PairedSamples::total() const {
  return std::accumulate(candidate_.begin(), candidate_.end(),
                         std::accumulate(baseline_.begin(), baseline_.end(), Seconds(0)));
}

void PairedSamples::extend(const PairedSamples& later) {
  // By index: `later` may be this object.
  const size_t count = later.pairs();
  baseline_.reserve(baseline_.size() + count);
  candidate_.reserve(candidate_.size() + count);
  for (size_t i = 0; i < count; ++i) {
    baseline_.push_back(later.baseline_[i]);
    candidate_.push_back(later.candidate_[i]);
  }
}

Result<Samples> read_samples(const nlohmann::json& list) {
  if (!list.is_array()) return Error(ErrorCode::kInternal, "time samples are not a list");
  Samples samples;
  samples.reserve(list.size());
  for (const auto& item : list) {
    if (!item.is_number() || !is_time(Seconds(item.get<double>())))
      return Error(ErrorCode::kInternal, "a time sample is not a finite positive number: " + item.dump());
    samples.emplace_back(item.get<double>());
  }
  return samples;
}

Result<PairedSamples> read_paired_samples(const nlohmann::json& sides) {
  if (!sides.is_array() || sides.size() != 2)
    return Error(ErrorCode::kInternal, "paired samples need two lists");
  KO_TRY(Samples baseline, read_samples(sides[0]));
  KO_TRY(Samples candidate, read_samples(sides[1]));
  return PairedSamples::create(std::move(baseline), std::move(candidate));
}

nlohmann::json samples_to_json(std::span<const Seconds> samples) {
  nlohmann::json list = nlohmann::json::array();
  for (Seconds value : samples) list.push_back(value.count());
  return list;
}

}  // namespace kernelopt
