#include "kernelopt/ir/expr.h"

#include <gtest/gtest.h>

#include <random>

namespace kernelopt {
namespace {

using Extents = std::map<std::string, int64_t>;

Expr v(const char* name) { return Expr::var(name); }

TEST(ExprTest, ConstructorsFoldAndOrder) {
  EXPECT_EQ(v("a") + v("b") * 256, Expr(256) * v("b") + v("a"));
  EXPECT_EQ(v("a") - v("a"), Expr(0));
  EXPECT_EQ((v("a") + 3) * 4, Expr::add({v("a") * 4, Expr(12)}));
  EXPECT_EQ(Expr::floordiv(Expr(-7), Expr(2)), Expr(-4));
  EXPECT_EQ(Expr::mod(Expr(-7), Expr(4)), Expr(1));
  EXPECT_EQ(Expr::min({v("a"), Expr(7), Expr::min({v("a"), Expr(3)})}), Expr::min({v("a"), Expr(3)}));
  EXPECT_EQ(v("a") * 2 + v("a") * 3, v("a") * 5);
}

TEST(ExprTest, PrintsInfix) {
  EXPECT_EQ((v("p0") * 256 + v("p1") - 3).to_string(), "256*p0 + p1 - 3");
  EXPECT_EQ(Expr::mod(Expr::floordiv(v("p0") + 1, Expr(8)), Expr(4)).to_string(), "((p0 + 1) / 8) % 4");
  EXPECT_EQ((v("p0") * -1).to_string(), "-p0");
}

TEST(ExprTest, AffineIn) {
  const auto affine = affine_in((v("a") + v("b")) * 6 + v("a"), "a");
  ASSERT_TRUE(affine);
  EXPECT_EQ(affine->coefficient, 7);
  EXPECT_EQ(affine->rest, v("b") * 6);
  EXPECT_FALSE(affine_in(Expr::floordiv(v("a"), Expr(2)), "a"));
  EXPECT_EQ(affine_in(Expr::floordiv(v("b"), Expr(2)), "a")->coefficient, 0);
}

TEST(ExprTest, SubstituteAndDepend) {
  const Expr expr = Expr::floordiv(v("a") * 4 + v("b"), Expr(4));
  EXPECT_TRUE(expr.depends_on("b"));
  EXPECT_EQ(expr.substitute({{"a", Expr(2)}, {"b", Expr(5)}}), Expr(3));
  EXPECT_EQ(expr.variables(), (std::set<std::string>{"a", "b"}));
}

std::optional<Interval> range(const Expr& expr, const Extents& extents) {
  return bounds(expr, [&](const std::string& name) -> std::optional<Interval> {
    const auto found = extents.find(name);
    if (found == extents.end()) return std::nullopt;
    return Interval{0, found->second - 1};
  });
}

TEST(BoundsTest, KnownRanges) {
  const Extents extents = {{"a", 4}, {"b", 8}};
  const auto sum = range(v("a") * 8 - v("b") + 2, extents);
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->low, -5);
  EXPECT_EQ(sum->high, 26);
  EXPECT_FALSE(range(v("unknown") + 1, extents));
  const auto modulus = range(Expr::mod(v("unknown"), Expr(5)), extents);
  ASSERT_TRUE(modulus);
  EXPECT_EQ(modulus->high, 4);
  EXPECT_FALSE(range(v("a") * (int64_t{1} << 61), extents));
}

TEST(SimplifyTest, FlattenedLoopsAndViews) {
  const Extents e = {{"p0", 128}, {"p1", 256}, {"a", 100}, {"b", 64}, {"x", 32768}};
  const Expr flat = v("p0") * 256 + v("p1");
  EXPECT_EQ(simplify(Expr::floordiv(flat, Expr(256)), e), v("p0"));
  EXPECT_EQ(simplify(Expr::mod(flat, Expr(256)), e), v("p1"));
  EXPECT_EQ(simplify(Expr::mod(v("a") * 64 + v("b"), Expr(64)), e), v("b"));
  EXPECT_EQ(simplify(Expr::floordiv(v("a") * 64 + v("b"), Expr(256)), e), Expr::floordiv(v("a"), Expr(4)));
  EXPECT_EQ(simplify(Expr::mod(v("a") * 64 + v("b"), Expr(256)), e), Expr::mod(v("a"), Expr(4)) * 64 + v("b"));
  EXPECT_EQ(simplify(Expr::floordiv(Expr::floordiv(v("x"), Expr(16)), Expr(8)), e), Expr::floordiv(v("x"), Expr(128)));
  EXPECT_EQ(simplify(Expr::floordiv(v("x"), Expr(32768)), e), Expr(0));
  EXPECT_EQ(simplify(Expr::mod(v("x") + 32768 * 3, Expr(32768)), e), v("x"));
  EXPECT_EQ(simplify(Expr::floordiv(v("p1") * -1 + 255, Expr(256)), e), Expr(0));
}

TEST(SimplifyTest, RejoinsWhatViewsTookApart) {
  const Extents e = {{"x", 32768}, {"p0", 128}, {"p1", 256}};
  const auto div = [](const Expr& a, int64_t c) { return Expr::floordiv(a, Expr(c)); };
  const auto mod = [](const Expr& a, int64_t c) { return Expr::mod(a, Expr(c)); };
  EXPECT_EQ(simplify(div(v("x"), 256) * 256 + mod(v("x"), 256), e), v("x"));
  EXPECT_EQ(simplify(mod(v("x"), 16) + mod(div(v("x"), 16), 16) * 16 + div(v("x"), 256) * 256, e), v("x"));
  EXPECT_EQ(simplify(mod(v("x"), 16) + mod(div(v("x"), 16), 4) * 16, e), mod(v("x"), 64));
  // A (128, 256) tensor viewed as (512, 64), indexed by its own loops again.
  const Expr flat = v("p0") * 256 + v("p1");
  EXPECT_EQ(simplify(div(flat, 64) * 64 + mod(flat, 64), e), flat);
  EXPECT_EQ(simplify(div(mod(v("x"), 256), 16), e), mod(div(v("x"), 16), 16));
}

TEST(SimplifyTest, UnboundedSymbolsStay) {
  const Extents e = {{"p0", 8}};
  const Expr expr = Expr::floordiv(v("tmp0") * 8 + v("p0"), Expr(8));
  EXPECT_EQ(simplify(expr, e), v("tmp0"));
  EXPECT_EQ(simplify(Expr::mod(v("tmp0"), Expr(8)), e), Expr::mod(v("tmp0"), Expr(8)));
}

TEST(SimplifyTest, ExtentOneVanishesAndExtremaResolve) {
  const Extents e = {{"one", 1}, {"p0", 8}};
  EXPECT_EQ(simplify(v("one") * 5 + v("p0"), e), v("p0"));
  EXPECT_EQ(simplify(Expr::min({v("p0"), Expr(7)}), e), v("p0"));
  EXPECT_EQ(simplify(Expr::max({v("p0"), Expr(-1)}), e), v("p0"));
  EXPECT_EQ(simplify(Expr::min({v("p0"), Expr(6)}), e), Expr::min({v("p0"), Expr(6)}));
}

// Random expressions: simplify must keep the value, and bounds must hold, for random assignments.
class RandomExpr {
 public:
  explicit RandomExpr(uint32_t seed) : random_(seed) {
    const int64_t choices[] = {1, 2, 3, 4, 7, 8, 12, 16, 64, 100};
    for (const char* name : {"a", "b", "c", "d"}) extents_[name] = choices[pick(10)];
  }

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  Expr make(int depth) {
    if (depth == 0 || pick(6) == 0) return pick(4) == 0 ? Expr(pick(40) - 10) : leaf();
    const int64_t divisors[] = {1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 96};
    switch (pick(9)) {
      case 0: case 1: case 2: return make(depth - 1) + make(depth - 1);
      case 3: return make(depth - 1) * divisors[pick(11)];
      case 4: case 5: return Expr::floordiv(make(depth - 1), Expr(divisors[pick(11)]));
      case 6: case 7: return Expr::mod(make(depth - 1), Expr(divisors[pick(11)]));
      default: return pick(2) ? Expr::min({make(depth - 1), make(depth - 1)}) : Expr::max({make(depth - 1), make(depth - 1)}) - make(depth - 1);
    }
  }

  Extents assignment() {
    Extents values;
    for (const auto& [name, extent] : extents_) values[name] = static_cast<int64_t>(random_() % static_cast<uint64_t>(extent));
    return values;
  }

  const Extents& extents() const { return extents_; }

 private:
  Expr leaf() {
    const char* names[] = {"a", "b", "c", "d"};
    return Expr::var(names[pick(4)]);
  }

  std::mt19937 random_;
  Extents extents_;
};

TEST(SimplifyTest, RandomExpressionsKeepTheirValue) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    RandomExpr source(seed);
    const Expr expr = source.make(5);
    const Expr simple = simplify(expr, source.extents());
    const auto interval = range(expr, source.extents());
    ASSERT_TRUE(interval) << expr.to_string();
    for (int i = 0; i < 25; ++i) {
      const Extents values = source.assignment();
      const int64_t expected = expr.evaluate(values);
      ASSERT_EQ(expected, simple.evaluate(values)) << "seed " << seed << ": " << expr.to_string() << "  ->  " << simple.to_string();
      ASSERT_LE(interval->low, expected) << expr.to_string();
      ASSERT_GE(interval->high, expected) << expr.to_string();
    }
  }
}

// Splitting a flat index into digits and putting it together again is the identity, whatever the radices.
TEST(SimplifyTest, DigitsRoundTrip) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t radix[] = {1 + static_cast<int64_t>(random() % 9), 1 + static_cast<int64_t>(random() % 9), 1 + static_cast<int64_t>(random() % 9)};
    const Extents e = {{"x", radix[0] * radix[1] * radix[2]}};
    const Expr x = v("x");
    const Expr again = Expr::floordiv(x, Expr(radix[1] * radix[2])) * (radix[1] * radix[2]) +
                       Expr::mod(Expr::floordiv(x, Expr(radix[2])), Expr(radix[1])) * radix[2] + Expr::mod(x, Expr(radix[2]));
    EXPECT_EQ(simplify(again, e), simplify(x, e)) << radix[0] << " " << radix[1] << " " << radix[2];
    const Extents loops = {{"i", radix[0]}, {"j", radix[1]}, {"k", radix[2]}};
    const Expr flat = (v("i") * radix[1] + v("j")) * radix[2] + v("k");
    EXPECT_EQ(simplify(Expr::floordiv(flat, Expr(radix[1] * radix[2])), loops), simplify(v("i"), loops));
    EXPECT_EQ(simplify(Expr::mod(Expr::floordiv(flat, Expr(radix[2])), Expr(radix[1])), loops), simplify(v("j"), loops));
    EXPECT_EQ(simplify(Expr::mod(flat, Expr(radix[2])), loops), simplify(v("k"), loops));
  }
}

}  // namespace
}  // namespace kernelopt
