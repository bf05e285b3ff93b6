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

nlohmann::json digested(const CandidateParts& parts) {
  nlohmann::json document;
  document["language"] = parts.language;
  document["group"] = parts.group;
  document["kernels"] = nlohmann::json::array();
  for (const auto& kernel : parts.kernels) {
    nlohmann::json params = nlohmann::json::array();
    for (const auto& param : kernel.params) params.push_back({{"name", param.name}, {"dtype", dtype_name(param.dtype)}, {"role", role_name(param.role)}});
    document["kernels"].push_back({{"name", kernel.name}, {"source", kernel.source}, {"params", params}});
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
  for (const auto& scratch : parts.scratch)
    document["scratch"].push_back({{"name", scratch.name}, {"dtype", dtype_name(scratch.dtype)}, {"elements", scratch.elements}, {"zeroed", scratch.zeroed}});
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

}  // namespace kernelopt
