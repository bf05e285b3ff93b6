// Splits C++ source into tokens for the static scan. Comments vanish, line continuations are joined, preprocessor lines
// come out as one token each. What it cannot split it reports as a token of kind kBad: the scan then refuses the source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kernelopt {

enum class CppTokenKind { kIdentifier, kNumber, kString, kDirective, kPunctuation, kBad };

struct CppToken {
  CppTokenKind kind;
  std::string text;
  int line;
};

// "::", "->" and "..." are one token; every other punctuation character is a token of its own.
std::vector<CppToken> split_cpp(std::string_view source);

}  // namespace kernelopt
