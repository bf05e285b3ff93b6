// The table of `kernelopt bench`: pure functions over parsed report.json documents (docs/bench.schema.json).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace kernelopt {

// What is known about one problem. `report` is its finished report.json, or null. Without a report, a non-empty `failure`
// says why there is no result; with neither, the problem has not been run to its end yet.
struct BenchProblem {
  std::string level, name;
  nlohmann::json report;
  std::string failure;
  double failure_seconds = 0;
};

// True where the run came to an outcome: nothing but a new run could change it.
bool is_finished_report(const nlohmann::json& report);

// One result row: level, problem, outcome (optimized, matched, fallback, eager, failed, unfinished), speedup and
// speedup_max_autotune (null where not optimized), seconds, degenerate, reason, rho, formats. A report that lacks what
// a row needs is a failure, never an exception.
nlohmann::json bench_row(const BenchProblem& problem);

// The whole document of bench.json. Everything that is not optimized counts as 1.00; unfinished problems count nowhere but
// in their own column; degenerate problems stay out of means and fast_p with `leave_out_degenerate`.
nlohmann::json bench_table(const std::vector<BenchProblem>& problems, const nlohmann::json& settings, bool leave_out_degenerate);

// bench.md, made of the document alone.
std::string bench_markdown(const nlohmann::json& document);

// "optimized 1.52x", "failed (hang: …)": for progress lines.
std::string bench_row_text(const nlohmann::json& row);

}  // namespace kernelopt
