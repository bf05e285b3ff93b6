// Repeats a request that may have failed for reasons of the machine, as often as the gates want it before they blame the
// candidate (tolerance::kMaxAttempts).
#pragma once

#include <utility>

#include "kernelopt/gates/observation.h"
#include "kernelopt/gates/tolerances.h"

namespace kernelopt {

inline bool is_interrupt(const Error& error) { return error.code() == ErrorCode::kInterrupted; }

template <typename Request>
auto observed(Request&& request) -> Observed<std::decay_t<decltype(request().value())>> {
  int attempts = 1;
  auto result = request();
  while (!result.ok() && attempts < tolerance::kMaxAttempts &&
         (result.error().code() == ErrorCode::kWorkerDied || result.error().code() == ErrorCode::kTimeout)) {
    result = request();
    ++attempts;
  }
  return {std::move(result), attempts};
}

}  // namespace kernelopt
