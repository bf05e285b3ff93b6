// Prints the work of one shared iteration (or one tile of them) of a nest: its phases in order.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernelopt/codegen/cpp/values.h"

namespace kernelopt::cpp {

// How a buffer is addressed in the generated function.
struct BufferName {
  std::string pointer;  // parameter, scratch or local array; for registers the stem of the variables
};

struct KernelText {
  const LoweredKernel* kernel = nullptr;
  std::map<std::string, BufferName> names;
  PreludeNeeds needs;
  bool may_fail = false;      // an index is checked
  bool streams = false;       // non-temporal stores were printed
  int next_value = 0;         // for unique variable names
};

// The code that is being printed: which copies of each statement exist.
struct Instance {
  size_t copies = 1;     // vectors side by side
  int tail = 0;          // lanes of the last copy; 0: all
  bool interior = false; // masks are known to hold
  // Copies usually lie one vector further along the lanes' loop; in a square tile they lie along this loop instead, one
  // element apart, and `tail` is that of every copy.
  std::string along;

  bool has_tail(size_t copy) const { return tail > 0 && (!along.empty() || copy + 1 == copies); }
};

class NestPrinter {
 public:
  NestPrinter(KernelText& text, const LoweredNest& nest, size_t number) : text_(text), nest_(nest), number_(number) {}

  // All phases, for the given instance (copies and tail matter for VectorAxis::kShared only).
  Result<std::string> print(const Instance& instance, int indent);

 private:
  struct Condition {
    Expr at_least_zero;
  };
  struct Accumulator {
    std::vector<std::string> parts;  // stems: "a3" (sum), "m3", "s3" …
    bool vector = false;
    size_t copies = 1;
    // Wider totals that the parts are flushed to (accumulate.cc); empty where the parts are all there is.
    std::vector<std::string> totals;
    size_t slots = 1;  // of parts and totals: the copies, and one more for vectors of which only some lanes count
  };

  Status print_phase(const LoweredPhase& phase, const Instance& instance);
  Status emit_level(size_t level, const Instance& instance);
  Status emit_loop(size_t level, const Instance& instance);
  Status emit_tile(size_t level, const Instance& instance);
  Status emit_op(const FlatOp& f, const Instance& instance);
  Status emit_load(const FlatOp& f, const Instance& instance);
  Status emit_store(const FlatOp& f, const Instance& instance);
  Status emit_indirect(const FlatOp& f, const Instance& instance);
  Status emit_check_bounds(const FlatOp& f, const Instance& instance);
  Status emit_index_expr(const FlatOp& f, const Instance& instance);
  // reductions.cc
  Status declare_reduction(const FlatOp& f, const Instance& instance);
  Status update_reduction(const FlatOp& f, const Instance& instance);
  Status finish_reduction(const FlatOp& f);
  // accumulate.cc
  void plan_blocks();
  void declare_total(const FlatOp& f, Accumulator& a);
  void flush(const FlatOp& f);
  void flush_block();
  void open_block(const std::string& name, int64_t stop, int64_t unit);
  std::vector<Value> finish_sum(const FlatOp& f);
  Status declare_welford(const FlatOp& f, Accumulator& a);
  void update_welford(const FlatOp& f, const Instance& instance);
  std::vector<Value> finish_welford(const FlatOp& f);
  Status declare_scan(const FlatOp& f, const Instance& instance);
  Status emit_scan(const FlatOp& f, const Instance& instance);
  Result<std::vector<Value>> combine(const Op& scan, const std::vector<Value>& left, const std::vector<Value>& right,
                                     const Instance& one);

  void compute_levels();
  // Whether it differs between lanes; whether it differs between lanes or copies.
  bool depends_on_lanes(const Expr& expr) const;
  bool depends_on_vector(const Expr& expr) const;
  std::optional<Interval> range(const Expr& expr) const;
  std::string scalar_text(const Expr& expr, size_t copy) const;
  // Vector of indices; narrow: 32-bit lanes.
  std::string vector_text(const Expr& expr, size_t copy, bool narrow) const;
  bool fits_narrow(const Expr& expr) const;
  // Mask text of the predicate and the tail for a copy; empty where all lanes are active.
  std::string active_mask(const FlatOp& f, const Instance& instance, size_t copy) const;
  std::optional<std::vector<Condition>> conditions_of(ValueId id) const;
  // The least value of an affine expression over lanes and inner loops; nullopt where it is not affine.
  std::optional<Expr> least(const Expr& expr, const Instance& instance, size_t level) const;
  std::optional<Expr> integer_expr(ValueId id) const;
  const Value& value(ValueId id) const;
  std::string fresh(const char* stem);
  void line(const std::string& text);
  void define(ValueId id, Value value);
  bool is_vector_reduce() const;

  KernelText& text_;
  const LoweredNest& nest_;
  size_t number_;
  const LoweredPhase* phase_ = nullptr;
  std::string along_;  // Instance::along of what is printed
  std::string out_;
  int indent_ = 0;
  std::map<ValueId, Value> values_;
  std::map<std::string, Value> symbols_;
  std::map<ValueId, Accumulator> accumulators_;
  std::set<ValueId> interior_true_;
  std::vector<size_t> levels_;   // per op of the phase
  std::vector<bool> late_;       // per op
  size_t first_reduce_ = 0;      // index of the first reduction loop
  // Long sums are flushed to their totals every block_steps_ iterations of loop block_loop_; at most one loop of a phase.
  size_t block_loop_ = 0;        // loops.size(): none
  int64_t block_steps_ = 0;      // of the vector loop: vectors side by side count as one step
  int64_t extent_of_vector_ = 0;
};

}  // namespace kernelopt::cpp
