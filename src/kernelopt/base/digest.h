// SHA-256 (FIPS 180-4), for content digests that must agree with Python's hashlib.
#pragma once

#include <string>
#include <string_view>

namespace kernelopt {

// Lower-case hex, 64 characters.
std::string sha256_hex(std::string_view bytes);

}  // namespace kernelopt
