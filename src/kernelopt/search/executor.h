// PrintingExecutor: writes a candidate by printing its plan (codegen/printer.h).
#pragma once

#include "kernelopt/codegen/printer.h"
#include "kernelopt/search/agents.h"

namespace kernelopt {

class PrintingExecutor final : public Executor {
 public:
  // All must outlive the executor.
  PrintingExecutor(const Program& program, const Group& group, const Target& target)
      : program_(program), group_(group), target_(target) {}
  Result<Candidate> write(const Proposal& proposal) override {
    const KernelPlan& plan = proposal.plan;
    return target_.kind == DeviceKind::kCuda ? print_triton(program_, group_, plan, target_) : print_cpp(program_, group_, plan, target_);
  }

 private:
  const Program& program_;
  const Group& group_;
  const Target& target_;
};

}  // namespace kernelopt
