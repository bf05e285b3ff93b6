#include "kernelopt/llm/reply.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "kernelopt/codegen/canonical_names.h"

namespace kernelopt {

using nlohmann::json;

namespace {

constexpr size_t kMostCharacters = 256 << 10, kMostKernels = 8, kMostLaunches = 16, kMostScratch = 8, kMostStrategy = 600;
constexpr int64_t kMostPrograms = int64_t{1} << 31, kMostScratchElements = int64_t{1} << 28;

Error refused(std::string why) { return Error(ErrorCode::kCandidate, "the answer is refused: " + std::move(why)); }

// The answer's one JSON object; a fence around all of it is let pass.
Result<json> only_object(const std::string& text) {
  if (text.size() > kMostCharacters) return refused("it is too long");
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return refused("it is empty");
  auto body = text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
  if (body.rfind("```", 0) == 0) {
    const auto line = body.find('\n');
    if (line == std::string::npos || body.size() < line + 4 || body.compare(body.size() - 3, 3, "```") != 0)
      return refused("a fence that does not end");
    if (const auto tag = body.substr(3, line - 3); tag != "json" && !tag.empty()) return refused("a fence of something other than JSON");
    body = body.substr(line + 1, body.size() - line - 4);
  }
  auto document = json::parse(body, nullptr, false);
  if (document.is_discarded()) return refused("it is not one JSON object and nothing else");
  if (!document.is_object()) return refused("it is not a JSON object");
  return document;
}

Status only_keys(const json& object, const std::set<std::string>& required, const std::set<std::string>& optional, const std::string& where) {
  if (!object.is_object()) return refused(where + " is not an object");
  for (const auto& [key, value] : object.items())
    if (!required.count(key) && !optional.count(key)) return refused(fmt::format("{} has a field \"{}\" that the schema lacks", where, key.substr(0, 40)));
  for (const auto& key : required)
    if (!object.contains(key)) return refused(fmt::format("{} lacks the field \"{}\"", where, key));
  return ok_status();
}

bool is_identifier(const std::string& name) {
  if (name.empty() || name.size() > 40 || !(std::isalpha(static_cast<unsigned char>(name[0])))) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

Result<int64_t> whole(const json& object, const char* key, int64_t low, int64_t high, const std::string& where) {
  const auto& value = object.at(key);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(high)) ||
      value.get<int64_t>() < low || value.get<int64_t>() > high)
    return refused(fmt::format("{}.{} is not a whole number from {} to {}", where, key, low, high));
  return value.get<int64_t>();
}

Result<std::string> identifier(const json& object, const char* key, const std::string& where) {
  if (!object.at(key).is_string() || !is_identifier(object[key].get<std::string>()))
    return refused(fmt::format("{}.{} is not a name", where, key));
  return object[key].get<std::string>();
}

const json& list_at(const json& object, const char* key) {
  static const json none = json::array();
  return object.contains(key) ? object[key] : none;
}

}  // namespace

Result<std::vector<PlannedStep>> read_planner_reply(const std::string& text, int moves, int most, bool code) {
  KO_TRY(const json document, only_object(text));
  KO_RETURN_IF_ERROR(only_keys(document, {"plans"}, {}, "the answer"));
  const auto& plans = document["plans"];
  if (!plans.is_array() || plans.empty()) return refused("plans is not a list with something in it");
  std::vector<PlannedStep> steps;
  std::set<std::string> seen;
  for (const auto& plan : plans) {
    const auto where = fmt::format("plans[{}]", steps.size());
    if (static_cast<int>(steps.size()) >= most) return refused(fmt::format("more than {} plans", most));
    PlannedStep step;
    if (plan.is_object() && plan.contains("move")) {
      KO_RETURN_IF_ERROR(only_keys(plan, {"move"}, {}, where));
      KO_TRY(const int64_t move, whole(plan, "move", 1, moves, where));
      step.move = static_cast<int>(move);
    } else {
      KO_RETURN_IF_ERROR(only_keys(plan, {"strategy"}, {}, where));
      if (!code) return refused(where + " has a strategy; on this device only moves are taken");
      if (!plan["strategy"].is_string() || plan["strategy"].get<std::string>().empty() ||
          plan["strategy"].get<std::string>().size() > kMostStrategy)
        return refused(fmt::format("{}.strategy is not a text of at most {} characters", where, kMostStrategy));
      step.strategy = plan["strategy"].get<std::string>();
    }
    if (!seen.insert(plan.dump()).second) return refused(where + " repeats an earlier one");
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<GroupBuffer> group_buffers(const Program& program, const Group& group) {
  std::vector<GroupBuffer> result;
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const auto& [name, canonical] : canonical_names(group)) {
    GroupBuffer buffer;
    buffer.read = has(group.inputs, name);
    buffer.written = has(group.outputs, name);
    if (!buffer.read && !buffer.written) continue;
    const auto& known = program.buffer(name);
    buffer.name = canonical;
    buffer.dtype = known.dtype;
    buffer.size = known.size;
    buffer.stride = known.stride;
    buffer.offset = known.offset;
    buffer.elements = known.storage_elements();
    result.push_back(std::move(buffer));
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return std::pair(a.name.size(), a.name) < std::pair(b.name.size(), b.name);
  });
  return result;
}

Result<Candidate> read_executor_reply(const std::string& text, const std::string& group_digest,
                                      const std::vector<GroupBuffer>& buffers, const std::string& strategy) {
  KO_TRY(const json document, only_object(text));
  KO_RETURN_IF_ERROR(only_keys(document, {"kernels", "launches"}, {"scratch"}, "the answer"));
  for (const char* key : {"kernels", "launches"})
    if (!document[key].is_array() || document[key].empty()) return refused(fmt::format("{} is not a list with something in it", key));
  if (!list_at(document, "scratch").is_array()) return refused("scratch is not a list");
  if (document["kernels"].size() > kMostKernels || document["launches"].size() > kMostLaunches ||
      list_at(document, "scratch").size() > kMostScratch)
    return refused(fmt::format("more than {} kernels, {} launches or {} scratch buffers", kMostKernels, kMostLaunches, kMostScratch));

  CandidateParts parts;
  parts.language = "triton";
  parts.group = group_digest;
  std::map<std::string, KernelParam> arguments;  // by buffer: type and role, whatever the parameter's name
  std::map<std::string, bool> written;
  for (const auto& buffer : buffers) {
    arguments[buffer.name] = {buffer.name, buffer.dtype,
                              !buffer.written ? ParamRole::kIn : buffer.read ? ParamRole::kInOut : ParamRole::kOut};
    if (buffer.written) written[buffer.name] = false;
  }
  for (const auto& entry : list_at(document, "scratch")) {
    const auto where = fmt::format("scratch[{}]", parts.scratch.size());
    KO_RETURN_IF_ERROR(only_keys(entry, {"name", "dtype", "elements"}, {"zeroed"}, where));
    KO_TRY(auto name, identifier(entry, "name", where));
    if (arguments.count(name)) return refused(where + ".name is taken");
    auto dtype = entry["dtype"].is_string() ? parse_dtype(entry["dtype"].get<std::string>()) : Result<DType>(refused("dtype"));
    if (!dtype.ok()) return refused(where + ".dtype is no element type");
    KO_TRY(const int64_t elements, whole(entry, "elements", 1, kMostScratchElements, where));
    if (entry.contains("zeroed") && !entry["zeroed"].is_boolean()) return refused(where + ".zeroed is not true or false");
    arguments[name] = {name, *dtype, ParamRole::kScratch};
    parts.scratch.push_back({name, *dtype, elements, entry.value("zeroed", false)});
  }
  std::map<std::string, size_t> kernels;
  for (const auto& entry : document["kernels"]) {
    const auto where = fmt::format("kernels[{}]", parts.kernels.size());
    KO_RETURN_IF_ERROR(only_keys(entry, {"name", "source"}, {}, where));
    KO_TRY(auto name, identifier(entry, "name", where));
    if (!entry["source"].is_string() || entry["source"].get<std::string>().empty()) return refused(where + ".source is not a text");
    if (!kernels.emplace(name, parts.kernels.size()).second) return refused(where + ".name is taken");
    parts.kernels.push_back({name, entry["source"].get<std::string>(), {}});
  }
  std::map<std::string, std::vector<KernelParam>> signatures;
  for (const auto& entry : document["launches"]) {
    const auto where = fmt::format("launches[{}]", parts.launches.size());
    KO_RETURN_IF_ERROR(only_keys(entry, {"kernel", "args", "programs"}, {"warps", "stages"}, where));
    KO_TRY(auto kernel, identifier(entry, "kernel", where));
    if (!kernels.count(kernel)) return refused(where + ".kernel is none of the answer's kernels");
    if (!entry["args"].is_array() || entry["args"].empty()) return refused(where + ".args is not a list with something in it");
    Launch launch;
    launch.kernel = kernel;
    std::vector<KernelParam> signature;
    for (const auto& argument : entry["args"]) {
      const auto known = argument.is_string() ? arguments.find(argument.get<std::string>()) : arguments.end();
      if (known == arguments.end())
        return refused(fmt::format("{} names a buffer, {}, that is neither the group's nor the answer's scratch", where,
                                   argument.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40)));
      if (std::count(launch.args.begin(), launch.args.end(), known->first)) return refused(where + " names a buffer twice");
      if (const auto output = written.find(known->first); output != written.end()) output->second = true;
      launch.args.push_back(known->first);
      signature.push_back(known->second);
      signature.back().name = fmt::format("p{}", signature.size() - 1);
    }
    KO_TRY(launch.programs, whole(entry, "programs", 1, kMostPrograms - 1, where));
    launch.warps = 4;
    launch.stages = 1;
    if (entry.contains("warps")) {
      KO_TRY(const int64_t warps, whole(entry, "warps", 1, 32, where));
      if (warps & (warps - 1)) return refused(where + ".warps is not a power of two");
      launch.warps = static_cast<int>(warps);
    }
    if (entry.contains("stages")) {
      KO_TRY(const int64_t stages, whole(entry, "stages", 1, 8, where));
      launch.stages = static_cast<int>(stages);
    }
    const auto [other, fresh] = signatures.try_emplace(kernel, signature);
    const auto same = [](const KernelParam& a, const KernelParam& b) { return a.dtype == b.dtype && a.role == b.role; };
    if (!fresh && !std::equal(signature.begin(), signature.end(), other->second.begin(), other->second.end(), same))
      return refused(where + " passes other types or roles than an earlier launch of the same kernel");
    parts.launches.push_back(std::move(launch));
  }
  for (auto& kernel : parts.kernels) {
    if (!signatures.count(kernel.name)) return refused("kernel " + kernel.name + " is never launched");
    kernel.params = signatures[kernel.name];
  }
  for (const auto& [name, is_written] : written)
    if (!is_written) return refused("no launch is given the result " + name);
  parts.plan = {{"written_by", "language model"}, {"strategy", strategy}};
  return Candidate(std::move(parts));
}

}  // namespace kernelopt
