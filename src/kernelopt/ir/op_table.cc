#include "kernelopt/ir/op_table.h"

#include <string_view>
#include <unordered_map>

#include "kernelopt/base/check.h"

namespace kernelopt {
namespace {

struct OpRow {
  const char* name;
  int arity;
  TypeRule rule;
  OpClass op_class;
};

constexpr OpRow kOps[] = {
#define KO_X(name, text, arity, rule, op_class) {text, arity, TypeRule::rule, OpClass::op_class},
    KERNELOPT_OPS(KO_X)
#undef KO_X
};

struct ReductionRow {
  const char* name;
  int results;
};

constexpr ReductionRow kReductions[] = {
#define KO_X(name, text, results) {text, results},
    KERNELOPT_REDUCTIONS(KO_X)
#undef KO_X
};

const OpRow& row(OpCode code) {
  const auto at = static_cast<size_t>(code);
  KO_CHECK(at < std::size(kOps), "op code outside the table");
  return kOps[at];
}

const ReductionRow& row(ReductionKind kind) {
  const auto at = static_cast<size_t>(kind);
  KO_CHECK(at < std::size(kReductions), "reduction kind outside the table");
  return kReductions[at];
}

}  // namespace

const char* op_name(OpCode code) { return row(code).name; }
int op_arity(OpCode code) { return row(code).arity; }
TypeRule op_type_rule(OpCode code) { return row(code).rule; }
OpClass op_class(OpCode code) { return row(code).op_class; }

std::optional<OpCode> parse_op(std::string_view name) {
  static const auto* index = [] {
    auto* map = new std::unordered_map<std::string_view, OpCode>;
    for (size_t i = 0; i < std::size(kOps); ++i) map->emplace(kOps[i].name, static_cast<OpCode>(i));
    return map;
  }();
  const auto found = index->find(name);
  if (found == index->end()) return std::nullopt;
  return found->second;
}

const char* reduction_name(ReductionKind kind) { return row(kind).name; }
int reduction_results(ReductionKind kind) { return row(kind).results; }

std::optional<ReductionKind> parse_reduction(std::string_view name) {
  for (size_t i = 0; i < std::size(kReductions); ++i)
    if (name == kReductions[i].name) return static_cast<ReductionKind>(i);
  return std::nullopt;
}

}  // namespace kernelopt
