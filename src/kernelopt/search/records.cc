#include "kernelopt/search/records.h"

namespace kernelopt {

const char* attempt_state_name(AttemptState state) {
  switch (state) {
    case AttemptState::kPassed: return "passed";
    case AttemptState::kSlower: return "slower";
    case AttemptState::kRejected: return "rejected";
    case AttemptState::kError: return "error";
    case AttemptState::kDuplicate: return "duplicate";
  }
  return "?";
}

const char* search_stop_name(SearchStop stop) {
  switch (stop) {
    case SearchStop::kRoundsDone: return "rounds done";
    case SearchStop::kAtFloor: return "at the floor";
    case SearchStop::kCannotPay: return "cannot pay";
    case SearchStop::kExhausted: return "no plan left";
    case SearchStop::kOutOfTime: return "out of time";
    case SearchStop::kInterrupted: return "interrupted";
    case SearchStop::kNoPlan: return "no plan";
    case SearchStop::kError: return "error";
  }
  return "?";
}

}  // namespace kernelopt
