// Expression nodes, canonicalising constructors, evaluation and bounds. simplify() is in expr_simplify.cc.
#include "kernelopt/ir/expr.h"

#include <algorithm>
#include <utility>

#include "kernelopt/base/check.h"

namespace kernelopt {

struct Expr::Node {
  Kind kind = Kind::kConst;
  int64_t value = 0;
  std::string name;
  std::vector<Expr> args;
};

namespace {

// Index arithmetic wraps instead of being undefined; real indices are far below 2^62 (bounds() refuses larger ones).
int64_t wrap_add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
int64_t wrap_mul(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

int64_t floor_div(int64_t a, int64_t b) {
  KO_CHECK(b > 0, "division of an index by a number that is not positive");
  return a / b - (a % b < 0 ? 1 : 0);
}
int64_t floor_mod(int64_t a, int64_t b) {
  KO_CHECK(b > 0, "modulus of an index by a number that is not positive");
  const int64_t r = a % b;
  return r < 0 ? r + b : r;
}

// Constants sort last so that sums read "256*p0 + p1 + 3".
int rank(Expr::Kind kind) {
  switch (kind) {
    case Expr::Kind::kVar: return 0;
    case Expr::Kind::kMul: return 1;
    case Expr::Kind::kAdd: return 2;
    case Expr::Kind::kFloorDiv: return 3;
    case Expr::Kind::kMod: return 4;
    case Expr::Kind::kMin: return 5;
    case Expr::Kind::kMax: return 6;
    case Expr::Kind::kConst: return 7;
  }
  return 8;
}

int compare(const Expr& a, const Expr& b) {
  if (rank(a.kind()) != rank(b.kind())) return rank(a.kind()) < rank(b.kind()) ? -1 : 1;
  if (a.kind() == Expr::Kind::kConst)
    return a.const_value() < b.const_value() ? -1 : a.const_value() > b.const_value() ? 1 : 0;
  if (a.kind() == Expr::Kind::kVar) return a.var_name().compare(b.var_name());
  const auto &left = a.args(), &right = b.args();
  if (&left == &right) return 0;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i)
    if (const int order = compare(left[i], right[i]); order != 0) return order;
  return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
}

struct Less {
  bool operator()(const Expr& a, const Expr& b) const { return compare(a, b) < 0; }
};

}  // namespace

Expr::Expr() : Expr(int64_t{0}) {}

Expr::Expr(int64_t value) {
  auto node = std::make_shared<Node>();
  node->value = value;
  node_ = std::move(node);
}

Expr Expr::var(std::string name) {
  auto node = std::make_shared<Node>();
  node->kind = Kind::kVar;
  node->name = std::move(name);
  return Expr(std::move(node));
}

Expr Expr::add(std::vector<Expr> terms) {
  std::map<Expr, int64_t, Less> coefficients;
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> work;
  for (auto& term : terms) work.emplace_back(std::move(term), 1);
  while (!work.empty()) {
    auto [term, factor] = std::move(work.back());
    work.pop_back();
    if (term.is_const()) {
      constant = wrap_add(constant, wrap_mul(factor, term.const_value()));
    } else if (term.kind() == Kind::kAdd) {
      for (const auto& inner : term.args()) work.emplace_back(inner, factor);
    } else if (term.kind() == Kind::kMul && term.args().back().is_const()) {
      std::vector<Expr> rest(term.args().begin(), term.args().end() - 1);
      const int64_t inner = term.args().back().const_value();
      work.emplace_back(mul(std::move(rest)), wrap_mul(factor, inner));
    } else {
      auto [at, fresh] = coefficients.try_emplace(term, 0);
      at->second = wrap_add(at->second, factor);
    }
  }
  std::vector<Expr> result;
  for (const auto& [term, coefficient] : coefficients)
    if (coefficient != 0) result.push_back(coefficient == 1 ? term : mul({term, Expr(coefficient)}));
  if (constant != 0 || result.empty()) result.emplace_back(constant);
  if (result.size() == 1) return result.front();
  auto node = std::make_shared<Node>();
  node->kind = Kind::kAdd;
  node->args = std::move(result);
  return Expr(std::move(node));
}

Expr Expr::mul(std::vector<Expr> factors) {
  std::vector<Expr> rest;
  int64_t constant = 1;
  while (!factors.empty()) {
    Expr factor = std::move(factors.back());
    factors.pop_back();
    if (factor.is_const()) {
      constant = wrap_mul(constant, factor.const_value());
    } else if (factor.kind() == Kind::kMul) {
      factors.insert(factors.end(), factor.args().begin(), factor.args().end());
    } else {
      rest.push_back(std::move(factor));
    }
  }
  if (constant == 0 || rest.empty()) return Expr(constant);
  std::sort(rest.begin(), rest.end(), Less{});
  if (rest.size() == 1) {
    if (constant == 1) return rest.front();
    if (rest.front().kind() == Kind::kAdd) {
      std::vector<Expr> terms;
      for (const auto& term : rest.front().args()) terms.push_back(mul({term, Expr(constant)}));
      return add(std::move(terms));
    }
  }
  if (constant != 1) rest.emplace_back(constant);
  auto node = std::make_shared<Node>();
  node->kind = Kind::kMul;
  node->args = std::move(rest);
  return Expr(std::move(node));
}

Expr Expr::floordiv(Expr a, Expr b) {
  if (b.is_const()) {
    KO_CHECK(b.const_value() > 0, "divisor that is not positive");
    if (b.is_const(1)) return a;
    if (a.is_const()) return Expr(floor_div(a.const_value(), b.const_value()));
  }
  auto node = std::make_shared<Node>();
  node->kind = Kind::kFloorDiv;
  node->args = {std::move(a), std::move(b)};
  return Expr(std::move(node));
}

Expr Expr::mod(Expr a, Expr b) {
  if (b.is_const()) {
    KO_CHECK(b.const_value() > 0, "modulus that is not positive");
    if (b.is_const(1)) return Expr(0);
    if (a.is_const()) return Expr(floor_mod(a.const_value(), b.const_value()));
  }
  auto node = std::make_shared<Node>();
  node->kind = Kind::kMod;
  node->args = {std::move(a), std::move(b)};
  return Expr(std::move(node));
}

namespace {

// Flattens, folds constants and drops duplicates of min or max.
std::vector<Expr> extremum_args(Expr::Kind kind, std::vector<Expr> args) {
  KO_CHECK(!args.empty(), "min or max of nothing");
  std::set<Expr, Less> kept;
  std::optional<int64_t> constant;
  while (!args.empty()) {
    Expr arg = std::move(args.back());
    args.pop_back();
    if (arg.is_const()) {
      const int64_t value = arg.const_value();
      constant = !constant ? value : kind == Expr::Kind::kMin ? std::min(*constant, value) : std::max(*constant, value);
    } else if (arg.kind() == kind) {
      args.insert(args.end(), arg.args().begin(), arg.args().end());
    } else {
      kept.insert(std::move(arg));
    }
  }
  std::vector<Expr> result(kept.begin(), kept.end());
  if (constant) result.emplace_back(*constant);
  return result;
}

}  // namespace

Expr Expr::min(std::vector<Expr> args) {
  args = extremum_args(Kind::kMin, std::move(args));
  if (args.size() == 1) return args.front();
  auto node = std::make_shared<Node>();
  node->kind = Kind::kMin;
  node->args = std::move(args);
  return Expr(std::move(node));
}

Expr Expr::max(std::vector<Expr> args) {
  args = extremum_args(Kind::kMax, std::move(args));
  if (args.size() == 1) return args.front();
  auto node = std::make_shared<Node>();
  node->kind = Kind::kMax;
  node->args = std::move(args);
  return Expr(std::move(node));
}

Expr::Kind Expr::kind() const { return node_->kind; }
int64_t Expr::const_value() const {
  KO_CHECK(is_const(), "const_value of " + to_string());
  return node_->value;
}
const std::string& Expr::var_name() const {
  KO_CHECK(kind() == Kind::kVar, "var_name of " + to_string());
  return node_->name;
}
const std::vector<Expr>& Expr::args() const { return node_->args; }

bool operator==(const Expr& a, const Expr& b) { return a.node_ == b.node_ || compare(a, b) == 0; }
bool operator<(const Expr& a, const Expr& b) { return compare(a, b) < 0; }

std::string Expr::to_string() const {
  const auto wrapped = [](const Expr& arg) {
    const bool atom = arg.kind() == Kind::kVar || (arg.is_const() && arg.const_value() >= 0) ||
                      arg.kind() == Kind::kMin || arg.kind() == Kind::kMax;
    return atom ? arg.to_string() : "(" + arg.to_string() + ")";
  };
  std::string text;
  switch (kind()) {
    case Kind::kConst: return std::to_string(node_->value);
    case Kind::kVar: return node_->name;
    case Kind::kAdd:
      for (const auto& term : args()) {
        const std::string part = term.kind() == Kind::kMul || term.is_const() ? term.to_string() : wrapped(term);
        if (text.empty()) text = part;
        else if (part.front() == '-') text += " - " + part.substr(1);
        else text += " + " + part;
      }
      return text;
    case Kind::kMul: {
      std::vector<Expr> rest = args();
      if (rest.back().is_const()) {
        text = rest.back().is_const(-1) ? "-" : rest.back().to_string() + "*";
        rest.pop_back();
      }
      for (size_t i = 0; i < rest.size(); ++i) text += (i == 0 ? "" : "*") + wrapped(rest[i]);
      return text;
    }
    case Kind::kFloorDiv: return wrapped(args()[0]) + " / " + wrapped(args()[1]);
    case Kind::kMod: return wrapped(args()[0]) + " % " + wrapped(args()[1]);
    case Kind::kMin:
    case Kind::kMax:
      for (const auto& arg : args()) text += (text.empty() ? "" : ", ") + arg.to_string();
      return (kind() == Kind::kMin ? "min(" : "max(") + text + ")";
  }
  return text;
}

namespace {

void collect(const Expr& expr, std::set<std::string>& names) {
  if (expr.kind() == Expr::Kind::kVar) names.insert(expr.var_name());
  for (const auto& arg : expr.args()) collect(arg, names);
}

Expr rebuild(Expr::Kind kind, std::vector<Expr> args) {
  switch (kind) {
    case Expr::Kind::kAdd: return Expr::add(std::move(args));
    case Expr::Kind::kMul: return Expr::mul(std::move(args));
    case Expr::Kind::kFloorDiv: return Expr::floordiv(args[0], args[1]);
    case Expr::Kind::kMod: return Expr::mod(args[0], args[1]);
    case Expr::Kind::kMin: return Expr::min(std::move(args));
    case Expr::Kind::kMax: return Expr::max(std::move(args));
    case Expr::Kind::kConst:
    case Expr::Kind::kVar: break;
  }
  check_failed(__FILE__, __LINE__, "kind", "rebuild of a leaf");
}

}  // namespace

std::set<std::string> Expr::variables() const {
  std::set<std::string> names;
  collect(*this, names);
  return names;
}

bool Expr::depends_on(const std::string& name) const {
  if (kind() == Kind::kVar) return node_->name == name;
  return std::any_of(args().begin(), args().end(), [&](const Expr& arg) { return arg.depends_on(name); });
}

Expr Expr::substitute(const std::map<std::string, Expr>& replacement) const {
  if (is_const()) return *this;
  if (kind() == Kind::kVar) {
    const auto found = replacement.find(node_->name);
    return found == replacement.end() ? *this : found->second;
  }
  std::vector<Expr> fresh;
  fresh.reserve(args().size());
  for (const auto& arg : args()) fresh.push_back(arg.substitute(replacement));
  return rebuild(kind(), std::move(fresh));
}

int64_t Expr::evaluate(const std::map<std::string, int64_t>& values) const {
  switch (kind()) {
    case Kind::kConst: return node_->value;
    case Kind::kVar: {
      const auto found = values.find(node_->name);
      KO_CHECK(found != values.end(), "no value for " + node_->name);
      return found->second;
    }
    case Kind::kFloorDiv: return floor_div(args()[0].evaluate(values), args()[1].evaluate(values));
    case Kind::kMod: return floor_mod(args()[0].evaluate(values), args()[1].evaluate(values));
    case Kind::kAdd:
    case Kind::kMul:
    case Kind::kMin:
    case Kind::kMax: break;
  }
  int64_t result = args().front().evaluate(values);
  for (size_t i = 1; i < args().size(); ++i) {
    const int64_t next = args()[i].evaluate(values);
    if (kind() == Kind::kAdd) result = wrap_add(result, next);
    else if (kind() == Kind::kMul) result = wrap_mul(result, next);
    else if (kind() == Kind::kMin) result = std::min(result, next);
    else result = std::max(result, next);
  }
  return result;
}

std::optional<AffineIn> affine_in(const Expr& expr, const std::string& name) {
  if (!expr.depends_on(name)) return AffineIn{0, expr};
  switch (expr.kind()) {
    case Expr::Kind::kVar: return AffineIn{1, Expr(0)};
    case Expr::Kind::kAdd: {
      int64_t coefficient = 0;
      std::vector<Expr> rest;
      for (const auto& term : expr.args()) {
        const auto part = affine_in(term, name);
        if (!part) return std::nullopt;
        coefficient = wrap_add(coefficient, part->coefficient);
        rest.push_back(part->rest);
      }
      return AffineIn{coefficient, Expr::add(std::move(rest))};
    }
    case Expr::Kind::kMul: {
      if (!expr.args().back().is_const()) return std::nullopt;
      const int64_t factor = expr.args().back().const_value();
      const auto inner = affine_in(Expr::mul({expr.args().begin(), expr.args().end() - 1}), name);
      if (!inner) return std::nullopt;
      return AffineIn{wrap_mul(factor, inner->coefficient), inner->rest * Expr(factor)};
    }
    case Expr::Kind::kConst:
    case Expr::Kind::kFloorDiv:
    case Expr::Kind::kMod:
    case Expr::Kind::kMin:
    case Expr::Kind::kMax: break;
  }
  return std::nullopt;
}

namespace {

using Wide = __int128;

std::optional<Interval> narrow(Wide low, Wide high) {
  constexpr Wide kLimit = Wide{1} << 62;
  if (low <= -kLimit || high >= kLimit) return std::nullopt;
  return Interval{static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

}  // namespace

std::optional<Interval> bounds(const Expr& expr, const std::function<std::optional<Interval>(const std::string&)>& of) {
  switch (expr.kind()) {
    case Expr::Kind::kConst: return narrow(expr.const_value(), expr.const_value());
    case Expr::Kind::kVar: return of(expr.var_name());
    case Expr::Kind::kMod: {
      const auto divisor = bounds(expr.args()[1], of);
      if (!divisor || divisor->low <= 0) return std::nullopt;
      const auto value = bounds(expr.args()[0], of);
      if (value && divisor->low == divisor->high) {
        const int64_t m = divisor->low;
        if (floor_div(value->low, m) == floor_div(value->high, m))
          return Interval{floor_mod(value->low, m), floor_mod(value->high, m)};
      }
      if (value && value->low >= 0) return Interval{0, std::min(value->high, divisor->high - 1)};
      return Interval{0, divisor->high - 1};
    }
    case Expr::Kind::kFloorDiv: {
      const auto value = bounds(expr.args()[0], of), divisor = bounds(expr.args()[1], of);
      if (!value || !divisor || divisor->low <= 0) return std::nullopt;
      return Interval{std::min(floor_div(value->low, divisor->low), floor_div(value->low, divisor->high)),
                      std::max(floor_div(value->high, divisor->low), floor_div(value->high, divisor->high))};
    }
    case Expr::Kind::kAdd:
    case Expr::Kind::kMul:
    case Expr::Kind::kMin:
    case Expr::Kind::kMax: break;
  }
  std::optional<Interval> result = bounds(expr.args().front(), of);
  for (size_t i = 1; result && i < expr.args().size(); ++i) {
    const auto next = bounds(expr.args()[i], of);
    if (!next) return std::nullopt;
    if (expr.kind() == Expr::Kind::kAdd) {
      result = narrow(Wide{result->low} + next->low, Wide{result->high} + next->high);
    } else if (expr.kind() == Expr::Kind::kMul) {
      const Wide corners[] = {Wide{result->low} * next->low, Wide{result->low} * next->high,
                              Wide{result->high} * next->low, Wide{result->high} * next->high};
      result = narrow(*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4));
    } else if (expr.kind() == Expr::Kind::kMin) {
      result = Interval{std::min(result->low, next->low), std::min(result->high, next->high)};
    } else {
      result = Interval{std::max(result->low, next->low), std::max(result->high, next->high)};
    }
  }
  return result;
}

}  // namespace kernelopt
