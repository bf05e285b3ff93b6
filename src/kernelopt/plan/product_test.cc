#include "kernelopt/plan/product.h"

#include <gtest/gtest.h>

#include "kernelopt/fusion/testing.h"

namespace kernelopt {
namespace {

using namespace kernelopt::testing;  // NOLINT: builders

constexpr int64_t kM = 6, kN = 10, kK = 4, kBatch = 3;

Program buffers() {
  Program program;
  for (const char* name : {"a", "b", "c", "out"}) {
    Buffer buffer = make_buffer(name, {kBatch * 128});
    program.buffers.emplace(name, buffer);
  }
  return program;
}

Op make_op(OpCode code, ValueId id, std::vector<ValueId> args) {
  Op op;
  op.code = code;
  op.id = id;
  op.args = std::move(args);
  return op;
}
Op at(OpCode code, ValueId id, const std::string& buffer, Expr index, std::vector<ValueId> args = {}) {
  Op op = make_op(code, id, std::move(args));
  op.buffer = buffer;
  op.index = std::move(index);
  return op;
}

// out[m, n] = sum over k of a[index of a] * b[index of b]; ops are numbered 0 to 3, the store is last.
Body product(Expr a, Expr b, std::vector<LoopVar> vars = {iter("m", kM), iter("n", kN), reduce("k", kK)},
             Expr out = v("m") * kN + v("n")) {
  Body body;
  body.name = "op0";
  body.vars = std::move(vars);
  body.block.ops = {at(OpCode::kLoad, 0, "a", std::move(a)), at(OpCode::kLoad, 1, "b", std::move(b)), make_op(OpCode::kMul, 2, {0, 1}),
                    make_op(OpCode::kReduction, 3, {2}), at(OpCode::kStoreReduction, kNoValue, "out", std::move(out), {3})};
  return body;
}
Expr rows_of_a() { return v("m") * kK + v("k"); }
Expr rows_of_b() { return v("k") * kN + v("n"); }

// The sum plus c[index], in place of the sum.
Body with_bias(Expr index) {
  Body body = product(rows_of_a(), rows_of_b());
  auto& ops = body.block.ops;
  ops.back().args = {5};
  ops.insert(ops.end() - 1, {at(OpCode::kLoad, 4, "c", std::move(index)), make_op(OpCode::kAdd, 5, {3, 4})});
  return body;
}

TEST(MatchProduct, ReadsSizesAndStrides) {
  const auto found = match_product(buffers(), product(rows_of_a() + 7, rows_of_b()));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->batch, 1);
  EXPECT_EQ(found->m, kM);
  EXPECT_EQ(found->n, kN);
  EXPECT_EQ(found->k, kK);
  EXPECT_EQ(found->a.buffer, "a");
  EXPECT_EQ(found->a.offset, 7);
  EXPECT_EQ(found->a.row, kK);
  EXPECT_EQ(found->a.column, 1);
  EXPECT_EQ(found->b.buffer, "b");
  EXPECT_EQ(found->b.row, kN);
  EXPECT_EQ(found->b.column, 1);
  EXPECT_EQ(found->batch_var, "");
  EXPECT_EQ(found->row_var, "m");
  EXPECT_EQ(found->column_var, "n");
  EXPECT_EQ(found->sum, 3);
  EXPECT_EQ(found->first_late, 4u);
}

TEST(MatchProduct, ReadsATransposedOperand) {
  const auto found = match_product(buffers(), product(rows_of_a(), v("n") * kK + v("k")));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->b.row, 1);
  EXPECT_EQ(found->b.column, kK);
}

TEST(MatchProduct, ReadsABatch) {
  const std::vector<LoopVar> vars = {iter("z", kBatch), iter("m", kM), iter("n", kN), reduce("k", kK)};
  const auto found = match_product(buffers(), product(v("z") * (kM * kK) + rows_of_a(), rows_of_b(), vars,
                                                      v("z") * (kM * kN) + v("m") * kN + v("n")));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->batch, kBatch);
  EXPECT_EQ(found->batch_var, "z");
  EXPECT_EQ(found->a.batch, kM * kK);
  EXPECT_EQ(found->b.batch, 0);  // shared by the batch
}

TEST(MatchProduct, TakesABias) {
  for (const Expr& index : {v("n"), v("m") * kN + v("n")}) {
    const auto found = match_product(buffers(), with_bias(index));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->first_late, 4u);
  }
}

TEST(MatchProduct, RefusesOperandsThatAreNoMatrices) {
  // a depends on the columns, b on the rows; an index with a product of variables.
  EXPECT_FALSE(match_product(buffers(), product(rows_of_a() + v("n"), rows_of_b())));
  EXPECT_FALSE(match_product(buffers(), product(rows_of_a(), rows_of_b() + v("m"))));
  EXPECT_FALSE(match_product(buffers(), product(v("m") * v("k"), rows_of_b())));
}

TEST(MatchProduct, RefusesOtherTypes) {
  for (const char* name : {"a", "b"}) {
    Program program = buffers();
    program.buffers.at(name).dtype = DType::kFloat16;
    EXPECT_FALSE(match_product(program, product(rows_of_a(), rows_of_b()))) << name;
  }
  Body body = product(rows_of_a(), rows_of_b());
  body.block.ops[3].dtype = DType::kFloat64;
  EXPECT_FALSE(match_product(buffers(), body));
}

TEST(MatchProduct, RefusesWhatFollowsWithTheReducedVariable) {
  EXPECT_FALSE(match_product(buffers(), with_bias(v("k"))));
  Body body = with_bias(v("n"));
  body.block.ops[5].args = {3, 0};  // adds a load of the product
  EXPECT_FALSE(match_product(buffers(), body));
}

TEST(MatchProduct, RefusesAnotherOrder) {
  EXPECT_FALSE(match_product(buffers(), product(rows_of_b(), rows_of_a())));
  Body swapped = product(rows_of_a(), rows_of_b());
  swapped.block.ops[2].args = {1, 0};
  EXPECT_FALSE(match_product(buffers(), swapped));
  Body loops = product(rows_of_a(), rows_of_b(), {reduce("k", kK), iter("m", kM), iter("n", kN)});
  EXPECT_FALSE(match_product(buffers(), loops));
  Body other = product(rows_of_a(), rows_of_b());
  other.block.ops[3].reduction = ReductionKind::kMax;
  EXPECT_FALSE(match_product(buffers(), other));
}

Product sized(int64_t m, int64_t n, int64_t k, int64_t batch = 1) {
  Product result;
  result.batch = batch;
  result.m = m;
  result.n = n;
  result.k = k;
  return result;
}

void expect_legal(const Product& product, const ProductPlan& plan) {
  EXPECT_GE(plan.block_m, 64);
  EXPECT_GE(plan.block_n, 64);
  EXPECT_LE(plan.block_m * plan.block_n, 128 * 128);
  EXPECT_TRUE(plan.block_m == 64 || plan.block_m < 2 * product.m) << plan.block_m;
  EXPECT_TRUE(plan.block_n == 64 || plan.block_n < 2 * product.n) << plan.block_n;
  EXPECT_TRUE(plan.inside || plan.split_k == 1);
  EXPECT_TRUE(plan.split_k == 1 || product.k / plan.split_k >= 256) << plan.split_k;
}

TEST(ProductStarts, SplitFirstWhereElementsAreUsedOften) {
  const auto starts = product_starts(sized(1024, 1024, 1024));
  ASSERT_EQ(starts.size(), 6u);
  EXPECT_FALSE(starts[0].inside);
  EXPECT_EQ(starts[0].format, PartFormat::kFp16x3);
  EXPECT_EQ(starts[0].block_m, 128);
  EXPECT_EQ(starts[0].block_n, 128);
  EXPECT_TRUE(starts[4].inside);
  EXPECT_EQ(starts[4].split_k, 2);  // 128 blocks
}

TEST(ProductStarts, SplitInsideWhereRowsAreFew) {
  const auto starts = product_starts(sized(16, 1024, 1024));
  ASSERT_EQ(starts.size(), 4u);
  for (const auto& plan : starts) {
    EXPECT_TRUE(plan.inside);
    EXPECT_EQ(plan.block_m, 64);
  }
  EXPECT_EQ(starts[0].block_n, 128);
  EXPECT_EQ(starts[0].split_k, 4);  // 256 of k each
}

TEST(ProductStarts, ShareADeepBlock) {
  const auto starts = product_starts(sized(64, 64, 8192));
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].format, PartFormat::kFp16x3);
  EXPECT_EQ(starts[1].format, PartFormat::kBf16x6);
  for (const auto& plan : starts) EXPECT_EQ(plan.split_k, 32);
}

TEST(ProductMoves, StayLegal) {
  for (const Product& product : {sized(1024, 1024, 1024), sized(16, 1024, 1024), sized(64, 64, 8192), sized(100, 300, 70, 5)}) {
    const auto starts = product_starts(product);
    ASSERT_FALSE(starts.empty());
    for (const auto& plan : starts) {
      expect_legal(product, plan);
      const auto moves = product_moves(product, plan);
      EXPECT_FALSE(moves.empty());
      for (const auto& move : moves) expect_legal(product, move);
    }
  }
}

}  // namespace
}  // namespace kernelopt
