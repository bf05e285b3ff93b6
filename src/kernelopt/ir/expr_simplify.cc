// simplify(): range-aware rewriting of index expressions.
//
// Reading guide. A sum is taken apart into (term, coefficient) pairs plus a constant. floordiv and mod by a constant c:
//   1. terms whose coefficient is a multiple of c leave the division (floordiv) or vanish (mod);
//   2. if the rest lies within one multiple of c, the result is known;
//   3. for a divisor g of c, if the terms not divisible by g stay within [0, g), the division is nested: the small part
//      is dropped (floordiv) or stands outside (mod), and g is divided out.
// Sums then rejoin what divisions took apart: mod(y, d) + d * floordiv(y, d) -> y, and the same one level up. Every step
// preserves the value for all assignments within the extents; the test evaluates both sides on random expressions.
#include <algorithm>
#include <numeric>
#include <utility>

#include "kernelopt/base/check.h"
#include "kernelopt/ir/expr.h"

namespace kernelopt {
namespace {

struct Term {
  Expr expr;
  int64_t coefficient;
};

struct Sum {
  std::vector<Term> terms;
  int64_t constant = 0;

  Expr expr() const {
    std::vector<Expr> parts;
    for (const auto& term : terms) parts.push_back(Expr::mul({term.expr, Expr(term.coefficient)}));
    parts.emplace_back(constant);
    return Expr::add(std::move(parts));
  }
};

Sum split(const Expr& expr) {
  Sum sum;
  const auto take = [&](const Expr& term) {
    if (term.is_const()) {
      sum.constant += term.const_value();
    } else if (term.kind() == Expr::Kind::kMul && term.args().back().is_const()) {
      sum.terms.push_back({Expr::mul({term.args().begin(), term.args().end() - 1}), term.args().back().const_value()});
    } else {
      sum.terms.push_back({term, 1});
    }
  };
  if (expr.kind() == Expr::Kind::kAdd)
    for (const auto& term : expr.args()) take(term);
  else
    take(expr);
  return sum;
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
int64_t floor_mod(int64_t a, int64_t b) { return a % b < 0 ? a % b + b : a % b; }

class Simplifier {
 public:
  explicit Simplifier(const std::map<std::string, int64_t>& extents) : extents_(extents) {}

  Expr run(const Expr& expr) const {
    switch (expr.kind()) {
      case Expr::Kind::kConst: return expr;
      case Expr::Kind::kVar: {
        const auto found = extents_.find(expr.var_name());
        return found != extents_.end() && found->second == 1 ? Expr(0) : expr;
      }
      case Expr::Kind::kAdd: return rejoin(Expr::add(run_args(expr)));
      case Expr::Kind::kMul: {
        const Expr product = Expr::mul(run_args(expr));
        return product.kind() == Expr::Kind::kAdd ? rejoin(product) : product;
      }
      case Expr::Kind::kFloorDiv: {
        const auto args = run_args(expr);
        return args[1].is_const() ? divide(args[0], args[1].const_value()) : Expr::floordiv(args[0], args[1]);
      }
      case Expr::Kind::kMod: {
        const auto args = run_args(expr);
        return args[1].is_const() ? modulo(args[0], args[1].const_value()) : Expr::mod(args[0], args[1]);
      }
      case Expr::Kind::kMin: return extremum(expr, true);
      case Expr::Kind::kMax: return extremum(expr, false);
    }
    return expr;
  }

 private:
  std::vector<Expr> run_args(const Expr& expr) const {
    std::vector<Expr> result;
    for (const auto& arg : expr.args()) result.push_back(run(arg));
    return result;
  }

  std::optional<Interval> range(const Expr& expr) const {
    return bounds(expr, [this](const std::string& name) -> std::optional<Interval> {
      const auto found = extents_.find(name);
      if (found == extents_.end() || found->second < 1) return std::nullopt;
      return Interval{0, found->second - 1};
    });
  }

  // Divisors of c worth trying for step 3, largest first: each common divisor of c and a coefficient, and those of pairs.
  static std::vector<int64_t> split_points(const Sum& sum, int64_t c) {
    std::set<int64_t> found;
    for (const auto& term : sum.terms) found.insert(std::gcd(term.coefficient, c));
    const std::vector<int64_t> single(found.begin(), found.end());
    for (const int64_t a : single)
      for (const int64_t b : single) found.insert(std::gcd(a, b));
    found.erase(1);
    return {found.rbegin(), found.rend()};
  }

  // sum = g * large + small with small in [0, g).
  struct Split {
    Expr large, small;
  };
  std::optional<Split> split_at(const Sum& sum, int64_t g) const {
    Sum large, small;
    for (const auto& term : sum.terms) {
      if (term.coefficient % g == 0) large.terms.push_back({term.expr, term.coefficient / g});
      else small.terms.push_back(term);
    }
    if (large.terms.empty()) return std::nullopt;
    large.constant = floor_div(sum.constant, g);
    small.constant = floor_mod(sum.constant, g);
    const auto interval = range(small.expr());
    if (!interval) return std::nullopt;
    const int64_t low = floor_div(interval->low, g);
    if (low != floor_div(interval->high, g)) return std::nullopt;
    large.constant += low;
    small.constant -= low * g;
    return Split{large.expr(), small.expr()};
  }

  Expr divide(const Expr& value, int64_t c) const {
    if (c == 1) return value;
    if (value.is_const()) return Expr(floor_div(value.const_value(), c));
    if (const auto interval = range(value))
      if (const int64_t low = floor_div(interval->low, c); low == floor_div(interval->high, c)) return Expr(low);
    if (value.kind() == Expr::Kind::kFloorDiv && value.args()[1].is_const())
      if (int64_t product; !__builtin_mul_overflow(value.args()[1].const_value(), c, &product))
        return divide(value.args()[0], product);
    // floordiv(mod(y, n), c) with c | n is mod(floordiv(y, c), n / c): one normal form for both spellings of a view.
    if (value.kind() == Expr::Kind::kMod && value.args()[1].is_const() && value.args()[1].const_value() % c == 0)
      return modulo(divide(value.args()[0], c), value.args()[1].const_value() / c);

    const Sum sum = split(value);
    Sum quotient, rest;
    for (const auto& term : sum.terms) {
      if (term.coefficient % c == 0) quotient.terms.push_back({term.expr, term.coefficient / c});
      else rest.terms.push_back(term);
    }
    quotient.constant = floor_div(sum.constant, c);
    rest.constant = floor_mod(sum.constant, c);
    if (!quotient.terms.empty() || quotient.constant != 0)
      return rejoin(Expr::add({quotient.expr(), divide(rest.expr(), c)}));
    for (const int64_t g : split_points(rest, c))
      if (const auto parts = split_at(rest, g)) return divide(rejoin(parts->large), c / g);
    return Expr::floordiv(value, Expr(c));
  }

  Expr modulo(const Expr& value, int64_t m) const {
    if (m == 1) return Expr(0);
    if (value.is_const()) return Expr(floor_mod(value.const_value(), m));
    if (const auto interval = range(value))
      if (const int64_t low = floor_div(interval->low, m); low == floor_div(interval->high, m))
        return Expr::add({value, Expr(-low * m)});

    const Sum sum = split(value);
    Sum rest;
    bool changed = false;
    std::vector<Expr> opened;
    for (const auto& term : sum.terms) {
      const int64_t coefficient = term.coefficient % m;
      changed |= coefficient != term.coefficient;
      if (coefficient == 0) continue;
      // mod(k * mod(y, n) + z, m) with m | k * n: the inner modulus is not needed.
      if (term.expr.kind() == Expr::Kind::kMod && term.expr.args()[1].is_const()) {
        int64_t product = 0;
        if (!__builtin_mul_overflow(coefficient, term.expr.args()[1].const_value(), &product) && product % m == 0) {
          opened.push_back(Expr::mul({term.expr.args()[0], Expr(coefficient)}));
          changed = true;
          continue;
        }
      }
      rest.terms.push_back({term.expr, coefficient});
    }
    rest.constant = floor_mod(sum.constant, m);
    changed |= rest.constant != sum.constant;
    if (changed) {
      opened.push_back(rest.expr());
      return modulo(rejoin(Expr::add(std::move(opened))), m);
    }
    for (const int64_t g : split_points(rest, m))
      if (const auto parts = split_at(rest, g))
        return rejoin(Expr::add({Expr::mul({modulo(rejoin(parts->large), m / g), Expr(g)}), parts->small}));
    return Expr::mod(value, Expr(m));
  }

  // k * mod(y, d) + k * d * floordiv(y, d) -> k * y, and k * mod(y, d) + k * d * mod(floordiv(y, d), m) -> k * mod(y, d * m).
  Expr rejoin(const Expr& expr) const {
    if (expr.kind() != Expr::Kind::kAdd) return expr;
    Sum sum = split(expr);
    for (size_t i = 0; i < sum.terms.size(); ++i) {
      const Term low = sum.terms[i];
      if (low.expr.kind() != Expr::Kind::kMod || !low.expr.args()[1].is_const()) continue;
      const Expr& y = low.expr.args()[0];
      const int64_t d = low.expr.args()[1].const_value();
      int64_t step = 0;
      if (__builtin_mul_overflow(low.coefficient, d, &step)) continue;
      const Sum quotient = split(divide(y, d));
      // The quotient of a sum may itself be a sum; then all of its terms must be there with the right coefficients.
      if (const auto without = subtract(sum, quotient, step, i))
        return rejoin(Expr::add({without->expr(), Expr::mul({y, Expr(low.coefficient)})}));
      for (size_t j = 0; j < sum.terms.size(); ++j) {
        const Term& high = sum.terms[j];
        if (j == i || high.coefficient != step || high.expr.kind() != Expr::Kind::kMod) continue;
        if (!high.expr.args()[1].is_const() || !(high.expr.args()[0] == quotient.expr())) continue;
        int64_t product = 0;
        if (__builtin_mul_overflow(d, high.expr.args()[1].const_value(), &product)) continue;
        Sum without;
        without.constant = sum.constant;
        for (size_t k = 0; k < sum.terms.size(); ++k)
          if (k != i && k != j) without.terms.push_back(sum.terms[k]);
        return rejoin(Expr::add({without.expr(), Expr::mul({modulo(y, product), Expr(low.coefficient)})}));
      }
    }
    return expr;
  }

  // sum - (term `skip`) - factor * part, if every term of `part` is in `sum` with exactly that coefficient.
  static std::optional<Sum> subtract(const Sum& sum, const Sum& part, int64_t factor, size_t skip) {
    if (part.terms.empty()) return std::nullopt;
    std::vector<bool> used(sum.terms.size(), false);
    used[skip] = true;
    for (const auto& term : part.terms) {
      int64_t wanted = 0;
      if (__builtin_mul_overflow(term.coefficient, factor, &wanted)) return std::nullopt;
      bool found = false;
      for (size_t i = 0; i < sum.terms.size() && !found; ++i) {
        if (used[i] || sum.terms[i].coefficient != wanted || !(sum.terms[i].expr == term.expr)) continue;
        used[i] = found = true;
      }
      if (!found) return std::nullopt;
    }
    Sum result;
    result.constant = sum.constant - factor * part.constant;
    for (size_t i = 0; i < sum.terms.size(); ++i)
      if (!used[i]) result.terms.push_back(sum.terms[i]);
    return result;
  }

  Expr extremum(const Expr& expr, bool is_min) const {
    const std::vector<Expr> args = run_args(expr);
    std::vector<bool> dropped(args.size(), false);
    for (size_t i = 0; i < args.size(); ++i) {
      const auto mine = range(args[i]);
      if (!mine) continue;
      for (size_t j = 0; j < args.size() && !dropped[i]; ++j) {
        if (j == i || dropped[j]) continue;
        const auto other = range(args[j]);
        dropped[i] = other && (is_min ? other->high <= mine->low : other->low >= mine->high);
      }
    }
    std::vector<Expr> kept;
    for (size_t i = 0; i < args.size(); ++i)
      if (!dropped[i]) kept.push_back(args[i]);
    return is_min ? Expr::min(std::move(kept)) : Expr::max(std::move(kept));
  }

  const std::map<std::string, int64_t>& extents_;
};

}  // namespace

Expr simplify(const Expr& expr, const std::map<std::string, int64_t>& extents) { return Simplifier(extents).run(expr); }

}  // namespace kernelopt
