#include "kernelopt/gates/observation.h"

#include <cmath>
#include <limits>

#include "kernelopt/gates/tolerances.h"

namespace kernelopt {
namespace {

using nlohmann::json;

// Non-finite numbers travel as strings (docs/formats.md).
std::optional<double> as_number(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

json number_to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

// Reads fields of one object; the first field of the wrong type is kept as the error.
class Fields {
 public:
  Fields(const json& object, const char* what) : object_(object), what_(what) {
    if (!object.is_object()) fail("is not an object");
  }

  bool boolean(const char* name) {
    const json* field = find(name);
    if (!field) return false;
    if (!field->is_boolean()) fail(std::string(name) + " is not a bool");
    return field->is_boolean() && field->get<bool>();
  }
  int64_t integer(const char* name) {
    const json* field = find(name);
    if (!field) return 0;
    if (!field->is_number_integer()) fail(std::string(name) + " is not an integer");
    return field->is_number_integer() ? field->get<int64_t>() : 0;
  }
  double number(const char* name) {
    const json* field = find(name);
    if (!field) return 0;
    const auto value = as_number(*field);
    if (!value) fail(std::string(name) + " is not a number");
    return value.value_or(0);
  }
  std::optional<double> optional_number(const char* name) {
    if (!object_.is_object() || !object_.contains(name) || object_[name].is_null()) return std::nullopt;
    return number(name);
  }
  std::string text(const char* name) {
    const json* field = find(name);
    if (!field) return {};
    if (!field->is_string()) fail(std::string(name) + " is not a string");
    return field->is_string() ? field->get<std::string>() : std::string();
  }
  std::vector<std::string> texts(const char* name) {
    std::vector<std::string> values;
    for (const json& item : list(name)) {
      if (!item.is_string()) fail(std::string(name) + " holds something other than strings");
      else values.push_back(item.get<std::string>());
    }
    return values;
  }
  const json& list(const char* name) {
    static const json kEmpty = json::array();
    const json* field = find(name);
    if (!field) return kEmpty;
    if (!field->is_array()) fail(std::string(name) + " is not a list");
    return field->is_array() ? *field : kEmpty;
  }
  bool has(const char* name) const { return object_.is_object() && object_.contains(name) && !object_[name].is_null(); }
  Status status() const { return error_ ? Status(*error_) : ok_status(); }

 private:
  const json* find(const char* name) {
    if (has(name)) return &object_[name];
    fail(std::string(name) + " is missing");
    return nullptr;
  }
  void fail(const std::string& message) {
    if (!error_) error_ = Error(ErrorCode::kInternal, std::string(what_) + ": " + message);
  }

  const json& object_;
  const char* what_;
  std::optional<Error> error_;
};

}  // namespace

nlohmann::json tolerances_request() {
  json list = json::array();
  for (double value : {tolerance::kGroup, tolerance::kModel, tolerance::kHalf})
    list.push_back({{"rtol", value}, {"atol", value}, {"rms_scaled", true}, {"error_factor", tolerance::kErrorFactor}});
  return list;
}

Result<LeafComparison> read_leaf_comparison(const json& leaf) {
  Fields fields(leaf, "leaf comparison");
  LeafComparison result;
  result.path = fields.text("path");
  const std::string kind = fields.text("kind");
  result.equal = fields.boolean("equal");
  KO_RETURN_IF_ERROR(fields.status());
  if (kind != "tensor" && kind != "value") return Error(ErrorCode::kInternal, "leaf comparison: kind " + kind);
  result.is_tensor = kind == "tensor";
  if (!result.is_tensor) {
    result.shape_equal = result.dtype_equal = result.nonfinite_equal = result.equal;
    return result;
  }

  if (auto dtype = parse_dtype(fields.text("dtype")); dtype.ok()) result.dtype = *dtype;
  result.shape_equal = fields.boolean("shape_equal");
  result.dtype_equal = fields.boolean("dtype_equal");
  if (fields.has("stride_equal")) result.stride_equal = fields.boolean("stride_equal");
  KO_RETURN_IF_ERROR(fields.status());
  // Nothing else can be said of tensors of different shape or type.
  if (!result.shape_equal || !result.dtype_equal) return result;

  result.nonfinite_equal = fields.boolean("nonfinite_equal");
  result.elements = fields.integer("elements");
  result.max_abs = fields.optional_number("max_abs").value_or(0);
  result.max_rel = fields.optional_number("max_rel").value_or(0);
  result.d_opt = fields.optional_number("d_opt");
  result.d_ref = fields.optional_number("d_ref");
  result.d_opt_rows = fields.optional_number("d_opt_rows");
  result.d_ref_rows = fields.optional_number("d_ref_rows");
  result.rms = fields.optional_number("rms").value_or(0);
  result.ref_error = fields.optional_number("ref_error").value_or(0);
  for (const json& count : fields.list("violations")) {
    if (!count.is_number_integer()) return Error(ErrorCode::kInternal, "leaf comparison: violations are not integers");
    result.violations.push_back(count.get<int64_t>());
  }
  KO_RETURN_IF_ERROR(fields.status());
  if (result.violations.size() != tolerances_request().size())
    return Error(ErrorCode::kInternal, "leaf comparison: violations do not answer the tolerances asked for");
  return result;
}

json leaf_to_json(const LeafComparison& leaf) {
  json result = {{"path", leaf.path},
                 {"kind", leaf.is_tensor ? "tensor" : "value"},
                 {"equal", leaf.equal},
                 {"shape_equal", leaf.shape_equal},
                 {"dtype_equal", leaf.dtype_equal},
                 {"stride_equal", leaf.stride_equal},
                 {"nonfinite_equal", leaf.nonfinite_equal},
                 {"elements", leaf.elements},
                 {"max_abs", number_to_json(leaf.max_abs)},
                 {"max_rel", number_to_json(leaf.max_rel)},
                 {"violations", leaf.violations},
                 {"rms", number_to_json(leaf.rms)},
                 {"ref_error", number_to_json(leaf.ref_error)}};
  if (leaf.dtype) result["dtype"] = dtype_name(*leaf.dtype);
  const std::pair<const char*, std::optional<double>> distances[] = {
      {"d_opt", leaf.d_opt}, {"d_ref", leaf.d_ref}, {"d_opt_rows", leaf.d_opt_rows}, {"d_ref_rows", leaf.d_ref_rows}};
  for (const auto& [name, value] : distances)
    if (value) result[name] = number_to_json(*value);
  return result;
}

Result<Comparison> read_comparison(const json& reply) {
  Fields fields(reply, "comparison");
  Comparison comparison;
  comparison.structure_equal = fields.boolean("structure_equal");
  const json& leaves = fields.list("leaves");
  KO_RETURN_IF_ERROR(fields.status());
  for (const json& leaf : leaves) {
    KO_TRY(LeafComparison read, read_leaf_comparison(leaf));
    comparison.leaves.push_back(std::move(read));
  }
  return comparison;
}

Result<CompileReport> read_compile_report(const json& entry) {
  if (entry.is_object() && entry.contains("error")) {
    const json& error = entry["error"];
    const std::string kind = error.value("kind", "internal");
    std::string message = error.value("message", "no message");
    if (const std::string detail = error.value("detail", ""); !detail.empty()) message += "\n" + detail;
    return Error(kind == "candidate" ? ErrorCode::kCandidate : ErrorCode::kEnvironment, message);
  }
  Fields fields(entry, "compile report");
  CompileReport report;
  report.library = fields.text("library");
  report.seconds = Seconds(fields.number("seconds"));
  report.symbols = fields.texts("symbols");
  KO_RETURN_IF_ERROR(fields.status());
  if (!fields.has("kernels")) return report;
  const json& kernels = fields.list("kernels");
  KO_RETURN_IF_ERROR(fields.status());
  for (const json& item : kernels) {
    Fields facts(item, "compile report: kernels");
    LaunchResources launch;
    launch.kernel = facts.text("name");
    launch.programs = facts.integer("programs");
    launch.warps = static_cast<int>(facts.integer("warps"));
    launch.cooperative = facts.boolean("cooperative");
    launch.registers = facts.integer("registers");
    launch.stack_bytes = facts.integer("stack_bytes");
    launch.shared_bytes = facts.integer("shared_bytes");
    KO_RETURN_IF_ERROR(facts.status());
    report.launches.push_back(std::move(launch));
  }
  return report;
}

Result<GroupRun> read_group_run(uint64_t seed, std::string input_case, int runs, const json& run_group,
                                const json& compare_group) {
  Fields fields(run_group, "run_group");
  GroupRun run;
  run.seed = seed;
  run.input_case = std::move(input_case);
  run.runs = runs;
  run.inputs_unchanged = fields.boolean("inputs_unchanged");
  run.guards_intact = fields.boolean("guards_intact");
  run.deterministic = fields.boolean("deterministic");
  run.unwritten = fields.integer("unwritten");
  KO_RETURN_IF_ERROR(fields.status());
  KO_TRY(run.comparison, read_comparison(compare_group));
  return run;
}

Result<std::vector<ReplacedGroup>> read_replaced(const json& stitch_reply) {
  Fields fields(stitch_reply, "stitch");
  const json& list = fields.list("replaced");
  KO_RETURN_IF_ERROR(fields.status());
  std::vector<ReplacedGroup> replaced;
  for (const json& item : list) {
    Fields entry(item, "stitch: replaced");
    ReplacedGroup group;
    group.graph = static_cast<int>(entry.integer("graph"));
    group.digest = entry.text("digest");
    group.steps = entry.texts("steps");
    KO_RETURN_IF_ERROR(entry.status());
    replaced.push_back(std::move(group));
  }
  return replaced;
}

Result<ReferenceFacts> read_reference_facts(const json& reply) {
  Fields fields(reply, "reference_model");
  ReferenceFacts facts;
  facts.deterministic = fields.boolean("deterministic");
  facts.reasons = fields.texts("reasons");
  facts.constant_output = fields.boolean("constant_output");
  facts.independent_of_inputs = fields.boolean("independent_of_inputs");
  KO_RETURN_IF_ERROR(fields.status());
  return facts;
}

}  // namespace kernelopt
