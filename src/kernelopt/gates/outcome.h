// What a model's run ends with (DESIGN.md section 6). A win exists only where a set passed all four gates and beat the best
// mode's program; nothing else can be released, journaled or reported as one.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernelopt/gates/audit.h"
#include "kernelopt/gates/passes.h"

namespace kernelopt {

// The kernels of one set that went through gates 3 and 4 together, complete: what may ship.
class ReleaseSet {
 public:
  ReleaseSet(ReleaseSet&&) = default;
  ReleaseSet& operator=(ReleaseSet&&) = default;
  const std::vector<VerifiedKernel>& kernels() const { return kernels_; }
  const std::string& digest() const { return digest_; }
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  friend Result<ReleaseSet> release(std::vector<VerifiedKernel>&& kernels);
  ReleaseSet(std::vector<VerifiedKernel> kernels, std::string digest, std::string fingerprint)
      : kernels_(std::move(kernels)), digest_(std::move(digest)), fingerprint_(std::move(fingerprint)) {}
  std::vector<VerifiedKernel> kernels_;
  std::string digest_, fingerprint_;
};

// kInternal unless the kernels are all the members of one set, on one device.
Result<ReleaseSet> release(std::vector<VerifiedKernel>&& kernels);

// Measurably faster: the ratio's interval lies below 1 and the speed-up is at least the margin.
class Win {
 public:
  // Nothing where the set is within the margin only.
  static std::optional<Win> from(const Gate4Pass& pass);
  const RatioEstimate& race() const { return race_; }
  const std::string& set() const { return set_; }
  double speedup() const { return race_.speedup(); }

 private:
  Win(RatioEstimate race, std::string set) : race_(race), set_(std::move(set)) {}
  RatioEstimate race_;
  std::string set_;
};

class Optimized {
 public:
  Optimized(Optimized&&) = default;
  Optimized& operator=(Optimized&&) = default;
  const Win& win() const { return win_; }
  const ReleaseSet& release_set() const { return set_; }

 private:
  friend std::variant<Optimized, struct Matched> conclude(Gate4Set&& set);
  Optimized(Win win, ReleaseSet set) : win_(std::move(win)), set_(std::move(set)) {}
  Win win_;
  ReleaseSet set_;
};

// Within the margin, or eager is the fastest and unbeaten: what the user has already ships.
struct Matched {
  std::string ships;  // the mode, "eager" included
  std::string reason;
  std::optional<RatioEstimate> race;
};

// Nothing passed; the best mode's program ships.
struct Fallback {
  std::string ships;
  std::string reason;
  nlohmann::json data;
};

using ModelOutcome = std::variant<Optimized, Matched, Fallback, EagerFallback>;
// "optimized", "matched", "fallback", "eager"
const char* outcome_name(const ModelOutcome& outcome);

// Seals and releases a set that won; otherwise Matched, shipping the mode it was raced against.
std::variant<Optimized, Matched> conclude(Gate4Set&& set);

}  // namespace kernelopt
