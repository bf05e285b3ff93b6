// Integer index expressions: immutable trees over loop variables and indirect symbols.
//
// Division and modulus have floor semantics and positive divisors, as sympy's FloorDiv and Mod. Constructors fold
// constants and flatten sums and products, so structurally equal expressions usually compare equal.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace kernelopt {

class Expr {
 public:
  enum class Kind { kConst, kVar, kAdd, kMul, kFloorDiv, kMod, kMin, kMax };

  Expr();  // the constant 0
  Expr(int64_t value);
  static Expr var(std::string name);
  static Expr add(std::vector<Expr> terms);
  static Expr mul(std::vector<Expr> factors);
  static Expr floordiv(Expr a, Expr b);
  static Expr mod(Expr a, Expr b);
  static Expr min(std::vector<Expr> args);
  static Expr max(std::vector<Expr> args);

  Kind kind() const;
  bool is_const() const { return kind() == Kind::kConst; }
  bool is_const(int64_t value) const { return is_const() && const_value() == value; }
  int64_t const_value() const;             // kConst only
  const std::string& var_name() const;     // kVar only
  const std::vector<Expr>& args() const;

  friend Expr operator+(const Expr& a, const Expr& b) { return add({a, b}); }
  friend Expr operator-(const Expr& a, const Expr& b) { return add({a, mul({Expr(-1), b})}); }
  friend Expr operator*(const Expr& a, const Expr& b) { return mul({a, b}); }
  friend bool operator==(const Expr& a, const Expr& b);
  friend bool operator<(const Expr& a, const Expr& b);  // an arbitrary total order, for maps

  // Infix text for people and for C (`infix`: floor division and modulus by `/` and `%` are printed as given).
  std::string to_string() const;
  std::set<std::string> variables() const;
  bool depends_on(const std::string& name) const;
  Expr substitute(const std::map<std::string, Expr>& replacement) const;
  // Value under an assignment of every variable. A missing variable is our own bug.
  int64_t evaluate(const std::map<std::string, int64_t>& values) const;

 private:
  struct Node;
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

// expr == coefficient * name + rest, with constant coefficient and rest free of name; nullopt if it is not affine in name.
struct AffineIn {
  int64_t coefficient;
  Expr rest;
};
std::optional<AffineIn> affine_in(const Expr& expr, const std::string& name);

// Inclusive bounds by interval arithmetic, given inclusive bounds of every variable; nullopt when a variable is unbounded
// or a bound does not fit in 62 bits.
struct Interval {
  int64_t low;
  int64_t high;
};
std::optional<Interval> bounds(const Expr& expr, const std::function<std::optional<Interval>(const std::string&)>& of);

// Rewrites with the extents of the variables (0 <= v < extent): (c*v + r) floordiv/mod where ranges make them trivial,
// splits sums divisible by the divisor. Value-preserving on the given ranges.
Expr simplify(const Expr& expr, const std::map<std::string, int64_t>& extents);

}  // namespace kernelopt
