// What ships: the kernel set document and optimized.py (DESIGN.md section 9, docs/formats.md). Only kernels sealed by all four
// gates get in: the optimized form takes a ReleaseSet, which nothing else can make.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/fusion/group.h"
#include "kernelopt/gates/outcome.h"

namespace kernelopt {

// What a kernel set says beside its kernels.
struct SetContext {
  std::string torch;            // "2.13"
  nlohmann::json fingerprint;   // as the worker gave it
  std::string mode;             // the torch.compile mode whose program is stitched
  std::map<std::string, std::vector<std::string>> step_digests;  // of each group's members, by group digest
};

// A `kernelopt.kernels` document for trying candidates: it goes to the worker, never to the user.
nlohmann::json trial_kernels(const SetContext& context, const std::vector<const Candidate*>& candidates);
// The same of released kernels.
nlohmann::json released_kernels(const SetContext& context, const ReleaseSet& set);

// Where the user's model comes from, as optimized.py sees it.
struct ModelOrigin {
  std::string file;                // next to optimized.py; empty for module:function
  std::string module, function;    // otherwise
};

// optimized.py with stitched kernels. `runtime` is the worker's runtime_source.
std::string optimized_source(const ModelOrigin& model, const std::string& runtime, const nlohmann::json& kernels,
                             const std::string& verdict);
// optimized.py that ships a compiler mode, or eager, without kernels.
std::string plain_source(const ModelOrigin& model, const std::string& mode, const std::string& outcome,
                         const std::string& verdict);

// A Python string literal.
std::string python_literal(const std::string& text);

}  // namespace kernelopt
