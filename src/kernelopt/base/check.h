// KO_CHECK: aborts on our own bugs, with place and message. Never for input: that is a Result.
#pragma once

#include <string>

namespace kernelopt {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace kernelopt

#define KO_CHECK(condition, message)                                                \
  do {                                                                              \
    if (!(condition)) ::kernelopt::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
