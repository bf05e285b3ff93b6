// Precision policies and what they bound (DESIGN.md section 4).
#pragma once

#include <optional>
#include <string_view>

namespace kernelopt {

enum class Precision { kStrict, kAccurate, kPaper };
const char* precision_name(Precision precision);
std::optional<Precision> parse_precision(std::string_view text);

// What a candidate changes. A challenge replaces a vendor call or changes a number format.
enum class Change { kRewrite, kChallenge };

double rho_bound(Precision precision, Change change);
// Whether rho must hold even where allclose passes.
bool rho_required(Precision precision, Change change);

// Whether a policy admits a number format that a candidate names as narrower than its baseline's. Plain narrowing is
// admitted by none; a format that is not known is not admitted.
bool format_admitted(Precision precision, std::string_view format);

}  // namespace kernelopt
