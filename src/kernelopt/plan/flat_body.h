// FlatBody: a loop body without nested masked blocks, the form in which plans rewrite and printers print. Every op of a
// masked block carries the mask as its predicate; the block's result is selected by a `where` (DESIGN.md section 5).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernelopt/ir/body.h"

namespace kernelopt {

struct FlatOp {
  Op op;  // blocks empty, but for the combine function of a scan
  // Boolean value: where it is false, a load must not touch memory and its result is unspecified.
  ValueId predicate = kNoValue;
  bool reverse = false;  // kScan: from the loop's last iteration to its first
};

struct FlatBody {
  std::string name;
  std::vector<LoopVar> vars;
  std::vector<FlatOp> ops;
  int next_id = 0;

  ValueId fresh_id() { return next_id++; }
  const LoopVar* find_var(const std::string& var) const;
  std::map<std::string, int64_t> extents() const;
  int64_t reduce_elements() const;
  bool has_reduction() const;  // an op kReduction
  bool has_scan() const;
  bool reads(const std::string& buffer) const;
  bool writes(const std::string& buffer) const;
  const FlatOp* definition(ValueId id) const;
};

FlatBody flatten(const Body& body);

// Replaces loop variables in every index and size, then simplifies with the body's extents.
void substitute_vars(FlatBody& body, const std::map<std::string, Expr>& replacement);
// Loops of one iteration vanish.
void drop_unit_vars(FlatBody& body);
// Renames a variable everywhere.
void rename_var(FlatBody& body, std::string from, std::string to);
// var -> outer * inner_extent + inner, in place of var; false where inner_extent does not divide its extent. The new
// variables are var + "h" and var + "l".
bool split_var(FlatBody& body, const std::string& var, int64_t inner_extent);
// Appends the ops of `from`, with fresh ids and indirect symbols; returns the new id of each old one.
std::map<ValueId, ValueId> append_ops(FlatBody& body, const std::vector<FlatOp>& from, const std::string& symbol_suffix);
// Equal pure ops become one; ops without effect or user vanish.
void eliminate_common(FlatBody& body);
void eliminate_dead(FlatBody& body);
// Replaces uses of one value by another, in arguments and predicates.
void replace_value(FlatBody& body, ValueId from, ValueId to);
bool has_effect(const Op& op);
// Values that depend on a reduction of the body (computed after its loops).
std::vector<bool> after_reduction(const FlatBody& body);

}  // namespace kernelopt
