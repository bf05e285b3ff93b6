#include "bench_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

namespace kernelopt {

using nlohmann::json;

namespace {

constexpr double kFastP[] = {1.0, 1.1, 1.2, 1.5, 2.0};

std::string text_or(const json& object, const char* key, const std::string& other) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : other;
}

// outcome names of the report, in the table's words.
std::string table_outcome(const std::string& outcome) {
  if (outcome == "optimized" || outcome == "matched" || outcome == "fallback") return outcome;
  return "eager";
}

json max_autotune_gain(const json& report) {
  const auto& race = report.value("speedup_max_autotune", json());
  if (race.is_object()) return race.at("value");
  // The best mode was max-autotune itself: the race of gate 4 is the same one.
  return report.at("speedup").at("against") == "max-autotune" ? report["speedup"].at("value") : json(nullptr);
}

class Range {
 public:
  void add(const json& rho) {
    if (rho.is_string()) ++not_finite_;
    if (!rho.is_number()) return;
    low_ = low_ ? std::min(*low_, rho.get<double>()) : rho.get<double>();
    high_ = high_ ? std::max(*high_, rho.get<double>()) : rho.get<double>();
  }
  json to_json() const {
    return {{"min", low_ ? json(*low_) : json(nullptr)}, {"max", high_ ? json(*high_) : json(nullptr)}, {"not_finite", not_finite_}};
  }

 private:
  std::optional<double> low_, high_;
  int not_finite_ = 0;  // "nan" and "inf"
};

struct GateCounts {
  struct Cell {
    int count = 0;
    Range rho;
  };
  std::map<std::pair<std::string, std::string>, Cell> rejected;
  std::map<std::string, Cell> accepted;

  void add(const json& report) {
    for (const auto& candidate : report.value("candidates", json::array())) {
      const json gates = candidate.value("gates", json::object());  // named: items() does not keep a temporary alive
      for (const auto& [gate, verdict] : gates.items()) {
        const bool passed = text_or(verdict, "verdict", "") == "passed";
        auto& cell = passed ? accepted[gate] : rejected[{gate, text_or(verdict, "reason", text_or(verdict, "verdict", "?"))}];
        ++cell.count;
        const auto evidence = verdict.value("evidence", json());
        if (evidence.is_object()) cell.rho.add(evidence.value("rho", json()));
      }
    }
  }

  json to_json() const {
    json no = json::array(), yes = json::array();
    for (const auto& [key, cell] : rejected)
      no.push_back({{"gate", key.first}, {"reason", key.second}, {"count", cell.count}, {"rho", cell.rho.to_json()}});
    for (const auto& [gate, cell] : accepted) yes.push_back({{"gate", gate}, {"count", cell.count}, {"rho", cell.rho.to_json()}});
    return {{"rejected", no}, {"accepted", yes}};
  }
};

// Groups with a candidate that was faster alone, where the model does not show it. Gains are shares of the model's time.
void add_composition_gap(const BenchProblem& problem, const json& row, json& gaps) {
  const auto& report = problem.report;
  std::map<std::string, double> best;  // ratio to the group's compiler kernels
  for (const auto& candidate : report.value("candidates", json::array())) {
    const auto measured = candidate.value("measured", json());
    if (text_or(candidate, "state", "") != "passed" || !measured.is_object() || measured.at("interval").at(1) >= 1.0) continue;
    const auto group = candidate.at("group").get<std::string>();
    const double ratio = measured.at("ratio").get<double>();
    const auto [entry, fresh] = best.try_emplace(group, ratio);
    if (!fresh) entry->second = std::min(entry->second, ratio);
  }
  if (best.empty()) return;
  double promised = 0;
  json faster = json::array();
  for (const auto& group : report.at("decomposition").at("groups")) {
    const auto found = best.find(text_or(group, "digest", ""));
    if (found == best.end() || !group.value("equal_to", json()).is_null()) continue;
    const auto share = group.value("share", json());
    const double gain = share.is_number() ? share.get<double>() * (1 - found->second) : 0;
    promised += gain;
    faster.push_back({{"group", group.at("group")}, {"speedup_alone", 1 / found->second}, {"promised", gain}});
  }
  const bool optimized = row.at("outcome") == "optimized";
  const double gained = optimized ? 1 - 1 / row.at("speedup").get<double>() : 0;
  if (faster.empty() || (optimized && gained >= promised / 2)) return;
  gaps.push_back({{"level", problem.level}, {"problem", problem.name}, {"groups", faster}, {"promised", promised}, {"gained", gained},
                  {"why", optimized ? "the model gained less than half of what the kernels promised"
                                    : "no set of kernels passed gate 4: " + row.at("reason").get<std::string>()}});
}

json mean(double log_sum, int count) { return count > 0 ? json(std::exp(log_sum / count)) : json(nullptr); }

json summary(const std::string& level, const std::vector<json>& rows, bool leave_out_degenerate) {
  std::map<std::string, int> counts;
  int degenerate = 0, counted = 0, optimized = 0, raced = 0;
  double best_mode = 0, max_autotune = 0;  // sums of logarithms
  std::map<double, int> fast, fast_max_autotune;
  for (const auto& row : rows) {
    const auto outcome = row.at("outcome").get<std::string>();
    ++counts[outcome];
    degenerate += row.at("degenerate").get<bool>();
    if (outcome == "unfinished" || (leave_out_degenerate && row.at("degenerate").get<bool>())) continue;
    ++counted;
    if (outcome != "optimized") continue;
    ++optimized;
    best_mode += std::log(row.at("speedup").get<double>());
    for (const double p : kFastP) fast[p] += row["speedup"].get<double>() > p;
    if (!row.at("speedup_max_autotune").is_number()) continue;
    ++raced;
    max_autotune += std::log(row["speedup_max_autotune"].get<double>());
    for (const double p : kFastP) fast_max_autotune[p] += row["speedup_max_autotune"].get<double>() > p;
  }
  json fast_p = json::array();
  for (const double p : kFastP)
    fast_p.push_back({{"p", p},
                      {"best_mode", counted ? json(static_cast<double>(fast[p]) / counted) : json(nullptr)},
                      {"max_autotune", counted ? json(static_cast<double>(fast_max_autotune[p]) / counted) : json(nullptr)}});
  return {{"level", level},
          {"problems", rows.size()},
          {"optimized", counts["optimized"]},
          {"matched", counts["matched"]},
          {"fallback", counts["fallback"]},
          {"eager", counts["eager"]},
          {"failed", counts["failed"]},
          {"unfinished", counts["unfinished"]},
          {"degenerate", degenerate},
          {"counted", counted},
          {"geomean_all", {{"best_mode", mean(best_mode, counted)}, {"max_autotune", mean(max_autotune, counted)}}},
          {"geomean_optimized", {{"best_mode", mean(best_mode, optimized)}, {"max_autotune", mean(max_autotune, raced)}}},
          {"optimized_without_max_autotune", optimized - raced},
          {"fast_p", fast_p}};
}

std::string number(const json& value, const char* none = "–") {
  return value.is_number() ? fmt::format("{:.2f}", value.get<double>()) : value.is_string() ? value.get<std::string>() : none;
}
std::string percent(const json& value) {
  return value.is_number() ? fmt::format("{:.1f} %", value.get<double>() * 100) : "–";
}
std::string range_text(const json& range) {
  std::string text = range.at("min").is_number() ? number(range["min"]) + "–" + number(range["max"]) : "–";
  if (range.at("not_finite") > 0) text += fmt::format(", {} not finite", range["not_finite"].get<int>());
  return text;
}
std::string cell(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '|') c = c == '|' ? '/' : ' ';
  return text;
}

json failed_row(const BenchProblem& problem, const std::string& outcome, const std::string& reason) {
  return {{"level", problem.level}, {"problem", problem.name}, {"outcome", outcome}, {"speedup", nullptr},
          {"interval", nullptr}, {"against", nullptr}, {"speedup_max_autotune", nullptr},
          {"seconds", problem.failure_seconds}, {"degenerate", false}, {"reason", reason}, {"rho", nullptr},
          {"formats", json::array()}};
}

}  // namespace

bool is_finished_report(const json& report) {
  if (!report.is_object() || report.value("format", json()) != "kernelopt.report") return false;
  return report.value("outcome", json()).is_string() && report.value("interrupted", json()) == false;
}

json bench_row(const BenchProblem& problem) {
  if (problem.report.is_null())
    return problem.failure.empty() ? failed_row(problem, "unfinished", "not run to its end yet")
                                   : failed_row(problem, "failed", problem.failure);
  try {
    const auto& report = problem.report;
    json row = failed_row(problem, table_outcome(report.at("outcome").get<std::string>()), text_or(report, "reason", ""));
    row["seconds"] = report.at("seconds").get<double>();
    for (const auto& note : report.at("notes"))
      if (note.get<std::string>().find("degenerate model:") != std::string::npos) row["degenerate"] = true;
    row["formats"] = report.value("formats", json::array());
    row["rho"] = report.value("rho", json());
    if (row["outcome"] == "optimized") {
      const auto& race = report.at("speedup");
      row["speedup"] = race.at("value").get<double>();
      row["interval"] = race.at("interval");
      row["against"] = race.at("against");
      row["speedup_max_autotune"] = max_autotune_gain(report);
      if (!(row["speedup"] > 0.0)) return failed_row(problem, "failed", "the report's speed-up is not a positive number");
    }
    return row;
  } catch (const json::exception& error) {
    return failed_row(problem, "failed", std::string("the report is not as it should be: ") + error.what());
  }
}

json bench_table(const std::vector<BenchProblem>& problems, const json& settings, bool leave_out_degenerate) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<json>> levels;
  std::vector<json> rows;
  std::set<std::string> devices, torches;
  std::map<std::string, int> formats;
  GateCounts gates;
  json gaps = json::array();
  double seconds = 0;
  for (const auto& problem : problems) {
    const json row = bench_row(problem);
    if (!levels.count(problem.level)) order.push_back(problem.level);
    levels[problem.level].push_back(row);
    rows.push_back(row);
    seconds += row.at("seconds").get<double>();
    if (problem.report.is_null() || row["outcome"] == "failed") continue;
    for (const auto& format : row["formats"]) ++formats[format.get<std::string>()];
    try {
      gates.add(problem.report);
      add_composition_gap(problem, row, gaps);
      devices.insert(text_or(problem.report.value("device", json::object()), "name", "?"));
      torches.insert(text_or(problem.report, "torch", "?"));
    } catch (const json::exception& error) {
      rows.back()["reason"] = fmt::format("{} (details left out: {})", row["reason"].get<std::string>(), error.what());
    }
  }
  json per_level = json::array();
  for (const auto& level : order) per_level.push_back(summary(level, levels[level], leave_out_degenerate));
  return {{"format", "kernelopt.bench"},
          {"version", 1},
          {"settings", settings},
          {"devices", devices},
          {"torch", torches},
          {"leave_out_degenerate", leave_out_degenerate},
          {"levels", per_level},
          {"all", summary("all", rows, leave_out_degenerate)},
          {"gates", gates.to_json()},
          {"composition_gap", gaps},
          {"formats", formats},
          {"run_hours", seconds / 3600},
          {"rows", rows}};
}

std::string bench_markdown(const json& document) {
  const auto& settings = document.at("settings");
  std::string text = fmt::format("# Benchmark {}\n\n", text_or(settings, "name", ""));
  std::string devices, torches;
  for (const auto& name : document.at("devices")) devices += (devices.empty() ? "" : "; ") + name.get<std::string>();
  for (const auto& name : document.at("torch")) torches += (torches.empty() ? "" : "; ") + name.get<std::string>();
  text += fmt::format("Device: {}. torch {}. Settings: `{}`.\n\n", devices.empty() ? "–" : devices, torches.empty() ? "–" : torches,
                      settings.dump());
  text += "Means are geometric, with everything that is not optimized (failures and time-outs too) as 1.00; *best* is the fastest of "
          "eager and the compiler's modes, *autotune* is max-autotune.";
  if (document.at("leave_out_degenerate") == true) text += " Degenerate problems are left out of means and fast_p.";
  text += "\n\n| level | problems | optimized | matched | fallback (eager) | failed | unfinished | degenerate | all: best | all: autotune "
          "| optimized: best | optimized: autotune |";
  for (const double p : kFastP) text += fmt::format(" fast_{:.1f} |", p);
  text += "\n|---|---|---|---|---|---|---|---|---|---|---|---|";
  for (size_t i = 0; i < std::size(kFastP); ++i) text += "---|";
  text += "\n";
  auto line = [&](const json& level) {
    text += fmt::format("| {} | {} | {} | {} | {} ({}) | {} | {} | {} | {} | {} | {} | {} |", cell(level.at("level").get<std::string>()),
                        level.at("problems").get<int>(), level.at("optimized").get<int>(), level.at("matched").get<int>(),
                        level.at("fallback").get<int>() + level.at("eager").get<int>(), level["eager"].get<int>(),
                        level.at("failed").get<int>(), level.at("unfinished").get<int>(), level.at("degenerate").get<int>(),
                        number(level.at("geomean_all").at("best_mode")), number(level["geomean_all"].at("max_autotune")),
                        number(level.at("geomean_optimized").at("best_mode")), number(level["geomean_optimized"].at("max_autotune")));
    for (const auto& fast : level.at("fast_p")) text += " " + percent(fast.at("best_mode")) + " |";
    text += "\n";
  };
  for (const auto& level : document.at("levels")) line(level);
  line(document.at("all"));
  const int missing = document["all"].at("optimized_without_max_autotune").get<int>();
  if (missing) text += fmt::format("\n{} optimized without a race against max-autotune: 1.00 in its mean of all.\n", missing);
  text += fmt::format("\nTime of the runs together: {:.2f} h. Formats used:", document.at("run_hours").get<double>());
  if (document.at("formats").empty()) text += " none narrower";
  for (const auto& [format, count] : document["formats"].items()) text += fmt::format(" {} ({})", format, count.get<int>());
  text += ".\n\n## Gates\n\n| gate | verdict | count | ρ |\n|---|---|---|---|\n";
  for (const auto& entry : document.at("gates").at("accepted"))
    text += fmt::format("| {} | passed | {} | {} |\n", entry.at("gate").get<std::string>(), entry.at("count").get<int>(),
                        range_text(entry.at("rho")));
  for (const auto& entry : document["gates"].at("rejected"))
    text += fmt::format("| {} | rejected: {} | {} | {} |\n", entry.at("gate").get<std::string>(), cell(entry.at("reason").get<std::string>()),
                        entry.at("count").get<int>(), range_text(entry.at("rho")));
  text += "\n## Composition gap\n\n";
  if (document.at("composition_gap").empty()) text += "None: kernels that were faster alone were faster in the model.\n";
  else text += "| problem | groups | promised | gained | why |\n|---|---|---|---|---|\n";
  for (const auto& gap : document["composition_gap"])
    text += fmt::format("| {}/{} | {} | {} | {} | {} |\n", gap.at("level").get<std::string>(), gap.at("problem").get<std::string>(),
                        gap.at("groups").size(), percent(gap.at("promised")), percent(gap.at("gained")), cell(gap.at("why").get<std::string>()));
  text += "\n## Problems\n\n| problem | outcome | best | interval | against | autotune | ρ | s | note |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const auto& row : document.at("rows")) {
    const auto& interval = row.at("interval");
    text += fmt::format("| {}/{} | {} | {} | {} | {} | {} | {} | {:.0f} | {} |\n", row.at("level").get<std::string>(),
                        row.at("problem").get<std::string>(), row.at("outcome").get<std::string>(), number(row.at("speedup"), "1.00"),
                        interval.is_array() ? number(interval.at(0)) + "–" + number(interval.at(1)) : "–", text_or(row, "against", "–"),
                        number(row.at("speedup_max_autotune")), number(row.at("rho")), row.at("seconds").get<double>(),
                        cell((row.at("degenerate") == true ? "degenerate; " : "") + text_or(row, "reason", "")));
  }
  return text;
}

std::string bench_row_text(const json& row) {
  const auto outcome = row.at("outcome").get<std::string>();
  if (outcome == "optimized") return fmt::format("optimized {:.2f}x", row.at("speedup").get<double>());
  return fmt::format("{} ({})", outcome, text_or(row, "reason", ""));
}

}  // namespace kernelopt
