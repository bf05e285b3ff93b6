#include "kernelopt/gates/policy.h"

#include "kernelopt/gates/tolerances.h"

namespace kernelopt {

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::kStrict: return "strict";
    case Precision::kAccurate: return "accurate";
    case Precision::kPaper: return "paper";
  }
  return "unknown";
}

std::optional<Precision> parse_precision(std::string_view text) {
  for (Precision precision : {Precision::kStrict, Precision::kAccurate, Precision::kPaper})
    if (text == precision_name(precision)) return precision;
  return std::nullopt;
}

double rho_bound(Precision precision, Change change) {
  if (precision == Precision::kPaper) return tolerance::kRhoPaper;
  return change == Change::kChallenge ? tolerance::kRhoChallenge : tolerance::kRhoRewrite;
}

bool rho_required(Precision precision, Change change) {
  return change == Change::kChallenge && precision != Precision::kPaper;
}

bool format_admitted(Precision precision, std::string_view format) {
  // Sums of several narrow parts. Three bfloat16 parts hold float32's 24 bits over its whole range; the others hold fewer
  // bits, and rho decides. Two float16 parts lack the range as well: who uses them measures on the device whether the values fit.
  if (format == "bf16x6") return true;
  if (format == "fp16x3" || format == "bf16x3" || format == "tf32x3") return precision != Precision::kStrict;
  // As many bits as TF32's in less range, which is guarded as above; only where the library computes in TF32 itself.
  if (format == "fp16 for tf32") return precision != Precision::kStrict;
  return false;
}

}  // namespace kernelopt
