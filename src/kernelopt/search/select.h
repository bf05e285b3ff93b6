// The choices of the beam search as pure functions over records (paper: Algorithm 1; DESIGN.md section 7).
#pragma once

#include <optional>
#include <vector>

#include "kernelopt/search/records.h"

namespace kernelopt {

// DiverseSelect: the lowest-latency passed attempt of each chain, fastest first, at most `beam`. The global best is always
// among them. Indices into `attempts`.
std::vector<int> diverse_select(const std::vector<Attempt>& attempts, int beam);

// Plans for each of `chains` chains so that they add up to `plans`, the first chains (the fastest) getting what is left over.
std::vector<int> split_budget(int plans, int chains);

// Passed attempts, fastest first; ties by number. Indices into `attempts`.
std::vector<int> ranked(const std::vector<Attempt>& attempts);

// Meltdown: the last kMeltdownWindow plans amount to at most two approaches, an approach being a plan without its sizes.
inline constexpr size_t kMeltdownWindow = 6;
bool melted_down(const std::vector<Attempt>& attempts);

// What a group can still give. Seconds of one run of the group.
struct Outlook {
  double model_seconds = 0;  // the best mode's time of the whole model
  int copies = 1;            // equal groups in the model
  double baseline_seconds = 0, floor_seconds = 0;

  // The model's time saved, as a part of it, were the group to run at its floor; 0 where nothing is known.
  double possible_gain() const;
  // The same, beyond a group that already runs at `ratio` of its baseline.
  double gain_left(double ratio) const;
};

inline constexpr double kFloorSlack = 1.05;       // this near the floor counts as at it
inline constexpr double kModelGainWorth = 0.03;   // DESIGN.md section 6: what gate 4 calls a difference
inline constexpr double kGroupGainWorth = 0.005;  // of one group among several

// Whether a search at `ratio` should stop before its sizes say so, and why.
struct EarlyStop {
  SearchStop stop;
  std::string reason;
};
std::optional<EarlyStop> early_stop(const Outlook& outlook, double ratio);

// Seconds for each group out of `seconds`, by what each can still gain; groups that cannot pay get none.
std::vector<double> split_time(const std::vector<Outlook>& groups, double seconds);

}  // namespace kernelopt
