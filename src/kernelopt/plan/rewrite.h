// Rewrites of a group's bodies: recomputing instead of storing, other reduction algorithms, split reductions. Each is
// value-preserving up to the order of floating point operations; one that does not apply is kUnsupported with the reason.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernelopt/fusion/group.h"
#include "kernelopt/plan/flat_body.h"
#include "kernelopt/plan/kernel_plan.h"

namespace kernelopt {

// Most ops that recomputing one buffer in all its readers may add.
inline constexpr size_t kMaxInlinedOps = 600;

struct WorkBuffer {
  DType dtype = DType::kFloat32;
  int64_t elements = 0;   // reachable storage
  bool external = false;  // visible outside the group
  bool temporary = false;  // made by a rewrite
};

struct WorkGroup {
  std::vector<FlatBody> bodies;  // program order
  std::map<std::string, WorkBuffer> buffers;
  // Names that share storage: name -> root; only where it differs.
  std::map<std::string, std::string> storage_root;

  const FlatBody* find(const std::string& name) const;
  // Index of the only body that writes the buffer; nullopt where there are none or several.
  std::optional<size_t> writer(const std::string& buffer) const;
  std::vector<size_t> readers(const std::string& buffer) const;
};

// Flattens the group's bodies; names are made unique.
WorkGroup make_work_group(const Program& program, const Group& group);
Status apply_rewrite(WorkGroup& work, const Rewrite& rewrite);
// Removes stores to internal buffers that nobody reads, and bodies that became empty.
void eliminate_dead_stores(WorkGroup& work);
Result<WorkGroup> rewritten(const Program& program, const Group& group, const std::vector<Rewrite>& rewrites);

// The variables of a store whose index is a mixed-radix number in them, solved for a given index:
// var -> expression; nullopt where the store's index is not of that form.
std::optional<std::map<std::string, Expr>> solve_index(const Expr& stored, const std::vector<LoopVar>& vars, const Expr& loaded,
                                                       const std::map<std::string, int64_t>& loaded_extents);
// Structural text of a value, loads included: equal texts are equal values under equal variable names.
std::string value_text(const FlatBody& body, ValueId id);

}  // namespace kernelopt
