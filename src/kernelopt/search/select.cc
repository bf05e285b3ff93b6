#include "kernelopt/search/select.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

namespace kernelopt {

std::vector<int> ranked(const std::vector<Attempt>& attempts) {
  std::vector<int> result;
  for (size_t i = 0; i < attempts.size(); ++i)
    if (attempts[i].measured()) result.push_back(static_cast<int>(i));
  std::stable_sort(result.begin(), result.end(), [&](int a, int b) {
    return attempts[static_cast<size_t>(a)].ratio() < attempts[static_cast<size_t>(b)].ratio();
  });
  return result;
}

std::vector<int> diverse_select(const std::vector<Attempt>& attempts, int beam) {
  std::vector<int> result;
  std::map<int, bool> taken;
  for (int index : ranked(attempts)) {
    if (static_cast<int>(result.size()) >= beam) break;
    if (std::exchange(taken[attempts[static_cast<size_t>(index)].chain], true)) continue;
    result.push_back(index);
  }
  return result;
}

std::vector<int> split_budget(int plans, int chains) {
  std::vector<int> result(static_cast<size_t>(std::max(chains, 0)), 0);
  for (int i = 0; chains > 0 && i < plans; ++i) ++result[static_cast<size_t>(i % chains)];
  return result;
}

bool melted_down(const std::vector<Attempt>& attempts) {
  std::set<std::string> approaches;
  size_t plans = 0;
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend() && plans < kMeltdownWindow; ++attempt) {
    if (attempt->evaluation.state == AttemptState::kDuplicate) continue;
    approaches.insert(attempt->shape_key);
    ++plans;
  }
  return plans == kMeltdownWindow && approaches.size() <= 2;
}

double Outlook::possible_gain() const { return gain_left(1.0); }

double Outlook::gain_left(double ratio) const {
  if (model_seconds <= 0 || baseline_seconds <= 0) return 0;
  const double share = std::min(1.0, baseline_seconds * copies / model_seconds);
  return share * std::max(0.0, ratio - floor_seconds / baseline_seconds);
}

std::optional<EarlyStop> early_stop(const Outlook& outlook, double ratio) {
  if (outlook.model_seconds <= 0 || outlook.baseline_seconds <= 0) return std::nullopt;
  if (outlook.floor_seconds > 0 && outlook.baseline_seconds * ratio <= outlook.floor_seconds * kFloorSlack)
    return EarlyStop{SearchStop::kAtFloor, fmt::format("{:.3g} ms against a floor of {:.3g} ms",
                                                       outlook.baseline_seconds * ratio * 1e3,
                                                       outlook.floor_seconds * 1e3)};
  if (const double left = outlook.gain_left(ratio); left < kGroupGainWorth)
    return EarlyStop{SearchStop::kCannotPay,
                     fmt::format("the model could gain {:.2f} % at most from this group", left * 100)};
  return std::nullopt;
}

std::vector<double> split_time(const std::vector<Outlook>& groups, double seconds) {
  std::vector<double> result(groups.size(), 0.0);
  double total = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (early_stop(groups[i], 1.0)) continue;
    result[i] = groups[i].possible_gain();
    total += result[i];
  }
  for (double& part : result) part = total > 0 ? part / total * seconds : 0;
  return result;
}

}  // namespace kernelopt
