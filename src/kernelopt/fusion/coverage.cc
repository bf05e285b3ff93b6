#include "kernelopt/fusion/coverage.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kernelopt {
namespace {

// Sets up to this size are enumerated where no closed form is found.
constexpr int64_t kEnumerate = 1 << 14;

using Extents = std::map<std::string, int64_t>;

struct Digit {
  int64_t stride, extent;
};

// expr as sum of coefficient * var, with the constant; nullopt if it is not affine or has a negative coefficient.
struct Affine {
  std::vector<Digit> digits;
  int64_t constant = 0;
};
std::optional<Affine> affine(const Expr& expr, const Extents& extents) {
  Affine result;
  Expr rest = expr;
  for (const auto& name : expr.variables()) {
    const auto part = affine_in(rest, name);
    const auto extent = extents.find(name);
    if (!part || part->coefficient < 0 || extent == extents.end()) return std::nullopt;
    if (part->coefficient > 0 && extent->second > 1) result.digits.push_back({part->coefficient, extent->second});
    rest = part->rest;
  }
  if (!rest.is_const()) return std::nullopt;
  result.constant = rest.const_value();
  return result;
}

// Ascending strides, neighbours joined where one continues the other; nullopt when two assignments may meet.
std::optional<std::vector<Digit>> mixed_radix(std::vector<Digit> digits) {
  std::sort(digits.begin(), digits.end(), [](const Digit& a, const Digit& b) { return a.stride < b.stride; });
  std::vector<Digit> merged;
  int64_t reach = 0;  // the largest value of what lies below
  for (const auto& digit : digits) {
    if (digit.stride <= reach) return std::nullopt;
    reach += digit.stride * (digit.extent - 1);
    if (!merged.empty() && digit.stride == merged.back().stride * merged.back().extent) merged.back().extent *= digit.extent;
    else merged.push_back(digit);
  }
  return merged;
}

std::optional<Interval> range(const Expr& expr, const Extents& extents) {
  return bounds(expr, [&](const std::string& name) -> std::optional<Interval> {
    const auto found = extents.find(name);
    if (found == extents.end()) return std::nullopt;
    return Interval{0, found->second - 1};
  });
}

// Values of expr over all assignments of its variables, sorted; nullopt when there are too many.
std::optional<std::vector<int64_t>> values(const Expr& expr, const Extents& extents) {
  const auto names = expr.variables();
  int64_t count = 1;
  for (const auto& name : names) {
    const auto found = extents.find(name);
    if (found == extents.end()) return std::nullopt;
    count *= found->second;
    if (count > kEnumerate) return std::nullopt;
  }
  std::vector<int64_t> result;
  std::map<std::string, int64_t> assignment;
  for (int64_t at = 0; at < count; ++at) {
    int64_t rest = at;
    for (const auto& name : names) {
      assignment[name] = rest % extents.at(name);
      rest /= extents.at(name);
    }
    result.push_back(expr.evaluate(assignment));
  }
  std::sort(result.begin(), result.end());
  return result;
}

// Distinct over all assignments of the variables that are bounded in `extents`.
bool injective(const Expr& store, const std::set<std::string>& names, const Extents& extents) {
  // A variable that the index does not depend on would store the same element again.
  for (const auto& name : names)
    if (extents.at(name) > 1 && !store.depends_on(name)) return false;
  if (const auto parts = affine(store, extents)) return mixed_radix(parts->digits).has_value();
  const auto all = values(store, extents);
  return all && std::adjacent_find(all->begin(), all->end()) == all->end();
}

bool digits_contain(const std::vector<Digit>& digits, const Affine& access) {
  std::vector<Interval> of(digits.size(), Interval{0, 0});
  for (const auto& term : access.digits) {
    // The largest stride that divides the term's.
    size_t at = digits.size();
    for (size_t i = 0; i < digits.size(); ++i)
      if (term.stride % digits[i].stride == 0) at = i;
    if (at == digits.size()) return false;
    of[at].high += term.stride / digits[at].stride * (term.extent - 1);
  }
  int64_t constant = access.constant;
  if (constant < 0) return false;
  for (size_t i = digits.size(); i-- > 0;) {
    const int64_t shift = constant / digits[i].stride;
    of[i].low += shift;
    of[i].high += shift;
    constant %= digits[i].stride;
    if (of[i].high >= digits[i].extent) return false;
  }
  return constant == 0;
}

}  // namespace

bool region_covers(const Expr& store, const Expr& access, const std::set<std::string>& outer,
                   const std::set<std::string>& store_inner, const Extents& extents) {
  const Expr written = simplify(store, extents), touched = simplify(access, extents);
  std::set<std::string> store_vars = outer;
  // Reduction variables never appear in a store of a reduction, which happens once after the loop.
  for (const auto& name : store_inner)
    if (written.depends_on(name)) store_vars.insert(name);
  if (!injective(written, store_vars, extents)) return false;

  std::map<std::string, Expr> inner_zero;
  for (const auto& name : store_inner) inner_zero.emplace(name, Expr(0));
  const Expr base = simplify(written.substitute(inner_zero), extents);
  const Expr inside = simplify(written - base, extents), wanted = simplify(touched - base, extents);
  for (const auto& name : outer)
    if (inside.depends_on(name)) return false;

  const auto reach = range(wanted, extents);
  const auto parts = affine(inside, extents);
  if (reach && parts && parts->constant == 0) {
    const auto digits = mixed_radix(parts->digits);
    if (digits && digits->empty()) return reach->low == 0 && reach->high == 0;
    if (digits && digits->size() == 1 && digits->front().stride == 1)
      return reach->low >= 0 && reach->high < digits->front().extent;
    if (digits)
      if (const auto terms = affine(wanted, extents)) return digits_contain(*digits, *terms);
  }
  for (const auto& name : outer)
    if (wanted.depends_on(name)) return false;
  const auto have = values(inside, extents);
  auto need = values(wanted, extents);
  if (!have || !need) return false;
  need->erase(std::unique(need->begin(), need->end()), need->end());
  return std::includes(have->begin(), have->end(), need->begin(), need->end());
}

bool parallel_regions(const Expr& first, const Expr& second, const std::set<std::string>& outer,
                      const std::set<std::string>& first_inner, const std::set<std::string>& second_inner, const Extents& extents) {
  const auto parts = [&](const Expr& access, const std::set<std::string>& inner) {
    const Expr index = simplify(access, extents);
    std::map<std::string, Expr> zero;
    for (const auto& name : inner) zero.emplace(name, Expr(0));
    const Expr base = simplify(index.substitute(zero), extents);
    auto inside = affine(simplify(index - base, extents), extents);
    if (inside)
      std::sort(inside->digits.begin(), inside->digits.end(), [](const Digit& a, const Digit& b) {
        return std::pair(a.stride, a.extent) < std::pair(b.stride, b.extent);
      });
    return std::pair(base, std::move(inside));
  };
  const auto [base, inside] = parts(first, first_inner);
  const auto [other_base, other_inside] = parts(second, second_inner);
  if (!simplify(base - other_base, extents).is_const() || !inside || !other_inside) return false;
  for (const auto& name : outer)
    if (!base.depends_on(name)) return false;
  return std::equal(inside->digits.begin(), inside->digits.end(), other_inside->digits.begin(), other_inside->digits.end(),
                    [](const Digit& a, const Digit& b) { return a.stride == b.stride && a.extent == b.extent; });
}

}  // namespace kernelopt
