// Gate 1's scan of Triton kernels. Stricter than the worker's check of the syntax tree, and independent of it: a line
// grammar and an allow-list of names.
#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "kernelopt/gates/static_scan.h"

namespace kernelopt {
namespace {

const std::set<std::string>& admitted_lines() {
  static const std::set<std::string> lines = {"import triton", "import triton.language as tl",
                                              "from triton.language.extra import libdevice", "@triton.jit"};
  return lines;
}
const std::set<std::string>& keywords() {
  static const std::set<std::string> words = {"def", "return", "if", "for", "while", "pass", "in", "range", "True", "False", "None", "float"};
  return words;
}
// Members of tl; types are used as values as well.
const std::set<std::string>& language_names() {
  static const std::set<std::string> names = {
      "program_id", "num_programs", "arange", "zeros", "full", "broadcast_to", "where", "load", "store", "atomic_add", "atomic_max", "sum", "max", "min",
      "reduce", "associative_scan", "maximum", "minimum", "abs", "exp", "exp2", "log", "log2", "sqrt", "sqrt_rn", "rsqrt", "sin", "cos",
      "erf", "floor", "ceil", "fma", "div_rn", "cdiv", "constexpr", "device_assert", "debug_barrier", "static_range", "PropagateNan", "ALL", "dot",
      "trans", "int1", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64"};
  return names;
}
const std::set<std::string>& device_library_names() {
  static const std::set<std::string> names = {"fmod", "pow", "atan2", "copysign", "expm1", "log10", "log1p", "erfc", "tanh",
                                              "tan",  "asin", "acos", "atan", "sinh", "cosh"};
  return names;
}
const std::set<std::string>& methods() {
  static const std::set<std::string> names = {"to", "dtype"};
  return names;
}
const std::set<std::string>& argument_names() {
  static const std::set<std::string> names = {"mask", "other", "propagate_nan", "bitcast", "sem", "eviction_policy", "volatile", "reverse", "acc", "input_precision"};
  return names;
}
const std::set<std::string>& strings() {
  static const std::set<std::string> texts = {"inf", "-inf", "nan", "relaxed", "acquire", "release", "index out of bounds", "evict_first", "evict_last", "ieee"};
  return texts;
}

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Scan {
 public:
  explicit Scan(const KernelSource& kernel) : kernel_(kernel) {}

  std::optional<ScanFinding> run() {
    std::vector<std::string> lines;
    for (size_t at = 0; at <= kernel_.source.size();) {
      const size_t end = std::min(kernel_.source.find('\n', at), kernel_.source.size());
      lines.push_back(kernel_.source.substr(at, end - at));
      at = end + 1;
    }
    bool jit = false, entry = false;
    for (number_ = 1; number_ <= static_cast<int>(lines.size()); ++number_) {
      const std::string& line = lines[static_cast<size_t>(number_) - 1];
      if (line.empty()) continue;
      if (line[0] != ' ') {
        if (admitted_lines().count(line)) {
          jit = line == "@triton.jit";
          continue;
        }
        if (line.rfind("def ", 0) != 0 || !jit) return finding(line, "no statement that a kernel source may hold");
        jit = false;
        const size_t open = line.find('(');
        if (open == std::string::npos || line.size() < 2 || line.substr(line.size() - 2) != "):") return finding(line, "no plain function head");
        const std::string name = line.substr(4, open - 4);
        own_.insert(name);
        entry = entry || name == kernel_.name;
        locals_.clear();
        if (auto fault = scan_words(line, open, true)) return fault;
        continue;
      }
      if (auto fault = scan_words(line, 0, false)) return fault;
    }
    if (!entry) {
      ScanFinding missing{1, kernel_.name, "the declared kernel is not defined"};
      missing.entry_point = true;
      return missing;
    }
    return std::nullopt;
  }

 private:
  std::optional<ScanFinding> finding(const std::string& token, const char* why) const { return ScanFinding{number_, token, why}; }

  std::optional<ScanFinding> scan_words(const std::string& line, size_t from, bool head) {
    // Names that the line assigns, or a loop's variable, or parameters.
    std::vector<std::string> targets;
    const size_t first = line.find_first_not_of(' ', from);
    if (!head) {
      size_t at = first;
      const bool loop = line.compare(first, 4, "for ") == 0;
      if (loop) at = first + 4;
      std::vector<std::string> names;
      while (at < line.size() && starts_name(line[at])) {
        size_t end = at;
        while (end < line.size() && in_name(line[end])) ++end;
        names.push_back(line.substr(at, end - at));
        at = line.find_first_not_of(' ', end);
        if (at == std::string::npos) break;
        if (line[at] == ',') {
          at = line.find_first_not_of(' ', at + 1);
          continue;
        }
        if (loop ? line.compare(at, 3, "in ") == 0 : line[at] == '=' && (at + 1 >= line.size() || line[at + 1] != '=')) targets = names;
        break;
      }
    }
    std::string owner;
    for (size_t at = from; at < line.size();) {
      const char c = line[at];
      if (c == '\'' || c == '"') {
        const size_t end = line.find(c, at + 1);
        if (end == std::string::npos) return finding(line, "a string that does not end");
        const std::string text = line.substr(at + 1, end - at - 1);
        if (!strings().count(text)) return finding(text, "a string that no kernel needs");
        at = end + 1;
        owner.clear();
        continue;
      }
      if (std::isdigit(static_cast<unsigned char>(c))) {
        while (at < line.size() && (in_name(line[at]) || line[at] == '.' || ((line[at] == '-' || line[at] == '+') && line[at - 1] == 'e'))) ++at;
        owner.clear();
        continue;
      }
      if (!starts_name(c)) {
        if (std::string(" ()[]{},:.=+-*/%<>&|^~!@").find(c) == std::string::npos || c == '{' || c == '}' || c == '@')
          return finding(std::string(1, c), "a character that no kernel needs");
        if (c != '.') owner.clear();
        ++at;
        continue;
      }
      size_t end = at;
      while (end < line.size() && in_name(line[end])) ++end;
      const std::string name = line.substr(at, end - at);
      const bool member = at > 0 && line[at - 1] == '.';
      const bool named_argument = end < line.size() && line[end] == '=' && (end + 1 >= line.size() || line[end + 1] != '=');
      if (name.find("__") != std::string::npos) return finding(name, "a name with two underscores");
      if (head) {
        locals_.insert(name);
      } else if (member) {
        const bool language = owner == "tl" || owner == "PropagateNan";
        const bool known = language ? language_names().count(name) > 0
                                    : owner == "libdevice" ? device_library_names().count(name) > 0 : methods().count(name) > 0;
        if (!known) return finding(owner + "." + name, "not on the list of what a kernel may use");
      } else if (keywords().count(name) || name == "tl" || name == "libdevice" || own_.count(name) || locals_.count(name)) {
      } else if (named_argument && argument_names().count(name)) {
      } else if (std::find(targets.begin(), targets.end(), name) != targets.end()) {
      } else {
        return finding(name, "a name that the source does not define");
      }
      owner = name;
      at = end;
    }
    for (const auto& name : targets) {
      if (keywords().count(name) || name == "tl" || name == "libdevice" || own_.count(name)) return finding(name, "a name that must not be assigned");
      locals_.insert(name);
    }
    return std::nullopt;
  }

  const KernelSource& kernel_;
  int number_ = 1;
  std::set<std::string> own_, locals_;
};

}  // namespace

std::optional<ScanFinding> scan_triton_kernel(const KernelSource& kernel) { return Scan(kernel).run(); }

}  // namespace kernelopt
