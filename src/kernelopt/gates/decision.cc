#include "kernelopt/gates/decision.h"

#include "kernelopt/gates/tolerances.h"

namespace kernelopt {

const char* reject_reason_name(RejectReason reason) {
  switch (reason) {
#define KO_X(name, text) \
  case RejectReason::name: return text;
    KERNELOPT_REJECT_REASONS(KO_X)
#undef KO_X
  }
  return "unknown";
}

std::variant<Rejected, Faulted> judge_failure(int gate, const Error& error, int attempts) {
  const nlohmann::json data = {
      {"error", error.to_string()}, {"code", error_code_name(error.code())}, {"attempts", attempts}};
  const bool persistent = attempts >= tolerance::kMaxAttempts;
  switch (error.code()) {
    case ErrorCode::kCandidate: return Rejected{gate, RejectReason::kRunError, data};
    case ErrorCode::kWorkerDied:
      if (persistent) return Rejected{gate, RejectReason::kCrashed, data};
      break;
    case ErrorCode::kTimeout:
      if (persistent) return Rejected{gate, RejectReason::kHung, data};
      break;
    case ErrorCode::kBadInput:
    case ErrorCode::kEnvironment:
    case ErrorCode::kUnsupported:
    case ErrorCode::kIo:
    case ErrorCode::kInterrupted:
    case ErrorCode::kInternal: break;
  }
  return Faulted{gate, error.to_string(), data};
}

}  // namespace kernelopt
