// Reading guide. A convolution is a product: rows are the pixels of the result, columns its channels, and k runs over the places
// of the window and, innermost, the channels of x, which the narrowing pass has put side by side (padded with zeros to whole
// steps). A step loads one place of the window for all rows, masked where it falls outside the image.
//
// The guard. fp16 holds ten bits of mantissa as TF32 does, but no digit below 2^-24 (an element is off by 2^-25 at most) and
// nothing from 2^15 on. Over a row of the result, with e the sum of the squares of x that it sees, the lost digits amount to at most
//     2^-25 * sqrt(|w|^2 + n * e)              (|w| over all of w, n the channels of the result),
// while TF32's rounding amounts to about 2^-12 of every term, over the row at least 2^-12 * sqrt(e) * the least norm of w over the places of
// k. A row passes where the first is at most twice the second: |w|^2 + n * e <= 2^28 * least^2 * e, or where x is all zero. NaN fails.
//
// Where the library multiplies, it returns fp16 as well: each element of a row is rounded once more, to 2^-12 of its size as TF32's terms
// are or by 2^-25 at most, so n is added on the left; and |w|^2 * e must stay below 2^30, so that no element reaches 2^15. Channels are padded
// to eights, which its kernels want.
#include "kernelopt/codegen/triton/convolution_kernel.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "kernelopt/codegen/triton/challenge_printer.h"
#include "kernelopt/codegen/triton/ops.h"
#include "kernelopt/plan/plan_space.h"

namespace kernelopt::triton {
namespace {

constexpr int64_t kTilePixels = 64;
constexpr int64_t kWeightRows = 64;
constexpr int64_t kSafeK = 16;
constexpr int64_t kLibraryChannels = 8;
constexpr const char* kTooLarge = "32768.0";

int64_t all(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{1}, std::multiplies<int64_t>());
}

class ConvolutionPrinter : ChallengePrinter {
 public:
  ConvolutionPrinter(const Program& program, const Group& group, const Convolution& convolution, const ConvolutionPlan& plan)
      : ChallengePrinter(program, group, "fp16 for tf32"), conv_(convolution), plan_(plan), rank_(convolution.size.size()) {
    deep_ = up(conv_.channels, plan.library ? kLibraryChannels : plan.block_k);
    columns_ = up(conv_.outputs, plan.library ? kLibraryChannels : plan.block_n);
    places_ = all(conv_.window);
    source_pixels_ = conv_.batch * all(conv_.size);
    count(std::max({source_pixels_ * deep_, conv_.pixels() * columns_, columns_ * places_ * deep_}));
  }

  Result<CandidateParts> print() {
    declare("x16", DType::kFloat16, source_pixels_ * deep_);
    declare("w16", DType::kFloat16, columns_ * places_ * deep_);
    declare("energy", DType::kFloat32, source_pixels_);
    declare("norms", DType::kFloat32, places_ * deep_);
    narrow_x();
    narrow_w();
    if (plan_.library) {
      call_library();
      KO_RETURN_IF_ERROR(finish());
    } else {
      KO_RETURN_IF_ERROR(multiply());
    }
    KO_RETURN_IF_ERROR(safe_rows());
    return std::move(parts_);
  }

 private:
  // Lines that take the flat pixel number `from` apart: z is the image, s0, s1, … the place.
  static std::string apart(const std::string& from, const std::vector<int64_t>& extents, const std::string& place) {
    std::string text = fmt::format("    rest = {}\n", from);
    for (size_t dim = extents.size(); dim-- > 0;)
      text += fmt::format("    {}{} = rest % {}\n    rest = rest // {}\n", place, dim, extents[dim], extents[dim]);
    return text + "    z = rest\n";
  }

  void narrow_x() {
    const int64_t tile = channel_tile();
    std::string text = "    pid = tl.program_id(0)\n";
    text += fmt::format("    p = {}\n", index(fmt::format("pid * {} + tl.arange(0, {})[:, None]", kTilePixels, kTilePixels)));
    text += apart("p", conv_.size, "s");
    std::string place = fmt::format("{} + z * {}", conv_.x.offset, conv_.x.stride[0]);
    for (size_t dim = 0; dim < rank_; ++dim) place += fmt::format(" + s{} * {}", dim, conv_.x.stride[2 + dim]);
    text += fmt::format("    base = {}\n    total = tl.zeros([{}, {}], tl.float32)\n", place, kTilePixels, tile);
    text += fmt::format("    for t in range(0, {}, {}):\n        c = t + tl.arange(0, {})[None, :]\n", deep_, tile, tile);
    text += fmt::format("        x = tl.load({} + base + c * {}, mask=(p < {}) & (c < {}), other=0.0)\n", names_.at(conv_.x.name),
                        conv_.x.stride[1], source_pixels_, conv_.channels);
    text += fmt::format("        tl.store(x16 + p * {} + c, x.to(tl.float16), mask=(p < {}) & (c < {}))\n", deep_, source_pixels_, deep_);
    text += fmt::format("        total += tl.where(tl.abs(x) < {}, x * x, float('nan'))\n", kTooLarge);
    text += fmt::format("    q = pid * {} + tl.arange(0, {})\n    tl.store(energy + q, tl.sum(total, 1), mask=q < {})\n", kTilePixels, kTilePixels,
                        source_pixels_);
    add_kernel("narrow_x", {{names_.at(conv_.x.name), ParamRole::kIn}, {"x16", ParamRole::kScratch}, {"energy", ParamRole::kScratch}}, text,
               blocks(source_pixels_, kTilePixels), 8, 1);
  }

  int64_t channel_tile() const { return std::min<int64_t>(64, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(deep_)))); }

  // How w lies in w16, in elements: (channel out, place, channel in), but as the library wants it where it multiplies a transposed one,
  // (channel in, place, channel out).
  struct WeightSteps {
    int64_t out, place, in;
  };
  WeightSteps weight_steps() const {
    if (plan_.library && conv_.transposed) return {1, columns_, places_ * columns_};
    return {places_ * deep_, deep_, 1};
  }

  // w narrowed, and its norm over the channels out for every place and channel in.
  void narrow_w() {
    const int64_t tile = channel_tile(), tiles = blocks(deep_, tile);
    const WeightSteps steps = weight_steps();
    std::string text = fmt::format("    pid = tl.program_id(0)\n    c = pid % {} * {} + tl.arange(0, {})[None, :]\n    place = pid // {}\n", tiles, tile, tile, tiles);
    text += "    rest = place\n";
    std::string where = std::to_string(conv_.w.offset);
    for (size_t dim = rank_; dim-- > 0;) {
      text += fmt::format("    u{} = rest % {}\n    rest = rest // {}\n", dim, conv_.window[dim], conv_.window[dim]);
      where += fmt::format(" + u{} * {}", dim, conv_.w.stride[2 + dim]);
    }
    text += fmt::format("    total = tl.zeros([{}, {}], tl.float32)\n    for t in range(0, {}, {}):\n", kWeightRows, tile, columns_, kWeightRows);
    text += fmt::format("        n = t + tl.arange(0, {})[:, None]\n", kWeightRows);
    text += fmt::format("        w = tl.load({} + {} + n * {} + c * {}, mask=(n < {}) & (c < {}), other=0.0)\n", names_.at(conv_.w.name), where,
                        conv_.w.stride[0], conv_.w.stride[1], conv_.outputs, conv_.channels);
    text += fmt::format("        tl.store(w16 + {} * {} + place * {} + c * {}, w.to(tl.float16), mask=(n < {}) & (c < {}))\n", index("n"), steps.out,
                        steps.place, steps.in, columns_, deep_);
    text += fmt::format("        total += tl.where(tl.abs(w) < {}, w * w, float('nan'))\n", kTooLarge);
    // The padding's norm takes no part: infinite, where the least counts.
    text += fmt::format("    d = pid % {} * {} + tl.arange(0, {})\n    sums = tl.where(d < {}, tl.sum(total, 0), float('inf'))\n", tiles, tile, tile, conv_.channels);
    text += fmt::format("    tl.store(norms + place * {} + d, sums, mask=d < {})\n", deep_, deep_);
    add_kernel("narrow_w", {{names_.at(conv_.w.name), ParamRole::kIn}, {"w16", ParamRole::kScratch}, {"norms", ParamRole::kScratch}}, text,
               tiles * places_, 4, 1);
  }

  // Lines that set i0, i1, … to the place in x and `inside`, for the place of the window with number `from`.
  std::string window_lines(const std::string& margin, const std::string& from) const {
    std::string text = margin + "left = " + from + "\n", inside = "row_fine";
    for (size_t dim = rank_; dim-- > 0;) {
      text += fmt::format("{0}u = left % {1}\n{0}left = left // {1}\n", margin, conv_.window[dim]);
      if (conv_.transposed) {
        text += fmt::format("{0}t{1} = o{1} + {2} - u * {3}\n", margin, dim, conv_.padding[dim], conv_.dilation[dim]);
        text += fmt::format("{0}i{1} = t{1} // {2}\n", margin, dim, conv_.stride[dim]);
        inside += fmt::format(" & (t{0} >= 0) & (i{0} * {1} == t{0})", dim, conv_.stride[dim]);
      } else {
        text += fmt::format("{}i{} = o{} * {} + u * {} - {}\n", margin, dim, dim, conv_.stride[dim], conv_.dilation[dim], conv_.padding[dim]);
      }
      inside += fmt::format(" & (i{0} >= 0) & (i{0} < {1})", dim, conv_.size[dim]);
    }
    return text + margin + "inside = " + inside + "\n";
  }
  std::string pixel_of_x() const {
    std::string text = "z";
    for (size_t dim = 0; dim < rank_; ++dim) text = fmt::format("({} * {} + i{})", text, conv_.size[dim], dim);
    return text;
  }

  // The rows and columns of a block, and what is known of them.
  std::string block_lines(int64_t bm, int64_t bn) const {
    const int64_t nts = blocks(columns_, bn);
    std::string text = fmt::format("    pid = tl.program_id(0)\n    nt = pid % {}\n    mt = pid // {}\n", nts, nts);
    text += fmt::format("    m = {}\n    n = {}\n", index(fmt::format("mt * {} + tl.arange(0, {})", bm, bm)),
                        index(fmt::format("nt * {} + tl.arange(0, {})", bn, bn)));
    return text + fmt::format("    row_fine = m < {}\n", conv_.pixels()) + apart("m", conv_.out_size, "o");
  }

  Status multiply() {
    const int64_t bm = plan_.block_m, bn = plan_.block_n, bk = plan_.block_k, steps = deep_ / bk;
    std::string text = block_lines(bm, bn);
    text += fmt::format("    k = tl.arange(0, {})\n    acc = tl.zeros([{}, {}], tl.float32)\n    for t in range({}):\n", bk, bm, bn, places_ * steps);
    text += fmt::format("        place = t // {}\n        c = t % {} * {}\n", steps, steps, bk) + window_lines("        ", "place");
    text += fmt::format("        x = tl.load(x16 + ({} * {} + c)[:, None] + k[None, :], mask=inside[:, None], other=0.0)\n", pixel_of_x(), deep_);
    text += fmt::format("        y = tl.load(w16 + n[None, :] * {} + (place * {} + c) + k[:, None])\n", places_ * deep_, deep_);
    text += "        acc = tl.dot(x, y, acc=acc)\n";
    Params params{{"x16", ParamRole::kScratch}, {"w16", ParamRole::kScratch}};
    KO_TRY(const std::string late, late_lines("    ", params));
    add_kernel("multiply", params, text + late, blocks(conv_.pixels(), bm) * (columns_ / bn), plan_.warps, plan_.stages);
    return ok_status();
  }

  // Dims and strides, in elements, of an array (first, second, place…) that has `second` innermost. The library knows no convolutions in
  // one dim but those in two with one place in the first.
  static nlohmann::json channels_last(int64_t first, int64_t second, std::vector<int64_t> places) {
    if (places.size() == 1) places.insert(places.begin(), 1);
    std::vector<int64_t> size{first, second}, stride{second * all(places), 1};
    int64_t step = second * all(places);
    for (const int64_t extent : places) {
      step /= extent;
      size.push_back(extent);
      stride.push_back(step);
    }
    return {{"size", size}, {"stride", stride}};
  }

  void call_library() {
    const auto each = [](std::vector<int64_t> values, int64_t other) {
      if (values.size() == 1) values.insert(values.begin(), other);
      return values;
    };
    nlohmann::json numbers{{"stride", each(conv_.stride, 1)}, {"padding", each(conv_.padding, 0)}, {"dilation", each(conv_.dilation, 1)},
                           {"transposed", conv_.transposed}};
    numbers["x"] = channels_last(conv_.batch, deep_, conv_.size);
    numbers["w"] = conv_.transposed ? channels_last(deep_, columns_, conv_.window) : channels_last(columns_, deep_, conv_.window);
    numbers["out"] = channels_last(conv_.batch, columns_, conv_.out_size);
    add_call("convolve", {"convolution", std::move(numbers)}, "x16", "w16", "y16", conv_.pixels() * columns_);
  }

  // What the library has returned, widened, and what follows.
  Status finish() {
    const int64_t bm = plan_.block_m, bn = plan_.block_n;
    std::string text = block_lines(bm, bn);
    text += fmt::format("    acc = tl.load(y16 + m[:, None] * {} + n[None, :], mask=row_fine[:, None] & (n[None, :] < {}), other=0.0).to(tl.float32)\n",
                        columns_, conv_.outputs);
    Params params{{"y16", ParamRole::kScratch}};
    KO_TRY(const std::string late, late_lines("    ", params));
    add_kernel("finish", params, text + late, blocks(conv_.pixels(), bm) * blocks(columns_, bn), plan_.warps, plan_.stages);
    return ok_status();
  }

  // The guard, and blocks that do not pass it in fp32 units from x and w as they are. A kernel of its own: the one above keeps its
  // registers, and this one nearly always ends at once. (Triton truncates to TF32 where the library rounds.)
  Status safe_rows() {
    const int64_t bm = 64, bn = std::clamp<int64_t>(plan_.block_n, 16, 64), chunk = 1024, norms = places_ * deep_;
    std::string text = block_lines(bm, bn);
    text += fmt::format("    seen = tl.zeros([{}], tl.float32)\n    for place in range({}):\n", bm, places_) + window_lines("        ", "place");
    text += fmt::format("        seen += tl.load(energy + {}, mask=inside, other=0.0)\n", pixel_of_x());
    text += fmt::format("    least = tl.full([{0}], float('inf'), tl.float32)\n    whole = tl.zeros([{0}], tl.float32)\n    for t in range(0, {1}, {0}):\n", chunk, norms);
    text += fmt::format("        e = t + tl.arange(0, {})\n        w = tl.load(norms + e, mask=e < {}, other=float('inf'))\n", chunk, norms);
    text += "        least = tl.where(w >= 0.0, tl.minimum(least, w), -1.0)\n        whole += tl.where(w < float('inf'), w, 0.0)\n";
    text += "    low = seen * 0.0 + tl.min(least, 0)\n    norm = seen * 0.0 + tl.sum(whole, 0)\n";
    const std::string rounded = plan_.library ? fmt::format(" + {}.0", conv_.outputs) : "";
    const std::string held = plan_.library ? " & (norm * seen < 1073741824.0)" : "";
    text += fmt::format("    fine = (((norm + {}.0 * seen{}) <= 268435456.0 * low * seen){}) | ((seen == 0.0) & (low >= 0.0))\n", conv_.outputs, rounded,
                        held);
    text += "    bad = tl.max(tl.where(fine | (row_fine == 0), 0, 1), 0)\n";
    const int64_t steps = blocks(conv_.channels, kSafeK);
    text += fmt::format("    if bad != 0:\n        acc = tl.zeros([{}, {}], tl.float32)\n        for t in range({}):\n", bm, bn, places_ * steps);
    text += fmt::format("            place = t // {}\n            d = t % {} * {} + tl.arange(0, {})\n", steps, steps, kSafeK, kSafeK);
    text += window_lines("            ", "place");
    std::string from = fmt::format("{} + z * {}", conv_.x.offset, conv_.x.stride[0]);
    for (size_t dim = 0; dim < rank_; ++dim) from += fmt::format(" + i{} * {}", dim, conv_.x.stride[2 + dim]);
    text += fmt::format("            x = tl.load({} + ({})[:, None] + d[None, :] * {}, mask=inside[:, None] & (d[None, :] < {}), other=0.0)\n",
                        names_.at(conv_.x.name), from, conv_.x.stride[1], conv_.channels);
    text += "            left = place\n";
    std::string weight = std::to_string(conv_.w.offset);
    for (size_t dim = rank_; dim-- > 0;) {
      text += fmt::format("            v{} = left % {}\n            left = left // {}\n", dim, conv_.window[dim], conv_.window[dim]);
      weight += fmt::format(" + v{} * {}", dim, conv_.w.stride[2 + dim]);
    }
    text += fmt::format("            y = tl.load({} + {} + n[None, :] * {} + d[:, None] * {}, mask=(n[None, :] < {}) & (d[:, None] < {}), other=0.0)\n",
                        names_.at(conv_.w.name), weight, conv_.w.stride[0], conv_.w.stride[1], conv_.outputs, conv_.channels);
    text += "            acc = tl.dot(x, y, acc=acc, input_precision=\"ieee\")\n";
    Params params{{names_.at(conv_.x.name), ParamRole::kIn}};
    if (conv_.w.name != conv_.x.name) params.emplace_back(names_.at(conv_.w.name), ParamRole::kIn);
    for (const char* name : {"energy", "norms"}) params.emplace_back(name, ParamRole::kScratch);
    KO_TRY(const std::string late, late_lines("        ", params));
    add_kernel("safe_rows", params, text + late, blocks(conv_.pixels(), bm) * blocks(columns_, bn), 4, 2);
    return ok_status();
  }

  // What follows, over rows m and columns n.
  Result<std::string> late_lines(const std::string& margin, Params& params) {
    const std::string mask = fmt::format("row_fine[:, None] & (n[None, :] < {})", conv_.outputs);
    if (!conv_.late)
      return fmt::format("{}tl.store({} + {}, acc, mask={})\n", margin, touch(conv_.out.name, ParamRole::kOut, params), place_text(conv_.out_place()), mask);
    std::map<ValueId, Value> values;
    std::string text;
    size_t number = 0;
    for (const auto& f : conv_.late->ops) {
      const Op& op = f.op;
      const std::string name = fmt::format("l{}", number++);
      if (op.code == OpCode::kLoad && op.buffer == conv_.out.name) {
        values[op.id] = {"acc", DType::kFloat32, false, kRows | kColumns};
        continue;
      }
      if (op.code == OpCode::kLoad) {
        const DType type = program_.buffer(op.buffer).dtype;
        text += fmt::format("{}{} = tl.load({} + {}, mask={}, other=0){}\n", margin, name, touch(op.buffer, ParamRole::kIn, params), place_text(op.index), mask,
                            after_load(type));
      } else if (op.code == OpCode::kStore) {
        const DType type = program_.buffer(op.buffer).dtype;
        text += fmt::format("{}tl.store({} + {}, {}, mask={})\n", margin, touch(op.buffer, ParamRole::kOut, params), place_text(op.index),
                            as_type(values.at(op.args[0]), type), mask);
        continue;
      } else {
        std::vector<Value> args;
        for (const ValueId arg : op.args) args.push_back(values.at(arg));
        KO_TRY(const std::string right, pointwise(op, args, helpers_));
        text += fmt::format("{}{} = {}\n", margin, name, right);
      }
      values[op.id] = {name, op.dtype, false, kRows | kColumns};
    }
    return text;
  }

  // Of the full shape, as masks are.
  std::string place_text(const Expr& expr) const { return index_text(expr) + " + (m[:, None] + n[None, :]) * 0"; }
  // Indices of whole bodies are never negative.
  std::string index_text(const Expr& expr) const {
    const auto joined = [&](const char* sign) {
      std::string text;
      for (const auto& arg : expr.args()) text += (text.empty() ? "" : sign) + index_text(arg);
      return "(" + text + ")";
    };
    switch (expr.kind()) {
      case Expr::Kind::kConst: return std::to_string(expr.const_value());
      case Expr::Kind::kVar: return expr.var_name() == Convolution::kPixel ? "m[:, None]" : "n[None, :]";
      case Expr::Kind::kAdd: return joined(" + ");
      case Expr::Kind::kMul: return joined(" * ");
      case Expr::Kind::kFloorDiv: return joined(" // ");
      case Expr::Kind::kMod: return joined(" % ");
      case Expr::Kind::kMin: case Expr::Kind::kMax: {
        std::string text = index_text(expr.args()[0]);
        const char* function = expr.kind() == Expr::Kind::kMin ? "tl.minimum" : "tl.maximum";
        for (size_t i = 1; i < expr.args().size(); ++i) text = fmt::format("{}({}, {})", function, text, index_text(expr.args()[i]));
        return text;
      }
    }
    return "0";
  }

  const Convolution& conv_;
  const ConvolutionPlan& plan_;
  const size_t rank_;
  int64_t deep_ = 0, columns_ = 0;  // channels in and out, padded
  int64_t places_ = 1;              // of the window
  int64_t source_pixels_ = 1;
};

}  // namespace

Result<Candidate> print_convolution(const Program& program, const Group& group, const Convolution& convolution, const KernelPlan& plan) {
  KO_TRY(CandidateParts parts, ConvolutionPrinter(program, group, convolution, *plan.convolution).print());
  parts.plan = plan_to_json(plan);
  return Candidate(std::move(parts));
}

}  // namespace kernelopt::triton
