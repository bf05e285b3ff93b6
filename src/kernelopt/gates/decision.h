// Three outcomes of a gate, as three types: a pass, a rejection (the candidate's fault), a fault (infrastructure, retryable).
#pragma once

#include <string>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "kernelopt/base/check.h"
#include "kernelopt/base/result.h"

namespace kernelopt {

// X(enumerator, spelling in the journal and the report)
#define KERNELOPT_REJECT_REASONS(X)                              \
  X(kUnknownLanguage, "unknown language")                        \
  X(kForbiddenSource, "source holds what a kernel may not hold") \
  X(kEntryPoint, "entry point is not the declared kernel")       \
  X(kExtraSymbol, "library defines more than the kernel")        \
  X(kLaunchList, "launch list does not fit the kernels")         \
  X(kFormat, "number format not admitted by the policy")         \
  X(kCompileError, "does not compile")                           \
  X(kResources, "takes more than a multiprocessor has")          \
  X(kSpills, "keeps too much in local memory")                   \
  X(kNotResident, "programs that wait for one another do not all fit at once") \
  X(kRunError, "raised an error")                                \
  X(kCrashed, "ended its process")                               \
  X(kHung, "passed its deadline")                                \
  X(kStructure, "outputs of another structure")                  \
  X(kShape, "output of another shape")                           \
  X(kDType, "output of another data type")                       \
  X(kNonFinite, "NaN or infinity in other places")               \
  X(kUnequal, "differs where it must be equal")                  \
  X(kTolerance, "out of tolerance")                              \
  X(kRho, "further from float64 than the policy admits")         \
  X(kUnwritten, "output left unwritten")                         \
  X(kOutOfBounds, "wrote outside its buffers")                   \
  X(kInputsChanged, "changed an input")                          \
  X(kNotDeterministic, "another result the second time")         \
  X(kNotStitched, "program does not run exactly this set")       \
  X(kTooSlow, "slower than the margin admits")

enum class RejectReason {
#define KO_X(name, text) name,
  KERNELOPT_REJECT_REASONS(KO_X)
#undef KO_X
};
const char* reject_reason_name(RejectReason reason);

struct Rejected {
  int gate;
  RejectReason reason;
  nlohmann::json data;  // what was seen, rho included wherever one was computed
};

struct Faulted {
  int gate;
  std::string message;
  nlohmann::json data;
};

template <typename Pass>
class [[nodiscard]] Decision {
 public:
  Decision(Pass pass) : state_(std::in_place_index<0>, std::move(pass)) {}
  Decision(Rejected rejected) : state_(std::in_place_index<1>, std::move(rejected)) {}
  Decision(Faulted faulted) : state_(std::in_place_index<2>, std::move(faulted)) {}

  bool passed() const { return state_.index() == 0; }
  const Pass& pass() const& { return require<0>(); }
  Pass take() && { KO_CHECK(passed(), "take() of a decision that is not a pass"); return std::get<0>(std::move(state_)); }
  // Null unless that is the outcome.
  const Rejected* rejected() const { return std::get_if<1>(&state_); }
  const Faulted* faulted() const { return std::get_if<2>(&state_); }

 private:
  template <size_t I>
  const auto& require() const {
    KO_CHECK(state_.index() == I, "the decision has another outcome");
    return std::get<I>(state_);
  }
  std::variant<Pass, Rejected, Faulted> state_;
};

// How a failed request is judged. The candidate's own error is its fault at once; a process that died or a deadline that
// passed is its fault once it happened tolerance::kMaxAttempts times; everything else is infrastructure.
std::variant<Rejected, Faulted> judge_failure(int gate, const Error& error, int attempts);

}  // namespace kernelopt
