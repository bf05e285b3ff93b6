// Group: steps of one program that one candidate replaces together: generated ones, pools and scans of the library, or a library call whose
// loops are known (DESIGN.md section 4).
#pragma once

#include <string>
#include <vector>

#include "kernelopt/ir/program.h"

namespace kernelopt {

struct Group {
  int graph = 0;
  bool challenge = false;                  // holds a library call that is challenged
  std::vector<int> steps;                  // indices into Program::steps, ascending
  std::string digest;                      // from the bridge; empty until described
  std::vector<std::string> step_digests;   // of each member alone, same order as steps
  std::vector<std::string> names;          // real name of canonical buffer b0, b1, …
  std::vector<std::string> inputs;         // real names read from outside the group, first-use order
  std::vector<std::string> outputs;        // real names written and needed outside the group, first-use order
  std::vector<std::string> internals;      // real names written and needed only inside: never reach memory unless a plan says so
};

// Why two neighbours were not merged; shown by the report.
struct MergeRefusal {
  int graph;
  std::string left, right;  // step names
  std::string reason;
};

// A step or set of steps that stays the compiler's, with the reason ("op sort", …).
struct NotOptimizable {
  int graph;
  std::string step;
  std::string reason;
};

struct Decomposition {
  std::vector<Group> groups;
  std::vector<MergeRefusal> refusals;
  std::vector<NotOptimizable> kept;
};

// Merges adjacent generated steps of a program greedily while the union is convex (no path leaves it through an extern
// step and returns) and a kernel plan can express it (shared outer loops with aligned buffer regions, or one is read
// only elementwise by the other). Each set of `challenges` (ascending, disjoint, a library call in each) is a group of its own, and
// its members join no other. Pure.
Decomposition decompose(const Program& program, const std::vector<std::vector<int>>& challenges = {});

// The bodies of a group in program order.
std::vector<const Body*> group_bodies(const Program& program, const Group& group);

// Index of the first group with an equal digest, for each group (equal groups are optimized once). Groups must have been
// described by the bridge.
std::vector<int> representatives(const std::vector<Group>& groups);

// Compulsory traffic and work of a group: each external buffer element that is touched counted once.
struct Work {
  int64_t bytes_read = 0, bytes_written = 0;
  double operations = 0;  // fp32-equivalent operations, transcendental functions weighted
};
Work group_work(const Program& program, const Group& group);

}  // namespace kernelopt
