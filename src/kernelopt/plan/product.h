// Matrix products among the library calls, and how they may be challenged (DESIGN.md section 4).
//
// An fp32 product is computed from narrow parts of its operands on the matrix units: x = x0 + x1 (+ x2), and a*b as the sum
// of the products of parts that matter. A pass of its own splits each operand once; the products of one step along k start
// from zero and their sum is added to the accumulator in fp32, because the matrix units truncate long sums.
//
// Where a format has less range than fp32 the splitting passes also measure, on the device, whether the values fit; blocks with
// rows that do not are computed again in fp32 by a last kernel, which otherwise does nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernelopt/fusion/group.h"
#include "kernelopt/plan/product_plan.h"

namespace kernelopt {

// A matrix in a buffer: element (z, row, column) lies at offset + z*batch + row*row_stride + column*column_stride, counted in
// elements from the buffer's start.
struct MatrixOperand {
  std::string buffer;
  int64_t offset = 0, batch = 0, row = 0, column = 0;
};

// out[z, m, n] = late(sum over k of a[z, m, k] * b[z, k, n]). `late` are the body's ops from `first_late` on, the store
// included; `sum` is the id of the sum.
struct Product {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  MatrixOperand a, b;
  std::string batch_var, row_var, column_var;  // batch_var is empty for batch 1
  ValueId sum = kNoValue;
  size_t first_late = 0;
};

// The product that a body of a library call stands for (bridge/products.py); nothing where it is none or its operands are not
// plain float32 matrices.
std::optional<Product> match_product(const Program& program, const Body& body);

// Whether a group is one library call whose product may be challenged.
std::optional<Product> group_product(const Program& program, const Group& group);

// Plans for a product, best guess first, and the changes of one; as PlanSpace for generated steps.
std::vector<ProductPlan> product_starts(const Product& product);
std::vector<ProductPlan> product_moves(const Product& product, const ProductPlan& plan);

// Least bytes, matrix-unit operations (the vendor's fp32 call needs 2*m*n*k others) and launches of the cheapest format.
struct ProductWork {
  int64_t bytes = 0;           // read and written
  double half_operations = 0;  // multiply-adds counted twice, at half precision
  int launches = 0;
};
ProductWork product_work(const Product& product);

}  // namespace kernelopt
