#include "kernelopt/gates/passes.h"

#include <algorithm>
#include <set>

#include "kernelopt/base/digest.h"

namespace kernelopt {
namespace {

template <typename Pass>
std::vector<Gate2Pass> step_back(std::vector<Pass> members) {
  std::vector<Gate2Pass> passes;
  passes.reserve(members.size());
  for (Pass& member : members) {
    if constexpr (std::is_same_v<Pass, Gate4Pass>) passes.push_back(std::move(member).into_prior().into_prior());
    else passes.push_back(std::move(member).into_prior());
  }
  return passes;
}

}  // namespace

Gate1Pass::Gate1Pass(Subject subject, nlohmann::json evidence)
    : data_(std::make_unique<const Data>(Data{std::move(subject), std::move(evidence)})) {
  KO_CHECK(data_->subject.candidate != nullptr, "a pass without a candidate");
  KO_CHECK(!data_->subject.fingerprint.empty(), "a pass without a device fingerprint");
}

Result<StitchedSet> PassSets::stitch(std::vector<Gate2Pass> members) {
  if (members.empty()) return Error(ErrorCode::kInternal, "a set of no candidates");
  std::set<std::string> groups;
  std::vector<const Candidate*> candidates;
  const Subject& first = members[0].subject();
  for (const Gate2Pass& member : members) {
    if (!groups.insert(member.group()).second)
      return Error(ErrorCode::kInternal, "two candidates of group " + member.group() + " in one set");
    if (member.subject().fingerprint != first.fingerprint)
      return Error(ErrorCode::kInternal, "candidates that passed on different devices in one set");
    if (member.subject().precision != first.precision)
      return Error(ErrorCode::kInternal, "candidates that passed under different precision policies in one set");
    candidates.push_back(member.subject().candidate.get());
  }
  std::string digest = set_digest(candidates, first.fingerprint);
  return StitchedSet(std::move(members), std::move(digest));
}

std::vector<Gate2Pass> PassSets::unstitch(StitchedSet set) { return std::move(set).into_members(); }
std::vector<Gate2Pass> PassSets::unstitch(Gate3Set set) { return step_back(std::move(set).into_members()); }
std::vector<Gate2Pass> PassSets::unstitch(Gate4Set set) { return step_back(std::move(set).into_members()); }

std::string set_digest(const std::vector<const Candidate*>& members, const std::string& fingerprint) {
  std::vector<std::string> lines;
  for (const Candidate* candidate : members) lines.push_back(candidate->parts().group + " " + candidate->digest());
  std::sort(lines.begin(), lines.end());
  std::string text = fingerprint + "\n";
  for (const std::string& line : lines) text += line + "\n";
  return sha256_hex(text);
}

bool BaselineSound::excludes(const std::string& group) const {
  return std::any_of(excluded_.begin(), excluded_.end(), [&](const auto& entry) { return entry.first == group; });
}

VerifiedKernel::VerifiedKernel(Gate4Pass&& pass) : pass_(std::move(pass)) {
  KO_CHECK(!candidate().digest().empty() && !set().empty(), "a kernel sealed from passes that were handed on");
}

nlohmann::json VerifiedKernel::evidence() const {
  const Gate3Pass& third = pass_.prior();
  return {{"1", third.prior().prior().evidence()},
          {"2", third.prior().evidence()},
          {"3", third.evidence()},
          {"4", pass_.evidence()}};
}

}  // namespace kernelopt
