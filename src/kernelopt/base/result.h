// Result<T>: a value or one Error. Every fallible function of the engine returns one; exceptions of foreign code are
// caught where they enter (main, thread entries, process boundaries).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernelopt/base/check.h"

namespace kernelopt {

// Who is at fault; the command line maps each to its exit status (docs/cli.md).
enum class ErrorCode {
  kBadInput,     // the user's model, file or option
  kEnvironment,  // something the machine lacks
  kUnsupported,  // recognised, and not handled: the compiler's program ships
  kCandidate,    // the candidate kernel is at fault
  kWorkerDied,   // the process ended or closed its pipe
  kTimeout,      // a deadline passed
  kIo,           // file system or database
  kInterrupted,  // the user asked to stop
  kInternal,     // our own fault
};

const char* error_code_name(ErrorCode code);

// One line for people, with the chain of contexts it passed through, outermost first.
class Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "context: context: message"
  std::string to_string() const;
  Error with_context(std::string context) &&;

 private:
  ErrorCode code_;
  std::string message_;
  std::vector<std::string> contexts_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const T& value() const& { KO_CHECK(ok(), error_text()); return std::get<0>(state_); }
  T& value() & { KO_CHECK(ok(), error_text()); return std::get<0>(state_); }
  T&& value() && { KO_CHECK(ok(), error_text()); return std::get<0>(std::move(state_)); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }
  const Error& error() const& { KO_CHECK(!ok(), "error() of a Result that holds a value"); return std::get<1>(state_); }
  Error&& error() && { KO_CHECK(!ok(), "error() of a Result that holds a value"); return std::get<1>(std::move(state_)); }

 private:
  std::string error_text() const { return ok() ? std::string() : std::get<1>(state_).to_string(); }
  std::variant<T, Error> state_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status ok_status() { return Status(Unit{}); }

#define KO_CONCAT_INNER(a, b) a##b
#define KO_CONCAT(a, b) KO_CONCAT_INNER(a, b)
// KO_TRY(auto x, f()): declares x from f's value, or returns f's error.
#define KO_TRY(decl, expression)                                   \
  auto KO_CONCAT(ko_result_, __LINE__) = (expression);             \
  if (!KO_CONCAT(ko_result_, __LINE__).ok())                       \
    return std::move(KO_CONCAT(ko_result_, __LINE__)).error();     \
  decl = std::move(KO_CONCAT(ko_result_, __LINE__)).value()
#define KO_RETURN_IF_ERROR(expression)                             \
  do {                                                             \
    auto ko_status = (expression);                                 \
    if (!ko_status.ok()) return std::move(ko_status).error();      \
  } while (false)

}  // namespace kernelopt
