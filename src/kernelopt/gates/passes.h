// The passes. Each can be minted by its own gate alone (private constructors, no deserialiser, no copy), carries what it
// vouches for, and holds the pass before it, so that the last one is the whole chain of one candidate on one device.
// A pass that was moved from vouches for nothing: touching it is our own bug and aborts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/codegen/candidate.h"
#include "kernelopt/gates/policy.h"
#include "kernelopt/measure/statistics.h"
#include "kernelopt/target/gpu_limits.h"

namespace kernelopt {

class Gate1;
class Gate2;
class Gate3;
class Gate4;
class BaselineAudit;

// What a candidate is judged as. `candidate` is the very object that ships if it passes.
struct Subject {
  std::shared_ptr<const Candidate> candidate;
  std::string fingerprint;  // of the device
  Precision precision = Precision::kAccurate;
  Change change = Change::kRewrite;
  std::optional<GpuLimits> gpu = std::nullopt;  // of the device; gate 1 admits no Triton candidate without
};

class Gate1Pass {
 public:
  Gate1Pass(Gate1Pass&&) = default;
  Gate1Pass& operator=(Gate1Pass&&) = default;

  const Subject& subject() const { return data().subject; }
  const std::string& digest() const { return subject().candidate->digest(); }
  const std::string& group() const { return subject().candidate->parts().group; }
  const nlohmann::json& evidence() const { return data().evidence; }

 private:
  friend class Gate1;
  struct Data {
    Subject subject;
    nlohmann::json evidence;
  };
  Gate1Pass(Subject subject, nlohmann::json evidence);
  const Data& data() const { KO_CHECK(data_ != nullptr, "a pass was used after it was handed on"); return *data_; }
  std::unique_ptr<const Data> data_;
};

class Gate2Pass {
 public:
  Gate2Pass(Gate2Pass&&) = default;
  Gate2Pass& operator=(Gate2Pass&&) = default;

  const Subject& subject() const { return prior_.subject(); }
  const std::string& digest() const { return prior_.digest(); }
  const std::string& group() const { return prior_.group(); }
  const nlohmann::json& evidence() const { return evidence_; }
  const Gate1Pass& prior() const { return prior_; }

 private:
  friend class Gate2;
  Gate2Pass(Gate1Pass&& prior, nlohmann::json evidence) : prior_(std::move(prior)), evidence_(std::move(evidence)) {}
  Gate1Pass prior_;
  nlohmann::json evidence_;
};

class Gate3Pass {
 public:
  Gate3Pass(Gate3Pass&&) = default;
  Gate3Pass& operator=(Gate3Pass&&) = default;

  const Subject& subject() const { return prior_.subject(); }
  const std::string& digest() const { return prior_.digest(); }
  const std::string& group() const { return prior_.group(); }
  const std::string& set() const { return set_; }  // digest of the set with which it was stitched
  const nlohmann::json& evidence() const { return evidence_; }
  const Gate2Pass& prior() const { return prior_; }
  // Steps back: the weaker pass, for trying another set.
  Gate2Pass into_prior() && { return std::move(prior_); }

 private:
  friend class Gate3;
  Gate3Pass(Gate2Pass&& prior, std::string set, nlohmann::json evidence)
      : prior_(std::move(prior)), set_(std::move(set)), evidence_(std::move(evidence)) {}
  Gate2Pass prior_;
  std::string set_;
  nlohmann::json evidence_;
};

class Gate4Pass {
 public:
  Gate4Pass(Gate4Pass&&) = default;
  Gate4Pass& operator=(Gate4Pass&&) = default;

  const Subject& subject() const { return prior_.subject(); }
  const std::string& digest() const { return prior_.digest(); }
  const std::string& group() const { return prior_.group(); }
  const std::string& set() const { return prior_.set(); }
  const nlohmann::json& evidence() const { return evidence_; }
  // Of the whole set against the best mode's program.
  const RatioEstimate& race() const { return race_; }
  const Gate3Pass& prior() const { return prior_; }
  Gate3Pass into_prior() && { return std::move(prior_); }

 private:
  friend class Gate4;
  Gate4Pass(Gate3Pass&& prior, RatioEstimate race, nlohmann::json evidence)
      : prior_(std::move(prior)), race_(race), evidence_(std::move(evidence)) {}
  Gate3Pass prior_;
  RatioEstimate race_;
  nlohmann::json evidence_;
};

// Candidates that are stitched into one model together, at most one a group, each with its pass. Gates 3 and 4 judge the
// model, so they take a whole set and mint passes for exactly its members. Never empty.
template <typename Pass>
class PassSet {
 public:
  PassSet(PassSet&&) = default;
  PassSet& operator=(PassSet&&) = default;

  const std::string& digest() const { return digest_; }
  const std::string& fingerprint() const { return members()[0].subject().fingerprint; }
  const std::vector<Pass>& members() const {
    KO_CHECK(!members_.empty(), "a set of passes was used after it was handed on");
    return members_;
  }
  std::vector<Pass> into_members() && { return std::move(members_); }

 private:
  friend class Gate3;
  friend class Gate4;
  friend class PassSets;
  PassSet(std::vector<Pass> members, std::string digest) : members_(std::move(members)), digest_(std::move(digest)) {}
  std::vector<Pass> members_;
  std::string digest_;
};

using StitchedSet = PassSet<Gate2Pass>;
using Gate3Set = PassSet<Gate3Pass>;
using Gate4Set = PassSet<Gate4Pass>;

class PassSets {
 public:
  // kInternal, with the passes lost, for an empty set, two members of one group, or members of different devices or
  // policies.
  static Result<StitchedSet> stitch(std::vector<Gate2Pass> members);
  // Steps back to the weaker passes, for trying another set.
  static std::vector<Gate2Pass> unstitch(StitchedSet set);
  static std::vector<Gate2Pass> unstitch(Gate3Set set);
  static std::vector<Gate2Pass> unstitch(Gate4Set set);
};

// Identity of a set: covers the groups and candidates of its members, whatever their order, and the fingerprint.
std::string set_digest(const std::vector<const Candidate*>& members, const std::string& fingerprint);

// The compiler's own program agrees with eager on this device: what gate 3 needs before it compares anything.
class BaselineSound {
 public:
  BaselineSound(BaselineSound&&) = default;
  BaselineSound& operator=(BaselineSound&&) = default;

  const std::string& fingerprint() const { return fingerprint_; }
  // Groups whose reference could not be confirmed, with why: nothing may replace them.
  const std::vector<std::pair<std::string, std::string>>& excluded_groups() const { return excluded_; }
  bool excludes(const std::string& group) const;
  // Outputs within allclose that have lost digits which eager's keep: what replaces this program must not, and it does not ship.
  const std::vector<std::string>& inaccurate() const { return inaccurate_; }
  const nlohmann::json& evidence() const { return evidence_; }

 private:
  friend class BaselineAudit;
  BaselineSound(std::string fingerprint, std::vector<std::pair<std::string, std::string>> excluded,
                std::vector<std::string> inaccurate, nlohmann::json evidence)
      : fingerprint_(std::move(fingerprint)), excluded_(std::move(excluded)), inaccurate_(std::move(inaccurate)),
        evidence_(std::move(evidence)) {}
  std::string fingerprint_;
  std::vector<std::pair<std::string, std::string>> excluded_;
  std::vector<std::string> inaccurate_;
  nlohmann::json evidence_;
};

// A kernel that passed all four gates, as one candidate on one device in one set.
class VerifiedKernel {
 public:
  explicit VerifiedKernel(Gate4Pass&& pass);
  VerifiedKernel(VerifiedKernel&&) = default;
  VerifiedKernel& operator=(VerifiedKernel&&) = default;

  const Candidate& candidate() const { return *pass_.subject().candidate; }
  const std::string& fingerprint() const { return pass_.subject().fingerprint; }
  const std::string& set() const { return pass_.set(); }
  const Gate4Pass& pass() const { return pass_; }
  // Evidence of all four gates, by number.
  nlohmann::json evidence() const;

 private:
  Gate4Pass pass_;
};

}  // namespace kernelopt
