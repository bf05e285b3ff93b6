#include "options.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "kernelopt/search/strategy_memory.h"

namespace kernelopt {
namespace {

void add_model_options(CLI::App* command, Options& options, std::string& precision) {
  command->add_option("model", options.model.path, "Python file with Model, get_inputs and get_init_inputs, or module:function")
      ->required();
  command->add_option("--device", options.model.device, "Device")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  command->add_option("--dtype", options.model.dtype, "Convert weights and floating inputs")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16", "float64"}));
  command->add_option("--seed", options.model.seed, "Seed of weights, inputs and search")->capture_default_str();
  command->add_option("--inputs", options.model.inputs, "File of torch.save((args, kwargs)) or a list of inputs");
  command->add_option("--state-dict", options.model.state_dict, "File of torch.save(model.state_dict())");
  command->add_option("--out", options.folder, "Run folder (default: runs/<model name>)");
  command->add_option("--precision", precision, "Accuracy policy")
      ->check(CLI::IsMember({"strict", "accurate", "paper"}))
      ->capture_default_str();
}

void add_size_options(CLI::App* command, Options& options) {
  const auto sizes = CLI::Range(1, 1000);
  command->add_option("--rounds", options.sizes.rounds, "Rounds of the beam search")->check(sizes)->capture_default_str();
  command->add_option("--plans", options.sizes.plans, "New plans a round")->check(sizes)->capture_default_str();
  command->add_option("--chains", options.sizes.chains, "Chains")->check(sizes)->capture_default_str();
  command->add_option("--beam", options.sizes.beam, "Width of the beam")->check(sizes)->capture_default_str();
}

void add_language_model_options(CLI::App* command, Options& options, std::optional<std::string>& both) {
  auto& llm = options.llm;
  command->add_option("--llm", both, "Language model: anthropic:MODEL, openai:MODEL, command:COMMAND, mailbox:FOLDER or replay:FILE");
  command->add_option("--llm-planner", llm.planner, "Another one for the planner");
  command->add_option("--llm-executor", llm.executor, "Another one for the executor (GPUs)");
  command->add_option("--llm-url", llm.url, "Base address of an anthropic or openai server");
  command->add_option("--llm-tokens", llm.limits.most_tokens, "Cap on tokens, input and output")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--llm-dollars", llm.limits.most_dollars, "Cap on cost; needs --llm-prices")->check(CLI::PositiveNumber);
  command->add_option_function<std::vector<double>>("--llm-prices", [&llm](const std::vector<double>& prices) {
    llm.limits.input_price = prices.at(0);
    llm.limits.output_price = prices.at(1);
  }, "Dollars per million tokens of input and output")->expected(2)->check(CLI::NonNegativeNumber);
  command->add_option("--llm-timeout", llm.timeout_seconds, "Seconds that one answer may take")->check(CLI::PositiveNumber)->capture_default_str();
}

void add_bench_options(CLI::App* command, Options& options, std::string& precision) {
  auto& bench = options.bench;
  command->add_option("dir", bench.dir, "Folder of level1/ to levelN/, or of problem files");
  command->add_option("--levels", bench.levels, "Numbers or folder names, with commas")->delimiter(',');
  command->add_option("--select", bench.select, "Substrings or globs of file names, with commas")->delimiter(',');
  command->add_option("--minutes-per-problem", options.minutes, "Time limit of one problem")->check(CLI::PositiveNumber);
  command->add_option("--jobs", bench.jobs, "Problems at once (default: 1 on cpu, 2 on cuda)")->check(CLI::Range(1, 64));
  command->add_option("--device", options.model.device, "Device")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  command->add_option("--dtype", options.model.dtype, "Convert weights and floating inputs")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16", "float64"}));
  command->add_option("--seed", options.model.seed, "Seed of weights, inputs and search")->capture_default_str();
  command->add_option("--precision", precision, "Accuracy policy")
      ->check(CLI::IsMember({"strict", "accurate", "paper"}))
      ->capture_default_str();
  command->add_option("--out", options.folder, "Folder of the benchmark (default: runs/bench-<name>)");
  command->add_flag("--table", bench.table_only, "Make the table again from the run folders; run nothing");
  command->add_flag("--leave-out-degenerate", bench.leave_out_degenerate, "Leave degenerate problems out of the means");
}

void add_common_options(CLI::App* command, Options& options) {
  command->add_option("--python", options.python, "Python interpreter that has torch");
  command->add_flag("--json", options.json, "Print the result as JSON");
}

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

std::string stem(const std::string& path) {
  auto name = path.substr(path.find_last_of('/') + 1);
  if (name.size() > 3 && name.ends_with(".py")) name.resize(name.size() - 3);
  for (char& c : name)
    if (c == ':') c = '_';
  return name.empty() ? "model" : name;
}

}  // namespace

Result<ParsedArguments> parse_arguments(int argc, const char* const* argv) {
  Options options;
  std::string precision = precision_name(options.precision);
  CLI::App app("Takes a PyTorch model and returns the same model, faster, or the compiler's own program.", "kernelopt");
  app.set_version_flag("--version", "kernelopt " KERNELOPT_VERSION);
  app.require_subcommand(1);

  auto* inspect = app.add_subcommand("inspect", "Show the dispatch map of a model without searching");
  auto* optimize = app.add_subcommand("optimize", "Search, verify and write optimized.py");
  auto* verify = app.add_subcommand("verify", "Check optimized.py of a run folder against eager again");
  auto* resume = app.add_subcommand("resume", "Go on with a run that was stopped");
  auto* report = app.add_subcommand("report", "Print the result of a run");
  auto* bench = app.add_subcommand("bench", "Optimize a folder of problems in KernelBench's layout and print the table");
  auto* doctor = app.add_subcommand("doctor", "Check what this machine has");
  for (auto* command : {inspect, optimize}) add_model_options(command, options, precision);
  for (auto* command : {optimize, resume}) {
    command->add_option("--minutes", options.minutes, "Time limit for the model; wins over the search sizes")
        ->check(CLI::PositiveNumber);
  }
  for (auto* command : {optimize, bench}) add_size_options(command, options);
  std::string profiler = profiler_choice_name(options.profiler);
  optimize->add_option("--profiler", profiler, "Nsight Compute: auto (where it costs little), ncu (also where it costs more) or off")
      ->check(CLI::IsMember({"auto", "ncu", "off"}))
      ->capture_default_str();
  std::optional<std::string> llm;
  add_language_model_options(optimize, options, llm);
  auto* ask = app.add_subcommand("ask", "Print the open prompts of a mailbox");
  auto* tell = app.add_subcommand("tell", "Answer a prompt of a mailbox from standard input");
  for (auto* command : {ask, tell}) command->add_option("dir", options.folder, "Mailbox folder")->required();
  tell->add_option("id", options.prompt_id, "Which prompt (default: the only open one)");
  auto* memory = app.add_subcommand("memory", "Show what the searches on each device have learned");
  std::string memory_folder = memory_folder_of_environment().value_or("");
  bool no_memory = false;
  for (auto* command : {optimize, bench, memory})
    command->add_option("--memory", memory_folder, "Folder of what runs learn, a file a device (default: $KERNELOPT_MEMORY; without either nothing is "
                        "kept)");
  for (auto* command : {optimize, bench}) command->add_flag("--no-memory", no_memory, "Neither read nor keep what runs learn");
  add_bench_options(bench, options, precision);
  for (auto* command : {verify, resume, report})
    command->add_option("dir", options.folder, "Run folder")->required();
  for (auto* command : {inspect, optimize, verify, resume, report, doctor, bench, memory, ask, tell}) add_common_options(command, options);

  try {
    app.parse(argc, const_cast<char**>(argv));
  } catch (const CLI::CallForHelp&) {
    for (auto* command : app.get_subcommands()) return ParsedArguments(command->help());
    return ParsedArguments(app.help());
  } catch (const CLI::CallForAllHelp&) {
    return ParsedArguments(app.help("", CLI::AppFormatMode::All));
  } catch (const CLI::CallForVersion& version) {
    return ParsedArguments(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    return Error(ErrorCode::kBadInput, first_line(error.what()));
  }

  if (inspect->parsed()) options.command = Command::kInspect;
  if (optimize->parsed()) options.command = Command::kOptimize;
  if (verify->parsed()) options.command = Command::kVerify;
  if (resume->parsed()) options.command = Command::kResume;
  if (report->parsed()) options.command = Command::kReport;
  if (doctor->parsed()) options.command = Command::kDoctor;
  if (bench->parsed()) options.command = Command::kBench;
  if (ask->parsed()) options.command = Command::kAsk;
  if (tell->parsed()) options.command = Command::kTell;
  if (options.llm.limits.most_dollars > 0 && options.llm.limits.input_price + options.llm.limits.output_price <= 0)
    return Error(ErrorCode::kBadInput, "--llm-dollars needs --llm-prices");
  for (auto* agent : {&options.llm.planner, &options.llm.executor})
    if (!*agent) *agent = llm;
  if (memory->parsed()) options.command = Command::kMemory;
  if (!no_memory && !memory_folder.empty()) options.memory = memory_folder;
  options.precision = *parse_precision(precision);
  options.profiler = *parse_profiler_choice(profiler);
  if (options.profiler == ProfilerChoice::kNcu && options.model.device != "cuda")
    return Error(ErrorCode::kBadInput, "--profiler ncu needs --device cuda");
  options.folder_given = !options.folder.empty();
  if (!options.folder_given) options.folder = "runs/" + stem(options.model.path);
  return ParsedArguments(options);
}

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadInput:
    case ErrorCode::kUnsupported:
      return 2;
    case ErrorCode::kEnvironment:
      return 3;
    case ErrorCode::kInterrupted:
      return 130;
    case ErrorCode::kCandidate:
    case ErrorCode::kWorkerDied:
    case ErrorCode::kTimeout:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      return 4;
  }
  return 4;
}

}  // namespace kernelopt
