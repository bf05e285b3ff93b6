// Proofs about index sets under shared outer loops. Internal to fusion/.
#pragma once

#include <map>
#include <set>
#include <string>

#include "kernelopt/ir/expr.h"

namespace kernelopt {

// True when it is proven that, in every outer iteration, every element that `access` touches is among those that `store`
// touches in the same outer iteration, and that `store` touches each element once over all iterations. `store_inner` are
// the inner variables of `store`; those of `access` have other names. `extents` bounds every variable; an unbounded one
// makes the answer false.
bool region_covers(const Expr& store, const Expr& access, const std::set<std::string>& outer,
                   const std::set<std::string>& store_inner, const std::map<std::string, int64_t>& extents);

// True when it is proven that two accesses touch, in every outer iteration, the same elements up to a distance that is the
// same in all of them (neighbouring columns of one matrix), and that every outer variable moves the region. The inner
// variables of both are given.
bool parallel_regions(const Expr& first, const Expr& second, const std::set<std::string>& outer,
                      const std::set<std::string>& first_inner, const std::set<std::string>& second_inner,
                      const std::map<std::string, int64_t>& extents);

}  // namespace kernelopt
