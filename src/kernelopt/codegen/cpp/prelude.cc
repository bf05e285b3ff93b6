#include "kernelopt/codegen/cpp/prelude.h"

namespace kernelopt {

const char* prelude_base_text();
const char* prelude_memory_text();
const char* prelude_math_text();
const char* prelude_vec_text();
const char* prelude_transpose_text();
const char* prelude_wide_text();

std::string cpp_prelude(int lanes, const PreludeNeeds& needs) {
  std::string text = "#define KO_LANES " + std::to_string(lanes) + "\n";
  if (needs.vec) text += "#include <ATen/cpu/vec/vec.h>\n";
  text += prelude_base_text();
  text += prelude_memory_text();
  if (needs.math) text += prelude_math_text();
  if (needs.vec) text += prelude_vec_text();
  if (needs.wide) text += prelude_wide_text();
  if (needs.transpose) text += prelude_transpose_text();
  text += "}  // namespace ko\nusing namespace ko;\n";
  return text;
}

}  // namespace kernelopt
