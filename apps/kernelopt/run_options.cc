#include "run_options.h"

namespace kernelopt {

using nlohmann::json;

namespace {

json or_null(const std::optional<std::string>& text) { return text ? json(*text) : json(nullptr); }
std::optional<std::string> text_of(const json& value) {
  return value.is_null() ? std::nullopt : std::optional<std::string>(value.get<std::string>());
}

}  // namespace

json run_to_json(const Options& options) {
  return {{"model", options.model.path},
          {"device", options.model.device},
          {"dtype", or_null(options.model.dtype)},
          {"inputs", or_null(options.model.inputs)},
          {"state_dict", or_null(options.model.state_dict)},
          {"seed", options.model.seed},
          {"rounds", options.sizes.rounds},
          {"plans", options.sizes.plans},
          {"chains", options.sizes.chains},
          {"beam", options.sizes.beam},
          {"memory", or_null(options.memory)},
          {"llm",
           {{"planner", or_null(options.llm.planner)},
            {"executor", or_null(options.llm.executor)},
            {"url", or_null(options.llm.url)},
            {"tokens", options.llm.limits.most_tokens},
            {"dollars", options.llm.limits.most_dollars},
            {"prices", {options.llm.limits.input_price, options.llm.limits.output_price}},
            {"timeout", options.llm.timeout_seconds}}},
          {"profiler", profiler_choice_name(options.profiler)},
          {"minutes", options.minutes ? json(*options.minutes) : json(nullptr)},
          {"precision", precision_name(options.precision)}};
}

Options options_of_run(const json& run, Options options) {
  options.model.path = run.at("model");
  options.model.device = run.at("device");
  options.model.dtype = text_of(run.at("dtype"));
  options.model.inputs = text_of(run.at("inputs"));
  options.model.state_dict = text_of(run.at("state_dict"));
  options.model.seed = run.at("seed");
  options.sizes = {run.at("rounds"), run.at("plans"), run.at("chains"), run.at("beam")};
  options.memory = text_of(run.value("memory", json(nullptr)));
  if (const auto llm = run.value("llm", json()); llm.is_object()) {
    options.llm.planner = text_of(llm.at("planner"));
    options.llm.executor = text_of(llm.at("executor"));
    options.llm.url = text_of(llm.at("url"));
    options.llm.limits.most_tokens = llm.at("tokens");
    options.llm.limits.most_dollars = llm.at("dollars");
    options.llm.limits.input_price = llm.at("prices").at(0);
    options.llm.limits.output_price = llm.at("prices").at(1);
    options.llm.timeout_seconds = llm.at("timeout");
  }
  if (!options.minutes && !run.at("minutes").is_null()) options.minutes = run["minutes"].get<double>();
  options.profiler = parse_profiler_choice(run.value("profiler", "off")).value_or(ProfilerChoice::kOff);
  options.precision = *parse_precision(run.at("precision").get<std::string>());
  return options;
}

}  // namespace kernelopt
