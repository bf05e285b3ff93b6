#include "kernelopt/gates/outcome.h"

#include "kernelopt/gates/tolerances.h"

namespace kernelopt {

Result<ReleaseSet> release(std::vector<VerifiedKernel>&& kernels) {
  if (kernels.empty()) return Error(ErrorCode::kInternal, "a release of no kernels");
  std::vector<const Candidate*> members;
  const std::string set = kernels[0].set(), fingerprint = kernels[0].fingerprint();
  for (const VerifiedKernel& kernel : kernels) {
    if (kernel.set() != set) return Error(ErrorCode::kInternal, "a release of kernels that passed in different sets");
    if (kernel.fingerprint() != fingerprint)
      return Error(ErrorCode::kInternal, "a release of kernels that passed on different devices");
    members.push_back(&kernel.candidate());
  }
  // The digest covers the members: fewer than all of them, or one twice, give another.
  if (set_digest(members, fingerprint) != set)
    return Error(ErrorCode::kInternal, "a release of other kernels than passed together");
  return ReleaseSet(std::move(kernels), set, fingerprint);
}

std::optional<Win> Win::from(const Gate4Pass& pass) {
  const RatioEstimate& race = pass.race();
  if (!(race.interval.high < 1) || !(race.speedup() >= tolerance::kMargin)) return std::nullopt;
  return Win(race, pass.set());
}

const char* outcome_name(const ModelOutcome& outcome) {
  static constexpr const char* kNames[] = {"optimized", "matched", "fallback", "eager"};
  return kNames[outcome.index()];
}

std::variant<Optimized, Matched> conclude(Gate4Set&& set) {
  const Gate4Pass& first = set.members()[0];
  std::optional<Win> win = Win::from(first);
  if (!win) {
    return Matched{first.evidence().at("baseline_mode").get<std::string>(),
                   first.race().interval.high < 1 ? "faster, but by less than the margin"
                                                  : "no measurable difference to the best mode",
                   first.race()};
  }
  std::vector<VerifiedKernel> kernels;
  for (Gate4Pass& member : std::move(set).into_members()) kernels.emplace_back(std::move(member));
  Result<ReleaseSet> released = release(std::move(kernels));
  KO_CHECK(released.ok(), released.ok() ? "" : released.error().to_string());
  return Optimized(std::move(*win), std::move(released).value());
}

}  // namespace kernelopt
