// The commands of the executable (docs/cli.md). Each returns its exit status, or the error that main turns into one.
#pragma once

#include "options.h"

namespace kernelopt {

Result<int> run_inspect(const Options& options);
Result<int> run_optimize(const Options& options);
Result<int> run_resume(const Options& options);
Result<int> run_verify(const Options& options);
Result<int> run_report(const Options& options);
Result<int> run_doctor(const Options& options);
Result<int> run_ask(const Options& options);
Result<int> run_tell(const Options& options);
Result<int> run_memory(const Options& options);
Result<int> run_bench(const Options& options);

}  // namespace kernelopt
