#include "kernelopt/codegen/candidate.h"

#include "kernelopt/base/digest.h"

namespace kernelopt {
namespace {

const char* role_name(ParamRole role) {
  switch (role) {
    case ParamRole::kIn: return "in";
    case ParamRole::kOut: return "out";
    case ParamRole::kInOut: return "inout";
    case ParamRole::kScratch: return "scratch";
  }
  return "in";
}

Result<ParamRole> parse_role(const std::string& text) {
  if (text == "in") return ParamRole::kIn;
  if (text == "out") return ParamRole::kOut;
  if (text == "inout") return ParamRole::kInOut;
  if (text == "scratch") return ParamRole::kScratch;
  return Error(ErrorCode::kBadInput, "unknown role " + text);
}

nlohmann::json digested(const CandidateParts& parts) {
  nlohmann::json document;
  document["language"] = parts.language;
  document["group"] = parts.group;
  document["kernels"] = nlohmann::json::array();
  for (const auto& kernel : parts.kernels) {
    nlohmann::json params = nlohmann::json::array();
    for (const auto& param : kernel.params) params.push_back({{"name", param.name}, {"dtype", dtype_name(param.dtype)}, {"role", role_name(param.role)}});
    document["kernels"].push_back({{"name", kernel.name}, {"params", params}});
    if (kernel.library) document["kernels"].back().update({{"call", kernel.library->call}, {"numbers", kernel.library->numbers}});
    else document["kernels"].back()["source"] = kernel.source;
  }
  document["launches"] = nlohmann::json::array();
  for (const auto& launch : parts.launches) {
    document["launches"].push_back({{"kernel", launch.kernel}, {"args", launch.args}});
    if (launch.programs == 0) continue;
    document["launches"].back()["programs"] = launch.programs;
    document["launches"].back()["warps"] = launch.warps;
    document["launches"].back()["stages"] = launch.stages;
    if (launch.cooperative) document["launches"].back()["cooperative"] = true;
  }
  document["scratch"] = nlohmann::json::array();
  for (const auto& scratch : parts.scratch) {
    document["scratch"].push_back({{"name", scratch.name}, {"dtype", dtype_name(scratch.dtype)}, {"elements", scratch.elements}, {"zeroed", scratch.zeroed}});
    if (scratch.returned) document["scratch"].back()["returned"] = true;
  }
  return document;
}

}  // namespace

Candidate::Candidate(CandidateParts parts) : parts_(std::move(parts)) { digest_ = sha256_hex(digested(parts_).dump()); }

nlohmann::json Candidate::to_json() const {
  nlohmann::json document = digested(parts_);
  document["format"] = "kernelopt.candidate";
  document["version"] = 1;
  document["digest"] = digest_;
  document["threads"] = parts_.threads;
  document["plan"] = parts_.plan;
  document["formats"] = parts_.formats;
  return document;
}

Result<Candidate> read_candidate(const nlohmann::json& document) {
  try {
    CandidateParts parts;
    parts.language = document.at("language");
    parts.group = document.at("group");
    for (const auto& kernel : document.at("kernels")) {
      KernelSource source;
      source.name = kernel.at("name");
      if (!kernel.contains("call")) source.source = kernel.at("source");
      else source.library = LibraryCall{kernel.at("call"), kernel.at("numbers")};
      for (const auto& param : kernel.at("params")) {
        KO_TRY(auto dtype, parse_dtype(param.at("dtype").get<std::string>()));
        KO_TRY(auto role, parse_role(param.at("role")));
        source.params.push_back({param.at("name"), dtype, role});
      }
      parts.kernels.push_back(std::move(source));
    }
    for (const auto& entry : document.at("launches")) {
      Launch launch;
      launch.kernel = entry.at("kernel");
      launch.args = entry.at("args").get<std::vector<std::string>>();
      launch.programs = entry.value("programs", int64_t{0});
      launch.warps = entry.value("warps", 0);
      launch.stages = entry.value("stages", 0);
      launch.cooperative = entry.value("cooperative", false);
      parts.launches.push_back(std::move(launch));
    }
    for (const auto& scratch : document.at("scratch")) {
      KO_TRY(auto dtype, parse_dtype(scratch.at("dtype").get<std::string>()));
      parts.scratch.push_back({scratch.at("name"), dtype, scratch.at("elements"), scratch.at("zeroed"), scratch.value("returned", false)});
    }
    parts.threads = document.value("threads", 1);
    parts.plan = document.value("plan", nlohmann::json(nullptr));
    parts.formats = document.value("formats", std::vector<std::string>());
    return Candidate(std::move(parts));
  } catch (const nlohmann::json::exception& error) {
    return Error(ErrorCode::kBadInput, std::string("malformed candidate: ") + error.what());
  }
}

}  // namespace kernelopt
