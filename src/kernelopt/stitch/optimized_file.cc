#include "kernelopt/stitch/optimized_file.h"

#include <fmt/format.h>

namespace kernelopt {

using nlohmann::json;

namespace {

json kernels_document(const SetContext& context, const std::vector<const Candidate*>& candidates) {
  json groups = json::array();
  for (const auto* candidate : candidates) {
    const auto& group = candidate->parts().group;
    const auto steps = context.step_digests.find(group);
    KO_CHECK(steps != context.step_digests.end(), "a candidate of an unknown group");
    groups.push_back({{"digest", group}, {"steps", steps->second}, {"candidate", candidate->to_json()}});
  }
  return {{"format", "kernelopt.kernels"},
          {"version", 1},
          {"torch", context.torch},
          {"mode", context.mode},
          {"fingerprint", context.fingerprint},
          {"groups", groups}};
}

// Defines `Model` and, where there are any, get_inputs and get_init_inputs.
std::string model_source(const ModelOrigin& model) {
  if (model.file.empty())
    return fmt::format(R"(
import importlib as _importlib


Model = type(getattr(_importlib.import_module({}), {})()[0])
)",
                       python_literal(model.module), python_literal(model.function));
  return fmt::format(R"(
import importlib.util as _importlib_util
import os as _os
import sys as _sys


def _load_model_file(name):
    # The same file under the same name each time, so that pickles and copies find their classes.
    path = _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), name)
    key = "kernelopt_model_" + _os.path.abspath(path).encode().hex()
    if key not in _sys.modules:
        spec = _importlib_util.spec_from_file_location(key, path)
        module = _importlib_util.module_from_spec(spec)
        _sys.modules[key] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del _sys.modules[key]
            raise
    return _sys.modules[key]


_model_file = _load_model_file({})
Model = _model_file.Model
for _name in ("get_inputs", "get_init_inputs"):
    if hasattr(_model_file, _name):
        globals()[_name] = getattr(_model_file, _name)
)",
                     python_literal(model.file));
}

std::string header(const std::string& verdict) {
  std::string line = verdict;
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  return fmt::format("# Written by KernelOPT: {}\n# ModelNew takes Model's arguments and keeps its state_dict.\n\n", line);
}

}  // namespace

std::string python_literal(const std::string& text) {
  // A JSON string is a Python string literal, as long as it is ASCII.
  return json(text).dump(-1, ' ', true, json::error_handler_t::replace);
}

json trial_kernels(const SetContext& context, const std::vector<const Candidate*>& candidates) {
  return kernels_document(context, candidates);
}

json released_kernels(const SetContext& context, const ReleaseSet& set) {
  std::vector<const Candidate*> candidates;
  for (const auto& kernel : set.kernels()) candidates.push_back(&kernel.candidate());
  return kernels_document(context, candidates);
}

std::string optimized_source(const ModelOrigin& model, const std::string& runtime, const json& kernels,
                             const std::string& verdict) {
  return header(verdict) + runtime + "\n\n# ---- the model and its kernels\n" + model_source(model) +
         "\nimport json as _json\n\n_KERNELS = _json.loads(" +
         python_literal(kernels.dump(-1, ' ', true, json::error_handler_t::replace)) +
         ")\n\nModelNew = kernelopt_model(Model, _KERNELS)\n";
}

std::string plain_source(const ModelOrigin& model, const std::string& mode, const std::string& outcome,
                         const std::string& verdict) {
  const bool eager = mode == "eager";
  const auto status = fmt::format("{{\"state\": {}, \"reason\": {}, \"replaced\": [], \"groups\": 0}}",
                                  python_literal(eager ? "eager" : "torch.compile"), python_literal(outcome + ": " + verdict));
  std::string text = header(verdict) + "import torch\n" + model_source(model);
  if (eager)
    return text + fmt::format(R"(

class ModelNew(Model):
    __doc__ = Model.__doc__
    kernelopt_status = {}
)",
                              status);
  // The class is traced as Model's own forward; a compiled form belongs to an instance and is not copied with it.
  return text + fmt::format(R"(
import weakref as _weakref

_COMPILED = _weakref.WeakKeyDictionary()


class ModelNew(Model):
    __doc__ = Model.__doc__
    kernelopt_status = {}

    @torch.compiler.disable
    def forward(self, *args, **kwargs):
        if self not in _COMPILED:
            _COMPILED[self] = torch.compile(Model.forward, mode={})
        return _COMPILED[self](self, *args, **kwargs)
)",
                            status, mode == "default" ? "None" : python_literal(mode));
}

}  // namespace kernelopt
