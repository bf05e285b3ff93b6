#include "kernelopt/base/result.h"

#include <cstdio>
#include <cstdlib>

namespace kernelopt {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "kernelopt: internal error at %s:%d: %s: %s\n", file, line, condition, message.c_str());
  std::fflush(stderr);
  std::abort();
}

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadInput: return "bad input";
    case ErrorCode::kEnvironment: return "environment";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kCandidate: return "candidate";
    case ErrorCode::kWorkerDied: return "worker died";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kInterrupted: return "interrupted";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

std::string Error::to_string() const {
  std::string text;
  for (auto it = contexts_.rbegin(); it != contexts_.rend(); ++it) text += *it + ": ";
  return text + message_;
}

Error Error::with_context(std::string context) && {
  contexts_.push_back(std::move(context));
  return std::move(*this);
}

}  // namespace kernelopt
