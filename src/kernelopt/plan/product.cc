#include "kernelopt/plan/product.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace kernelopt {
namespace {

// Coefficients of the given variables, and what is left of an index without them; nothing where it is not affine in them.
struct Affine {
  std::map<std::string, int64_t> strides;
  int64_t offset = 0;
};
std::optional<Affine> affine(const Expr& index, const Body& body) {
  Affine result;
  Expr rest = index;
  for (const auto& var : body.vars) {
    const auto in = affine_in(rest, var.name);
    if (!in) return std::nullopt;
    result.strides[var.name] = in->coefficient;
    rest = in->rest;
  }
  if (!rest.is_const()) return std::nullopt;
  result.offset = rest.const_value();
  return result;
}

bool plain(const Program& program, const Op& op) {
  return op.code == OpCode::kLoad && program.buffer(op.buffer).dtype == DType::kFloat32;
}

constexpr int kSmallestBlock = 64;
constexpr int64_t kBusy = 132;        // programs that a data-centre GPU wants at least
constexpr int64_t kLeastDepth = 256;  // of a program that shares a block along k
constexpr int kLargestTile = 128 * 128;  // two accumulators of a larger one do not fit in the registers

int64_t blocks(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

bool fits(const Product& product, const ProductPlan& plan) {
  // A block that is mostly padding wastes what it computes.
  const auto wasteful = [](int block, int64_t extent) { return block > kSmallestBlock && block >= 2 * extent; };
  return !wasteful(plan.block_m, product.m) && !wasteful(plan.block_n, product.n);
}

}  // namespace

const char* part_format_name(PartFormat format) {
  switch (format) {
#define KO_X(name, text) \
  case PartFormat::name: return text;
    KERNELOPT_PART_FORMATS(KO_X)
#undef KO_X
  }
  return "?";
}

std::optional<Product> match_product(const Program& program, const Body& body) {
  const auto& ops = body.block.ops;
  if (body.vars.size() < 3 || body.vars.size() > 4 || ops.size() < 5) return std::nullopt;
  for (size_t i = 0; i < body.vars.size(); ++i)
    if ((body.vars[i].kind == VarKind::kReduce) != (i + 1 == body.vars.size())) return std::nullopt;
  const bool form = plain(program, ops[0]) && plain(program, ops[1]) && ops[2].code == OpCode::kMul &&
                    ops[2].args == std::vector<ValueId>{ops[0].id, ops[1].id} && ops[3].code == OpCode::kReduction &&
                    ops[3].reduction == ReductionKind::kSum && ops[3].args == std::vector<ValueId>{ops[2].id} &&
                    ops[3].dtype == DType::kFloat32;
  if (!form) return std::nullopt;
  Product product;
  const size_t iters = body.vars.size() - 1;
  if (iters == 3) {
    product.batch = body.vars[0].extent;
    product.batch_var = body.vars[0].name;
  }
  product.row_var = body.vars[iters - 2].name;
  product.column_var = body.vars[iters - 1].name;
  product.m = body.vars[iters - 2].extent;
  product.n = body.vars[iters - 1].extent;
  product.k = body.vars[iters].extent;
  const std::string& over = body.vars[iters].name;
  const auto a = affine(ops[0].index, body), b = affine(ops[1].index, body);
  if (!a || !b || a->strides.at(product.column_var) != 0 || b->strides.at(product.row_var) != 0) return std::nullopt;
  const auto batch_stride = [&](const Affine& of) { return product.batch_var.empty() ? 0 : of.strides.at(product.batch_var); };
  product.a = {ops[0].buffer, a->offset, batch_stride(*a), a->strides.at(product.row_var), a->strides.at(over)};
  product.b = {ops[1].buffer, b->offset, batch_stride(*b), b->strides.at(over), b->strides.at(product.column_var)};
  product.sum = ops[3].id;
  product.first_late = 4;
  // What follows may only use the sum and loads without the reduced variable.
  bool stores = false;
  for (size_t i = product.first_late; i < ops.size(); ++i) {
    const Op& op = ops[i];
    stores |= op.code == OpCode::kStoreReduction;
    for (const ValueId arg : op.args)
      for (size_t early = 0; early < 3; ++early)
        if (ops[early].id == arg) return std::nullopt;
    if (op.code == OpCode::kLoad || op.code == OpCode::kStoreReduction) {
      const auto index = affine(op.index, body);
      if (!index || index->strides.at(over) != 0) return std::nullopt;
      continue;
    }
    if (op_class(op.code) != OpClass::kPointwise && op.code != OpCode::kConstant) return std::nullopt;
  }
  if (!stores) return std::nullopt;
  return product;
}

std::optional<Product> group_product(const Program& program, const Group& group) {
  if (group.steps.size() != 1) return std::nullopt;
  const Step& step = program.steps.at(static_cast<size_t>(group.steps[0]));
  if (step.kind != StepKind::kExtern || step.bodies.size() != 1) return std::nullopt;
  return match_product(program, step.bodies[0]);
}

std::vector<ProductPlan> product_starts(const Product& product) {
  using enum PartFormat;
  const auto programs = [&](int block_m, int block_n) {
    return product.batch * blocks(product.m, block_m) * blocks(product.n, block_n);
  };
  // Splitting first writes and reads each operand again; that pays where each element is used by many blocks.
  const int64_t uses = std::min(blocks(product.m, 128), blocks(product.n, 128));
  const std::vector<ProductPlan> before = {
      {kFp16x3, 128, 128, 64, 8, 3, 16}, {kBf16x6, 64, 128, 32, 4, 3, 32}, {kFp16x3, 64, 128, 64, 4, 3, 16},
      {kFp16x3, 64, 64, 64, 4, 4, 16},
  };
  std::vector<ProductPlan> inside;
  for (const auto& [block_m, block_n, warps] : {std::tuple{64, 128, 4}, {64, 64, 4}, {128, 128, 8}}) {
    // Where blocks are fewer than multiprocessors, several programs share one along k.
    int split = 1;
    while (programs(block_m, block_n) * split < kBusy && product.k / (split * 2) >= kLeastDepth) split *= 2;
    for (const PartFormat format : {kFp16x3, kBf16x6}) {
      if (format == kBf16x6 && block_m == 128) continue;
      inside.push_back({format, block_m, block_n, 32, warps, 3, 8, true, split});
    }
  }
  std::vector<ProductPlan> result;
  const auto add = [&](const std::vector<ProductPlan>& plans) {
    for (const auto& plan : plans)
      if (fits(product, plan)) result.push_back(plan);
  };
  // Few blocks without splitting k leave multiprocessors idle.
  const bool few = programs(64, 64) < kBusy / 2;
  if (uses >= 4) {
    add(before);
    add({inside[0], inside[1]});
  } else {
    add(inside);
    if (!few) add(before);
  }
  return result;
}

std::vector<ProductPlan> product_moves(const Product& product, const ProductPlan& plan) {
  std::vector<ProductPlan> result;
  const auto add = [&](ProductPlan next) {
    if (fits(product, next)) result.push_back(next);
  };
  if (plan.inside) {
    for (const int split : {plan.split_k / 2, plan.split_k * 2}) {
      ProductPlan next = plan;
      next.split_k = split;
      if (split >= 1 && product.k / split >= kLeastDepth) add(next);
    }
  }
  for (const int rows : {4, 16, 32}) {
    ProductPlan next = plan;
    next.group_rows = rows;
    if (rows != plan.group_rows) add(next);
  }
  for (const int stages : {2, 3, 4}) {
    ProductPlan next = plan;
    next.stages = stages;
    if (stages != plan.stages) add(next);
  }
  for (const int block : {32, 64}) {
    ProductPlan next = plan;
    next.block_k = block;
    next.stages = block == 32 || plan.inside ? plan.stages : 3;
    if (block != plan.block_k) add(next);
  }
  for (const int block : {64, 128, 256}) {
    ProductPlan next = plan;
    next.block_m = block;
    if (block != plan.block_m && block * next.block_n <= kLargestTile) add(next);
    next = plan;
    next.block_n = block;
    if (block != plan.block_n && block * next.block_m <= kLargestTile) add(next);
  }
  for (const int warps : {4, 8}) {
    ProductPlan next = plan;
    next.warps = warps;
    if (warps != plan.warps) add(next);
  }
  return result;
}

ProductWork product_work(const Product& product) {
  ProductWork work;
  const int64_t a = product.m * product.k * (product.a.batch == 0 ? 1 : product.batch);
  const int64_t b = product.n * product.k * (product.b.batch == 0 ? 1 : product.batch);
  work.bytes = 4 * (a + b) + 4 * product.batch * product.m * product.n;
  work.half_operations = 6.0 * static_cast<double>(product.batch) * static_cast<double>(product.m) *
                         static_cast<double>(product.n) * static_cast<double>(product.k);
  work.launches = 1;
  return work;
}

}  // namespace kernelopt
