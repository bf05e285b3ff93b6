// Small programs for tests, written op by op.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernelopt/fusion/group.h"
#include "kernelopt/ir/program.h"

namespace kernelopt::testing {

using nlohmann::json;

inline json add(std::vector<json> terms) { return {{"add", terms}}; }
inline json times(int64_t factor, const json& x) { return {{"mul", {factor, x}}}; }

// One body; ids are given in order.
class BodyBuilder {
 public:
  explicit BodyBuilder(const std::string& name) { body_ = {{"name", name}, {"vars", json::array()}, {"ops", json::array()}}; }
  BodyBuilder& iter(const std::string& var, int64_t extent) { return loop(var, extent, "iter"); }
  BodyBuilder& reduce(const std::string& var, int64_t extent) { return loop(var, extent, "reduce"); }
  int load(const std::string& buffer, json index) { return op({{"op", "load"}, {"buffer", buffer}, {"index", index}}); }
  int constant(json value, const std::string& dtype) { return op({{"op", "constant"}, {"value", value}, {"dtype", dtype}}); }
  int index(json expr, const std::string& dtype = "int64") { return op({{"op", "index_expr"}, {"index", expr}, {"dtype", dtype}}); }
  int call(const std::string& name, std::vector<int> args) { return op({{"op", name}, {"args", args}}); }
  int cast(int value, const std::string& from, const std::string& to, bool compute = true) {
    return op({{"op", "to_dtype"}, {"args", {value}}, {"dtype", to}, {"src_dtype", from}, {"use_compute_types", compute}});
  }
  int reduction(const std::string& type, std::vector<int> args, const std::string& dtype = "float32", const std::string& from = "float32") {
    return op({{"op", "reduction"}, {"type", type}, {"dtype", dtype}, {"src_dtype", from}, {"args", args}});
  }
  int get(int from, int which) { return op({{"op", "get"}, {"args", {from}}, {"which", which}}); }
  // A load under a mask.
  int masked_load(int mask, const std::string& buffer, json index, json other) {
    const int inner = next_++;
    json block{{"ops", {{{"id", inner}, {"op", "load"}, {"buffer", buffer}, {"index", index}}}}, {"results", {inner}}};
    return op({{"op", "masked"}, {"args", {mask}}, {"value", other}, {"block", block}});
  }
  void indirect(int value, json size, const std::string& symbol, bool wrap, bool check = true) {
    body_["ops"].push_back({{"id", -1}, {"op", "indirect"}, {"args", {value}}, {"size", size}, {"check", check}, {"wrap_neg", wrap}, {"symbol", symbol}});
  }
  // An inclusive scan with one value and one combining op.
  int scan(int value, const std::string& combine, const std::string& dtype = "float32") {
    const int a = next_++, b = next_++, r = next_++;
    json block{{"params", {a, b}}, {"ops", {{{"id", r}, {"op", combine}, {"args", {a, b}}}}}, {"results", {r}}};
    const int id = op({{"op", "scan"}, {"dtypes", {dtype}}, {"args", {value}}, {"block", block}});
    return get(id, 0);
  }
  BodyBuilder& store(const std::string& buffer, json index, int value, bool atomic = false) {
    json entry{{"id", -1}, {"op", "store"}, {"buffer", buffer}, {"index", index}, {"args", {value}}, {"mode", nullptr}};
    if (atomic) entry["mode"] = "atomic_add";
    body_["ops"].push_back(entry);
    return *this;
  }
  BodyBuilder& store_reduction(const std::string& buffer, json index, int value) {
    body_["ops"].push_back({{"id", -1}, {"op", "store_reduction"}, {"buffer", buffer}, {"index", index}, {"args", {value}}});
    return *this;
  }
  const json& body() const { return body_; }

 private:
  BodyBuilder& loop(const std::string& var, int64_t extent, const char* kind) {
    body_["vars"].push_back({{"name", var}, {"extent", extent}, {"kind", kind}});
    return *this;
  }
  int op(json entry) {
    entry["id"] = next_;
    body_["ops"].push_back(std::move(entry));
    return next_++;
  }
  json body_;
  int next_ = 0;
};

// A program whose steps all belong to one group.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::string name) : name_(std::move(name)) {
    document_ = {{"format", "kernelopt.program"}, {"version", 1}, {"torch", "2.13.0"}, {"adapter", "2.13"}, {"device", "cpu"}, {"graph", 0},
                 {"inputs", json::array()}, {"outputs", json::array()}, {"buffers", json::object()}, {"steps", json::array()},
                 {"wrapper", ""}, {"kernels", json::array()}};
  }
  ProgramBuilder& input(const std::string& name, std::vector<int64_t> size, const std::string& dtype = "float32", bool output = false) {
    document_["inputs"].push_back(name);
    (output ? outputs_ : inputs_).push_back(name);
    return buffer(name, "input", size, dtype, output);
  }
  ProgramBuilder& output(const std::string& name, std::vector<int64_t> size, const std::string& dtype = "float32") {
    document_["outputs"].push_back(name);
    outputs_.push_back(name);
    return buffer(name, "computed", size, dtype, true);
  }
  ProgramBuilder& internal(const std::string& name, std::vector<int64_t> size, const std::string& dtype = "float32") {
    internals_.push_back(name);
    return buffer(name, "computed", size, dtype, false);
  }
  ProgramBuilder& step(const BodyBuilder& body) {
    document_["steps"].push_back({{"name", body.body()["name"]}, {"kind", "generated"}, {"reads", json::array()}, {"writes", json::array()},
                                  {"last_use", json::array()}, {"origins", json::array()}, {"refused", nullptr},
                                  {"bodies", json::array({body.body()})}, {"extern", nullptr}});
    return *this;
  }
  const std::string& name() const { return name_; }
  Result<Program> program() const {
    json document = document_;
    for (auto& step : document["steps"]) {
      json reads = json::array(), writes = json::array();
      collect(step["bodies"], reads, writes);
      step["reads"] = reads;
      step["writes"] = writes;
    }
    return read_program(document);
  }
  Group group() const {
    Group group;
    for (size_t i = 0; i < document_["steps"].size(); ++i) group.steps.push_back(static_cast<int>(i));
    group.digest = "test";
    for (const auto* list : {&inputs_, &outputs_, &internals_}) group.names.insert(group.names.end(), list->begin(), list->end());
    group.inputs = inputs_;
    group.outputs = outputs_;
    group.internals = internals_;
    return group;
  }

 private:
  ProgramBuilder& buffer(const std::string& name, const std::string& kind, const std::vector<int64_t>& size, const std::string& dtype, bool output) {
    std::vector<int64_t> stride(size.size(), 1);
    for (size_t i = size.size(); i-- > 1;) stride[i - 1] = stride[i] * size[i];
    document_["buffers"][name] = {{"kind", kind}, {"dtype", dtype}, {"size", size}, {"stride", stride}, {"offset", 0}, {"device", "cpu"},
                                  {"layout", "fixed"}, {"base", nullptr}, {"mutates", nullptr}, {"is_output", output}, {"removable", !output}, {"value", nullptr}};
    return *this;
  }
  static void collect(const json& value, json& reads, json& writes) {
    if (value.is_object()) {
      if (value.contains("op") && value.contains("buffer")) {
        json& list = value["op"] == "load" ? reads : writes;
        if (std::find(list.begin(), list.end(), value["buffer"]) == list.end()) list.push_back(value["buffer"]);
      }
      for (const auto& [key, inner] : value.items()) collect(inner, reads, writes);
    } else if (value.is_array()) {
      for (const auto& inner : value) collect(inner, reads, writes);
    }
  }
  std::string name_;
  json document_;
  std::vector<std::string> inputs_, outputs_, internals_;
};

}  // namespace kernelopt::testing
