// The audit of the baseline: before any candidate is judged, the compiler's own program goes through gates 2 and 3 against
// eager (DESIGN.md section 6). Pure.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "kernelopt/gates/decision.h"
#include "kernelopt/gates/observation.h"
#include "kernelopt/gates/passes.h"

namespace kernelopt {

enum class EagerReason {
  kCompilerFailed,  // torch.compile raised, crashed or hung
  kDisagrees,       // its program and eager differ
  kUnverifiable,    // eager differs from itself beyond its own noise: nothing can be compared with it
};
const char* eager_reason_name(EagerReason reason);

// Eager ships; the report shows why.
struct EagerFallback {
  EagerReason reason;
  std::string message;   // one line for people
  nlohmann::json data;   // the disagreement
};

// The compiler's kernels of one group against the judge's reference. `reference_confirmed`: the reference itself agreed with
// eager wherever a buffer corresponds to an ATen node (check_lowering).
struct GroupAudit {
  std::string group;
  bool reference_confirmed = false;
  std::vector<Observed<Comparison>> comparisons;
};

struct AuditObservation {
  std::string fingerprint;
  Precision precision = Precision::kAccurate;
  std::vector<Observed<ReferenceFacts>> references;  // one a seed
  std::vector<GroupAudit> groups;
  std::vector<Observed<ModelRun>> runs;              // the compiler's own program against eager
};

class BaselineAudit {
 public:
  // Sound: the model agrees on enough seeds; outputs that agree with digits lost are named. A group whose kernels disagree with a reference that eager confirms makes the
  // model eager's; one whose reference is not confirmed, or could not be compared, is excluded from replacement.
  static std::variant<BaselineSound, EagerFallback, Faulted> decide(const AuditObservation& observation);
};

}  // namespace kernelopt
