// Reading guide. The splitting passes write the parts of a and b as matrices with k innermost, padded with zeros to whole
// blocks, so the product kernel needs neither masks nor strides.
//
// The fp16x3 guard. An element's parts hold 22 bits of it, but no digit below 2^-36 (the unit of the second part), and nothing
// from 2^15 on. Over a row i of the result the lost digits amount to at most
//     2^-36 * sqrt(|b|^2 + n*|a_i|^2)        (Frobenius norm of b; each element off by half a unit of its last digit),
// while fp32 itself loses about 2^-24 of every term, which over the row amounts to 2^-24 * sqrt(sum over k of a_ik^2 |b_k|^2).
// A row passes where the first is at most twice the second: |b|^2 + n*|a_i|^2 <= 2^26 * sum over k of a_ik^2 |b_k|^2. A NaN fails it.
// bf16 parts have fp32's range but for its edges, which are far from what any model computes: the guard looks at those alone.
#include "kernelopt/codegen/triton/product_kernel.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "kernelopt/codegen/triton/challenge_printer.h"
#include "kernelopt/codegen/triton/ops.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt::triton {
namespace {

constexpr int64_t kTileN = 64, kTileK = 64;
constexpr int64_t kBusyPrograms = 528;   // that split b, at least
constexpr int64_t kSafeM = 128, kSafeN = 128, kSafeK = 16;  // few programs: nearly all of them end at once
constexpr int64_t kChunkK = 512;   // of one program that splits rows of a
constexpr int kMostChunks = 8;
constexpr const char* kTooLargeForFp16 = "32768.0";
constexpr const char* kBf16Low = "1e-30";
constexpr const char* kBf16High = "1e18";

// A name and an index of a matrix of the group: z, row and column are texts.
std::string place(const MatrixOperand& operand, const std::string& z, const std::string& row, const std::string& column) {
  std::string text = std::to_string(operand.offset);
  if (operand.batch != 0) text += fmt::format(" + {} * {}", z, operand.batch);
  return text + fmt::format(" + {} * {} + {} * {}", row, operand.row, column, operand.column);
}

class ProductPrinter : ChallengePrinter {
 public:
  ProductPrinter(const Program& program, const Group& group, const Product& product, const ProductPlan& plan)
      : ChallengePrinter(program, group, part_format_name(plan.format)), product_(product), plan_(plan),
        body_(program.steps.at(static_cast<size_t>(group.steps[0])).bodies[0]) {
    fp16_ = plan.format == PartFormat::kFp16x3;
    number_ = fp16_ ? 2 : 3;
    rows_ = up(product.m, plan.block_m);
    columns_ = up(product.n, plan.block_n);
    depth_ = up(product.k, std::max<int64_t>(plan.block_k, kTileK));
    batches_a_ = product.a.batch == 0 ? 1 : product.batch;
    batches_b_ = product.b.batch == 0 ? 1 : product.batch;
    int64_t chunk = std::max(kChunkK, up(blocks(depth_, kMostChunks), kTileK));
    chunk_ = std::min(chunk, depth_);
    chunks_ = blocks(depth_, chunk_);
    const int64_t nts = columns_ / kTileN, wanted = blocks(kBusyPrograms, batches_b_ * (depth_ / kTileK));
    piece_b_ = std::max<int64_t>(1, nts / std::min(nts, wanted));
    pieces_b_ = blocks(nts, piece_b_);
    count(std::max(batches_a_ * rows_ * depth_, batches_b_ * columns_ * depth_));
  }

  Result<CandidateParts> print() {
    if (plan_.inside) {
      KO_RETURN_IF_ERROR(all_inside());
      return std::move(parts_);
    }
    declare_scratch();
    split_b();
    split_a();
    KO_RETURN_IF_ERROR(multiply());
    KO_RETURN_IF_ERROR(safe_rows());
    return std::move(parts_);
  }

 private:
  // Few buffers: each costs an allocation on every call. `parts` holds those of a, then those of b; `stats` the partial norms
  // of b, then three sums a row and chunk of a; `wild` a flag for b, then one a row and chunk of a.
  void declare_scratch() {
    declare("parts", fp16_ ? DType::kFloat16 : DType::kBFloat16, b_at(number_));
    if (fp16_) declare("stats", DType::kFloat32, sums_at(3));
    else declare("wild", DType::kInt32, 1 + batches_a_ * chunks_ * rows_, true);
  }
  int64_t a_at(int part) const { return part * batches_a_ * rows_ * depth_; }
  int64_t b_at(int part) const { return a_at(number_) + part * batches_b_ * columns_ * depth_; }
  int64_t sums_at(int sum) const { return batches_b_ * pieces_b_ * depth_ + sum * product_.batch * chunks_ * rows_; }

  // The value called `x` into parts called `part` with a number.
  std::string split_lines(const std::string& margin, const std::string& x = "x", const std::string& part = "h") const {
    using namespace fmt::literals;
    if (fp16_)
      return fmt::format("{m}{p}0 = {x}.to(tl.float16)\n{m}{p}1 = (({x} - {p}0.to(tl.float32)) * 2048.0).to(tl.float16)\n",
                         "m"_a = margin, "p"_a = part, "x"_a = x);
    return fmt::format("{m}{p}0 = {x}.to(tl.bfloat16)\n{m}{p}r = {x} - {p}0.to(tl.float32)\n{m}{p}1 = {p}r.to(tl.bfloat16)\n"
                       "{m}{p}2 = ({p}r - {p}1.to(tl.float32)).to(tl.bfloat16)\n", "m"_a = margin, "p"_a = part, "x"_a = x);
  }
  static std::string bf16_fine(const std::string& size = "y") {
    return fmt::format("({0} < {1}) & (({0} > {2}) | ({0} == 0.0))", size, kBf16High, kBf16Low);
  }
  // One step of the product from parts x0, … and y0, …; small terms first, the sum of the step added as a whole (product.h).
  std::string step_lines(const std::string& margin) const {
    const std::vector<const char*> lines =
        fp16_ ? std::vector<const char*>{"c = tl.dot(x0, y1)", "c = tl.dot(x1, y0, acc=c) * 0.00048828125", "c = tl.dot(x0, y0, acc=c)"}
              : std::vector<const char*>{"c = tl.dot(x0, y2)",        "c = tl.dot(x2, y0, acc=c)", "c = tl.dot(x1, y1, acc=c)",
                                         "c = tl.dot(x0, y1, acc=c)", "c = tl.dot(x1, y0, acc=c)", "c = tl.dot(x0, y0, acc=c)"};
    std::string text;
    for (const char* line : lines) text += margin + line + "\n";
    return text + margin + "acc += c\n";
  }
  // z, m, n and the program's place along k of a product's grid, blocks grouped for the cache.
  std::string grid_lines(int64_t mts, int64_t nts, int64_t splits) const {
    const int64_t bm = plan_.block_m, bn = plan_.block_n, group = plan_.group_rows;
    std::string text = "    pid = tl.program_id(0)\n";
    if (splits > 1) text += fmt::format("    piece = pid % {}\n    pid = pid // {}\n", splits, splits);
    text += fmt::format("    z = {}\n    pid = pid % {}\n", index(fmt::format("pid // {}", mts * nts)), mts * nts);
    text += fmt::format("    first = pid // {} * {}\n    size = tl.minimum({} - first, {})\n", group * nts, group, mts, group);
    text += fmt::format("    rest = pid % {}\n    mt = first + rest % size\n    nt = rest // size\n", group * nts);
    text += fmt::format("    m = {}\n    n = {}\n", index(fmt::format("mt * {} + tl.arange(0, {})", bm, bm)),
                        index(fmt::format("nt * {} + tl.arange(0, {})", bn, bn)));
    return text;
  }
  // Loads x and y of one step along k, whose rows and columns are m and n.
  std::string operand_lines(const std::string& margin) const {
    const int64_t depth = product_.k;
    return fmt::format("{}x = tl.load({} + {}, mask=(m[:, None] < {}) & (k[None, :] < {}), other=0.0)\n", margin,
                       names_.at(product_.a.buffer), place(product_.a, "z", "m[:, None]", "k[None, :]"), product_.m, depth) +
           fmt::format("{}y = tl.load({} + {}, mask=(k[:, None] < {}) & (n[None, :] < {}), other=0.0)\n", margin,
                       names_.at(product_.b.buffer), place(product_.b, "z", "k[:, None]", "n[None, :]"), depth, product_.n);
  }
  // The same block in fp32 units, over `depth` places along k from the text `low` on. Subtracted from, so that the compiler does not fold the sum into one long chain.
  std::string safe_lines(const std::string& margin, int64_t bm, int64_t bn, const std::string& low, int64_t depth) const {
    std::string text = fmt::format("{0}acc = tl.zeros([{1}, {2}], tl.float32)\n{0}for t in range(0, {3}, {4}):\n", margin, bm, bn, depth, kSafeK);
    text += fmt::format("{}    k = {}\n", margin, index(fmt::format("{}t + tl.arange(0, {})", low, kSafeK)));
    text += operand_lines(margin + "    ");
    return text + margin + "    acc -= tl.dot(-x, y, input_precision=\"ieee\")\n";
  }
  Params operand_params() const {
    Params params{{names_.at(product_.a.buffer), ParamRole::kIn}};
    if (product_.b.buffer != product_.a.buffer) params.emplace_back(names_.at(product_.b.buffer), ParamRole::kIn);
    return params;
  }

  // Everything in one kernel; the guard looks at what the block itself reads.
  Status all_inside() {
    const int64_t bm = plan_.block_m, bn = plan_.block_n, bk = plan_.block_k, splits = plan_.split_k;
    const int64_t mts = blocks(product_.m, bm), nts = blocks(product_.n, bn);
    const int64_t piece = up(blocks(product_.k, splits), bk);
    std::string text = grid_lines(mts, nts, splits);
    const std::string low = splits > 1 ? fmt::format("piece * {} + ", piece) : "";
    text += fmt::format("    acc = tl.zeros([{}, {}], tl.float32)\n", bm, bn);
    if (fp16_) text += fmt::format("    ga = tl.zeros([{}], tl.float32)\n    gv = tl.zeros([{}], tl.float32)\n    gb = tl.zeros([{}], tl.float32)\n", bm, bm, bk);
    else text += fmt::format("    wx = tl.zeros([{}, {}], tl.int32)\n    wy = tl.zeros([{}, {}], tl.int32)\n", bm, bk, bk, bn);
    text += fmt::format("    for t in range(0, {}, {}):\n        k = {}\n", splits > 1 ? piece : product_.k, bk,
                        index(fmt::format("{}t + tl.arange(0, {})", low, bk)));
    text += operand_lines("        ") + split_lines("        ", "x", "x") + split_lines("        ", "y", "y") + step_lines("        ");
    if (fp16_) {
      text += fmt::format("        x2 = tl.where(tl.abs(x) < {0}, x * x, float('nan'))\n        y2 = tl.where(tl.abs(y) < {0}, y * y, float('nan'))\n",
                          kTooLargeForFp16);
      text += "        w = tl.sum(y2, 1)\n        gb += w\n        ga += tl.sum(x2, 1)\n        gv += tl.sum(x2 * w[None, :], 1)\n";
      text += fmt::format("    norm = ga * 0.0 + tl.sum(gb, 0)\n    fine = ((norm + {}.0 * ga) <= 67108864.0 * gv) | ((ga == 0.0) & (norm >= 0.0))\n", bn);
      text += "    bad = tl.max(tl.where(fine, 0, 1), 0)\n";
    } else {
      text += fmt::format("        sx = tl.abs(x)\n        wx = tl.where({}, wx, 1)\n        sy = tl.abs(y)\n        wy = tl.where({}, wy, 1)\n",
                          bf16_fine("sx"), bf16_fine("sy"));
      text += "    bad = tl.max(tl.max(wx, 1), 0) + tl.max(tl.max(wy, 1), 0)\n";
    }
    text += "    if bad != 0:\n" + safe_lines("        ", bm, bn, low, splits > 1 ? piece : product_.k);
    auto params = operand_params();
    const int64_t programs = product_.batch * mts * nts;
    if (splits == 1) {
      KO_TRY(const std::string late, late_ops("    ", params));
      add_kernel("product", params, text + late, programs, plan_.warps, plan_.stages);
      return ok_status();
    }
    const int64_t one = product_.batch * product_.m * product_.n;
    declare("sums", DType::kFloat32, splits * one);
    params.emplace_back("sums", ParamRole::kScratch);
    text += fmt::format("    at = {} + (z * {} + m[:, None]) * {} + n[None, :]\n", index(fmt::format("piece * {}", one)), product_.m, product_.n);
    text += fmt::format("    tl.store(sums + at, acc, mask=(m[:, None] < {}) & (n[None, :] < {}))\n", product_.m, product_.n);
    add_kernel("product", params, text, programs * splits, plan_.warps, plan_.stages);
    return add_up(one);
  }

  // Adds the pieces along k in order and finishes the result.
  Status add_up(int64_t one) {
    constexpr int64_t kRows = 8, kColumns = 128;
    const int64_t mts = blocks(product_.m, kRows), nts = blocks(product_.n, kColumns);
    std::string text = fmt::format("    pid = tl.program_id(0)\n    nt = pid % {}\n    mt = (pid // {}) % {}\n    z = {}\n", nts, nts, mts,
                                   index(fmt::format("pid // {}", nts * mts)));
    text += fmt::format("    m = {}\n    n = {}\n", index(fmt::format("mt * {} + tl.arange(0, {})", kRows, kRows)),
                        index(fmt::format("nt * {} + tl.arange(0, {})", kColumns, kColumns)));
    text += fmt::format("    at = (z * {} + m[:, None]) * {} + n[None, :]\n    acc = tl.zeros([{}, {}], tl.float32)\n", product_.m, product_.n, kRows, kColumns);
    text += fmt::format("    for s in range({}):\n        acc += tl.load(sums + at, mask=(m[:, None] < {}) & (n[None, :] < {}), other=0.0)\n        at += {}\n",
                        plan_.split_k, product_.m, product_.n, one);
    Params params{{"sums", ParamRole::kScratch}};
    KO_TRY(const std::string late, late_ops("    ", params));
    add_kernel("add_up", params, text + late, product_.batch * mts * nts, 4, 2);
    return ok_status();
  }


  // Programs walk over tiles of n, so that few partial norms are left for whoever needs them.
  void split_b() {
    const int64_t kts = depth_ / kTileK;
    Params params{{names_.at(product_.b.buffer), ParamRole::kIn}, {"parts", ParamRole::kScratch}};
    params.emplace_back(fp16_ ? "stats" : "wild", ParamRole::kScratch);
    std::string text;
    text += "    pid = tl.program_id(0)\n";
    text += fmt::format("    kt = pid % {}\n    c = (pid // {}) % {}\n    z = {}\n", kts, kts, pieces_b_,
                        index(fmt::format("pid // {}", kts * pieces_b_)));
    text += fmt::format("    k = {}\n", index(fmt::format("kt * {} + tl.arange(0, {})[None, :]", kTileK, kTileK)));
    if (fp16_) text += fmt::format("    total = tl.zeros([{}, {}], tl.float32)\n", kTileN, kTileK);
    else text += fmt::format("    bad = tl.zeros([{}, {}], tl.int32)\n", kTileN, kTileK);
    text += fmt::format("    for t in range({}):\n", piece_b_);
    text += fmt::format("        n = {}\n", index(fmt::format("(c * {} + t) * {} + tl.arange(0, {})[:, None]", piece_b_, kTileN, kTileN)));
    text += fmt::format("        x = tl.load({} + {}, mask=(n < {}) & (k < {}), other=0.0)\n", params[0].first,
                        place(product_.b, "z", "k", "n"), product_.n, product_.k);
    text += split_lines("        ");
    text += fmt::format("        at = z * {} + n * {} + k\n", columns_ * depth_, depth_);
    for (int p = 0; p < number_; ++p)
      text += fmt::format("        tl.store(parts + {} + at, h{}, mask=n < {})\n", b_at(p), p, columns_);
    if (fp16_) {
      text += fmt::format("        total += tl.where(tl.abs(x) < {}, x * x, float('nan'))\n", kTooLargeForFp16);
      text += fmt::format("    tl.store(stats + (z * {} + c) * {} + kt * {} + tl.arange(0, {}), tl.sum(total, 0))\n", pieces_b_, depth_,
                          kTileK, kTileK);
    } else {
      text += fmt::format("        y = tl.abs(x)\n        bad = tl.where({}, bad, 1)\n", bf16_fine());
      text += "    any = tl.max(tl.max(bad, 1), 0)\n    if any != 0:\n        tl.atomic_max(wild, 1)\n";
    }
    add_kernel("split_b", params, text, batches_b_ * kts * pieces_b_, 4, 1);
  }

  void split_a() {
    // Along the contiguous direction 128 bytes and more; few rows a program where they are long.
    const bool along_k = product_.a.column == 1;
    const int64_t tile_m = !along_k ? 64 : depth_ >= 1024 ? 16 : 32, tile_k = along_k && chunk_ % 256 == 0 ? 256 : kTileK;
    const int64_t mts = rows_ / tile_m;
    // Where one a serves several b, the sums of the guard differ from batch to batch, the parts do not.
    const int64_t batches = fp16_ ? product_.batch : batches_a_;
    const std::string stats = fp16_ ? "stats" : "wild";
    const Params params{
        {names_.at(product_.a.buffer), ParamRole::kIn}, {"parts", ParamRole::kScratch}, {stats, ParamRole::kScratch}};
    std::string text;
    text += fmt::format("    pid = tl.program_id(0)\n    mt = pid % {}\n    c = (pid // {}) % {}\n    z = {}\n", mts, mts, chunks_,
                        index(fmt::format("pid // {}", mts * chunks_)));
    text += fmt::format("    m = {}\n", index(fmt::format("mt * {} + tl.arange(0, {})[:, None]", tile_m, tile_m)));
    if (fp16_)
      text += fmt::format("    sa = tl.zeros([{0}, {1}], tl.float32)\n    sv = tl.zeros([{0}, {1}], tl.float32)\n"
                          "    sb = tl.zeros([1, {1}], tl.float32)\n", tile_m, tile_k);
    else
      text += fmt::format("    bad = tl.zeros([{}, {}], tl.int32)\n", tile_m, tile_k);
    text += fmt::format("    for t in range(0, {}, {}):\n", chunk_, tile_k);
    text += fmt::format("        k = {}\n", index(fmt::format("c * {} + t + tl.arange(0, {})[None, :]", chunk_, tile_k)));
    text += fmt::format("        x = tl.load({} + {}, mask=(m < {}) & (k < {}), other=0.0)\n", params[0].first,
                        place(product_.a, "z", "m", "k"), product_.m, product_.k);
    text += split_lines("        ");
    text += fmt::format("        at = {}m * {} + k\n", batches_a_ == 1 ? "" : fmt::format("z * {} + ", rows_ * depth_), depth_);
    for (int p = 0; p < number_; ++p) text += fmt::format("        tl.store(parts + {} + at, h{}, mask=k < {})\n", a_at(p), p, depth_);
    if (fp16_) {
      text += fmt::format("        w = tl.zeros([1, {}], tl.float32)\n        for u in range({}):\n", tile_k, pieces_b_);
      text += fmt::format("            w += tl.load(stats + ({}u) * {} + k, mask=k < {}, other=0.0)\n",
                          batches_b_ == 1 ? "" : fmt::format("z * {} + ", pieces_b_), depth_, depth_);
      text += fmt::format("        x2 = tl.where(tl.abs(x) < {}, x * x, float('nan'))\n", kTooLargeForFp16);
      text += "        sa += x2\n        sv += x2 * w\n        sb += w\n";
      text += fmt::format("    to = (z * {} + c) * {} + mt * {} + tl.arange(0, {})\n", chunks_, rows_, tile_m, tile_m);
      text += fmt::format("    tl.store(stats + {} + to, tl.sum(sa, 1))\n    tl.store(stats + {} + to, tl.sum(sv, 1))\n", sums_at(0), sums_at(1));
      text += fmt::format("    tl.store(stats + {} + to, tl.sum(sb, 1) + tl.zeros([{}], tl.float32))\n", sums_at(2), tile_m);
    } else {
      text += fmt::format("        y = tl.abs(x)\n        bad = tl.where({}, bad, 1)\n", bf16_fine());
      text += fmt::format("    tl.store(wild + 1 + (z * {} + c) * {} + mt * {} + tl.arange(0, {}), tl.max(bad, 1))\n", chunks_, rows_,
                          tile_m, tile_m);
    }
    add_kernel("split_a", params, text, batches * mts * chunks_, 4, 1);
  }

  Status multiply() {
    const int64_t mts = blocks(product_.m, plan_.block_m), nts = blocks(product_.n, plan_.block_n), bk = plan_.block_k;
    std::string text = grid_lines(mts, nts, 1);
    text += fmt::format("    k = tl.arange(0, {})\n", bk);
    text += fmt::format("    pa = {}m[:, None] * {} + k[None, :]\n", batches_a_ == 1 ? "" : fmt::format("z * {} + ", rows_ * depth_), depth_);
    text += fmt::format("    pb = {}n[None, :] * {} + k[:, None]\n", batches_b_ == 1 ? "" : fmt::format("z * {} + ", columns_ * depth_), depth_);
    text += fmt::format("    acc = tl.zeros([{}, {}], tl.float32)\n    for t in range(0, {}, {}):\n", plan_.block_m, plan_.block_n, depth_, bk);
    for (int p = 0; p < number_; ++p)
      text += fmt::format("        x{0} = tl.load(parts + {1} + pa)\n        y{0} = tl.load(parts + {2} + pb)\n", p, a_at(p), b_at(p));
    text += fmt::format("        pa += {}\n        pb += {}\n", bk, bk) + step_lines("        ");
    Params params{{"parts", ParamRole::kScratch}};
    KO_TRY(const std::string late, late_ops("    ", params));
    add_kernel("multiply", params, text + late, product_.batch * mts * nts, plan_.warps, plan_.stages);
    return ok_status();
  }

  Status safe_rows() {
    const int64_t mts = blocks(product_.m, kSafeM), nts = blocks(product_.n, kSafeN);
    auto params = operand_params();
    params.emplace_back(fp16_ ? "stats" : "wild", ParamRole::kScratch);
    std::string text;
    text += fmt::format("    pid = tl.program_id(0)\n    nt = pid % {}\n    mt = (pid // {}) % {}\n    z = {}\n", nts, nts, mts,
                        index(fmt::format("pid // {}", nts * mts)));
    text += fmt::format("    m = {}\n    n = {}\n", index(fmt::format("mt * {} + tl.arange(0, {})", kSafeM, kSafeM)),
                        index(fmt::format("nt * {} + tl.arange(0, {})", kSafeN, kSafeN)));
    if (fp16_) {
      text += fmt::format("    ga = tl.zeros([{0}], tl.float32)\n    gv = tl.zeros([{0}], tl.float32)\n    gb = tl.zeros([{0}], tl.float32)\n", kSafeM);
      text += fmt::format("    for c in range({}):\n        at = (z * {} + c) * {} + m\n", chunks_, chunks_, rows_);
      int sum = 0;
      for (const char* name : {"ga", "gv", "gb"})
        text += fmt::format("        {} += tl.load(stats + {} + at, mask=m < {}, other=0.0)\n", name, sums_at(sum++), product_.m);
      // A row of zeros is right unless b holds what its parts cannot; then its norm is no number.
      text += fmt::format("    fine = ((gb + {}.0 * ga) <= 67108864.0 * gv) | ((ga == 0.0) & (gb >= 0.0))\n", product_.n);
      text += "    bad = tl.max(tl.where(fine, 0, 1), 0)\n";
    } else {
      text += fmt::format("    bad = tl.load(wild)\n    for c in range({}):\n", chunks_);
      text += fmt::format("        bad += tl.max(tl.load(wild + 1 + ({}c) * {} + m, mask=m < {}, other=0), 0)\n",
                          batches_a_ == 1 ? "" : fmt::format("z * {} + ", chunks_), rows_, product_.m);
    }
    text += "    if bad != 0:\n" + safe_lines("        ", kSafeM, kSafeN, "", product_.k);
    KO_TRY(const std::string late, late_ops("        ", params));
    add_kernel("safe_rows", params, text + late, product_.batch * mts * nts, 8, 2);
    return ok_status();
  }

  // The ops after the sum, over the values `acc` of rows m and columns n. Adds the buffers that they touch to `params`.
  Result<std::string> late_ops(const std::string& margin, Params& params) {
    std::map<ValueId, Value> values;
    values[product_.sum] = {"acc", DType::kFloat32, false, kRows | kColumns};
    std::string text;
    const auto& ops = body_.block.ops;
    for (size_t i = product_.first_late; i < ops.size(); ++i) {
      const Op& op = ops[i];
      const std::string name = fmt::format("v{}", i);
      if (op.code == OpCode::kLoad) {
        const auto [where, mask] = where_of(op.index);
        text += fmt::format("{}{} = tl.load({} + {}, mask={}, other=0.0){}\n", margin, name, touch(op.buffer, ParamRole::kIn, params), where, mask,
                            after_load(program_.buffer(op.buffer).dtype));
        values[op.id] = {name, op.dtype, false, kRows | kColumns};
      } else if (op.code == OpCode::kStoreReduction) {
        const auto [where, mask] = where_of(op.index);
        const DType type = program_.buffer(op.buffer).dtype;
        text += fmt::format("{}tl.store({} + {}, {}, mask=(m[:, None] < {}) & (n[None, :] < {}))\n", margin,
                            touch(op.buffer, ParamRole::kOut, params), where, as_type(values.at(op.args[0]), type), product_.m, product_.n);
      } else {
        std::vector<Value> args;
        for (const ValueId arg : op.args) args.push_back(values.at(arg));
        KO_TRY(const std::string right, pointwise(op, args, helpers_));
        text += fmt::format("{}{} = {}\n", margin, name, right);
        values[op.id] = {name, op.dtype, false, kRows | kColumns};
      }
    }
    return text;
  }

  // (index, mask) over m and n; affine, as match_product has seen to.
  std::pair<std::string, std::string> where_of(const Expr& index) const {
    std::string text, mask;
    Expr rest = index;
    const auto term = [&](const std::string& var, const std::string& spelled, int64_t limit) {
      if (var.empty()) return;
      const auto in = affine_in(rest, var);
      KO_CHECK(in.has_value(), "an index that is not affine");
      rest = in->rest;
      if (in->coefficient == 0) return;
      text += fmt::format("{} * {} + ", spelled, in->coefficient);
      if (limit > 0) mask += fmt::format("{}({} < {})", mask.empty() ? "" : " & ", spelled, limit);
    };
    term(product_.batch_var, "z", 0);
    term(product_.row_var, "m[:, None]", product_.m);
    term(product_.column_var, "n[None, :]", product_.n);
    KO_CHECK(rest.is_const(), "an index that is not affine");
    // Every value has two dimensions.
    text += fmt::format("{} + m[:, None] * 0", rest.const_value());
    return {text, mask.empty() ? "m[:, None] >= 0" : mask};
  }

  const Product& product_;
  const ProductPlan& plan_;
  const Body& body_;
  bool fp16_ = false;
  int number_ = 2;  // of parts
  int64_t rows_ = 0, columns_ = 0, depth_ = 0;  // padded m, n, k
  int64_t batches_a_ = 1, batches_b_ = 1;
  int64_t chunk_ = 0, chunks_ = 1;      // along k, of a program that splits rows of a
  int64_t piece_b_ = 1, pieces_b_ = 1;  // tiles of n of a program that splits b
};

}  // namespace

Result<Candidate> print_product(const Program& program, const Group& group, const Product& product, const KernelPlan& plan) {
  KO_TRY(CandidateParts parts, ProductPrinter(program, group, product, *plan.product).print());
  parts.plan = plan_to_json(plan);
  return Candidate(std::move(parts));
}

}  // namespace kernelopt::triton
