// Programs for the code generator's tests: one for every kind of loop, access, reduction and type, in awkward sizes.
#pragma once

#include <vector>

#include "kernelopt/codegen/testing/program_builder.h"

namespace kernelopt::testing {

inline ProgramBuilder pointwise_chain(int64_t n) {
  ProgramBuilder p("chain" + std::to_string(n));
  p.input("x", {n}).input("y", {n}).output("z", {n});
  BodyBuilder b("op0");
  b.iter("i", n);
  const int x = b.load("x", "i"), y = b.load("y", "i");
  const int e = b.call("exp", {b.call("neg", {b.call("square", {x})})});
  const int t = b.call("tanh", {b.call("add", {x, y})});
  const int s = b.call("sigmoid", {b.call("mul", {x, b.constant(3.0, "float32")})});
  const int r = b.call("where", {b.call("lt", {x, y}), b.call("add", {e, t}), b.call("sub", {s, b.call("erf", {y})})});
  b.store("z", "i", b.call("maximum", {r, b.call("log1p", {b.call("abs", {y})})}));
  return p.step(b);
}

// Every plain reduction of rows of x (rows × columns), each with its own output.
inline ProgramBuilder row_reductions(int64_t rows, int64_t columns, const std::string& order) {
  ProgramBuilder p("rows_" + order + std::to_string(rows) + "x" + std::to_string(columns));
  p.input("x", {rows * columns});
  const json index = order == "row" ? add({times(columns, "i"), "j"}) : add({"i", times(rows, "j")});
  for (const char* kind : {"sum", "max", "min", "prod", "argmax", "argmin", "any"}) {
    if (std::string(kind) == "prod" && columns > 40) continue;  // underflows in one order and not in another
    const std::string type = kind[0] == 'a' && kind[1] == 'r' ? "int64" : kind[1] == 'n' ? "bool" : "float32";
    p.output(std::string("o_") + kind, {rows}, type);
    BodyBuilder b(std::string("op_") + kind);
    b.iter("i", rows).reduce("j", columns);
    int x = b.load("x", index);
    if (type == "bool") x = b.call("gt", {x, b.constant(1.5, "float32")});
    b.store_reduction(std::string("o_") + kind, "i", b.reduction(kind, {x}, type, type == "bool" ? "bool" : "float32"));
    p.step(b);
  }
  return p;
}

// Softmax over j of x[outer][j][inner].
inline ProgramBuilder normalized_exponentials(int64_t outer, int64_t length, int64_t inner) {
  ProgramBuilder p("exponentials" + std::to_string(outer) + "x" + std::to_string(length) + "x" + std::to_string(inner));
  const json at = add({times(length * inner, "o"), times(inner, "j"), "i"}), row = add({times(inner, "o"), "i"});
  p.input("x", {outer, length, inner}).output("y", {outer, length, inner});
  p.internal("m", {outer, inner}).internal("e", {outer, length, inner}).internal("s", {outer, inner});
  BodyBuilder m("op0");
  m.iter("o", outer).iter("i", inner).reduce("j", length);
  m.store_reduction("m", row, m.reduction("max", {m.load("x", at)}));
  BodyBuilder e("op1");
  e.iter("o", outer).iter("j", length).iter("i", inner);
  const int x = e.load("x", at), top = e.load("m", row);
  e.store("e", at, e.call("exp", {e.call("sub", {x, top})}));
  BodyBuilder s("op2");
  s.iter("o", outer).iter("i", inner).reduce("j", length);
  s.store_reduction("s", row, s.reduction("sum", {s.load("e", at)}));
  BodyBuilder y("op3");
  y.iter("o", outer).iter("j", length).iter("i", inner);
  const int value = y.load("e", at), total = y.load("s", row);
  y.store("y", at, y.call("truediv", {value, total}));
  return p.step(m).step(e).step(s).step(y);
}

// Layer norm by Welford; the last step runs over flattened loops.
inline ProgramBuilder standardized_rows(int64_t rows, int64_t columns, const std::string& dtype) {
  ProgramBuilder p("norm_" + dtype + std::to_string(rows) + "x" + std::to_string(columns));
  p.input("x", {rows, columns}, dtype).input("w", {columns}).output("y", {rows, columns}, dtype).internal("mean", {rows}).internal("m2", {rows});
  const json at = add({times(columns, "i"), "j"});
  BodyBuilder a("op0");
  a.iter("i", rows).reduce("j", columns);
  const int w = a.reduction("welford_reduce", {a.load("x", at)});
  a.store_reduction("mean", "i", a.get(w, 0));
  a.store_reduction("m2", "i", a.get(w, 1));
  BodyBuilder b("op1");
  b.iter("k", rows * columns);
  const json row = {{"floordiv", {"k", columns}}}, column = {{"mod", {"k", columns}}};
  const int centered = b.call("sub", {b.load("x", "k"), b.load("mean", row)});
  const int variance = b.call("truediv", {b.load("m2", row), b.constant(double(columns), "float32")});
  const int scale = b.call("rsqrt", {b.call("add", {variance, b.constant(1e-5, "float32")})});
  b.store("y", "k", b.call("mul", {b.call("mul", {centered, scale}), b.load("w", column)}));
  return p.step(a).step(b);
}

// Maximum over windows with padding, as loads under masks or as a reduction over the window; then minus the input.
inline ProgramBuilder pool(int64_t planes, int64_t height, int64_t width, int64_t kernel, int64_t stride, int64_t pad, bool reduces) {
  const int64_t oh = (height + 2 * pad - kernel) / stride + 1, ow = (width + 2 * pad - kernel) / stride + 1;
  ProgramBuilder p("pool" + std::to_string(height) + "x" + std::to_string(width) + "k" + std::to_string(kernel) + "s" + std::to_string(stride) + (reduces ? "r" : "u"));
  p.input("x", {planes, height, width}).output("y", {planes, oh, ow});
  BodyBuilder b("op0");
  b.iter("p", planes).iter("h", oh).iter("w", ow);
  if (reduces) b.reduce("kh", kernel).reduce("kw", kernel);
  const auto point = [&](const json& dh, const json& dw) {
    const json row = add({times(stride, "h"), dh, -pad}), column = add({times(stride, "w"), dw, -pad});
    const int r = b.index(row), c = b.index(column), zero = b.constant(int64_t{0}, "int64");
    const int inside_h = b.call("and_", {b.call("ge", {r, zero}), b.call("lt", {r, b.constant(height, "int64")})});
    const int inside_w = b.call("and_", {b.call("ge", {c, zero}), b.call("lt", {c, b.constant(width, "int64")})});
    return b.masked_load(b.call("and_", {inside_h, inside_w}), "x", add({times(height * width, "p"), times(width, row), column}), "-inf");
  };
  const json at = add({times(oh * ow, "p"), times(ow, "h"), "w"});
  if (reduces) {
    b.store_reduction("y", at, b.reduction("max", {point("kh", "kw")}));
  } else {
    int best = -1;
    for (int64_t i = 0; i < kernel; ++i)
      for (int64_t j = 0; j < kernel; ++j) best = best < 0 ? point(i, j) : b.call("maximum", {best, point(i, j)});
    b.store("y", at, best);
  }
  return p.step(b);
}

// Rows gathered by index (negative ones wrap), a row sum of them, and an atomic addition back.
inline ProgramBuilder gather_scatter(int64_t rows, int64_t width, int64_t count) {
  ProgramBuilder p("gather" + std::to_string(count) + "x" + std::to_string(width));
  p.input("table", {rows, width}).input("index", {count}, "int64").output("y", {count, width}).output("total", {count}).input("acc", {rows, width}, "float32", true);
  BodyBuilder g("op0");
  g.iter("i", count).iter("j", width);
  g.indirect(g.load("index", "i"), rows, "t", true);
  g.store("y", add({times(width, "i"), "j"}), g.load("table", add({times(width, "t"), "j"})));
  BodyBuilder s("op1");
  s.iter("i", count).reduce("j", width);
  s.store_reduction("total", "i", s.reduction("sum", {s.load("y", add({times(width, "i"), "j"}))}));
  BodyBuilder a("op2");
  a.iter("i", count).iter("j", width);
  a.indirect(a.load("index", "i"), rows, "u", true);
  a.store("acc", add({times(width, "u"), "j"}), a.load("y", add({times(width, "i"), "j"})), true);
  return p.step(g).step(s).step(a);
}

inline ProgramBuilder scan_rows(int64_t rows, int64_t columns, const std::string& combine, bool along_rows) {
  ProgramBuilder p("scan_" + combine + std::to_string(rows) + "x" + std::to_string(columns) + (along_rows ? "r" : "c"));
  p.input("x", {rows, columns}).output("y", {rows, columns});
  BodyBuilder b("op0");
  b.iter("i", along_rows ? rows : columns).reduce("j", along_rows ? columns : rows);
  const json at = along_rows ? add({times(columns, "i"), "j"}) : add({"i", times(columns, "j")});
  b.store("y", at, b.scan(b.load("x", at), combine));
  return p.step(b);
}

// exp, a scan that accumulates in `wide`, and a division by the place: three steps over the same points.
inline ProgramBuilder scan_between(int64_t rows, int64_t columns, const std::string& combine, const std::string& wide, bool along_rows) {
  ProgramBuilder p("scan_between_" + combine + std::to_string(rows) + "x" + std::to_string(columns) + (along_rows ? "r" : "c"));
  p.input("x", {rows, columns}).internal("e", {rows, columns}).internal("s", {rows, columns}).output("y", {rows, columns});
  const json at = add({times(columns, "i"), "j"});
  BodyBuilder before("op0");
  before.iter("k", rows * columns);
  before.store("e", "k", before.call("tanh", {before.load("x", "k")}));
  BodyBuilder b("op1");
  const bool widens = wide != "float32";
  b.iter(along_rows ? "i" : "j", along_rows ? rows : columns).reduce(along_rows ? "j" : "i", along_rows ? columns : rows);
  int value = b.load("e", at);
  if (widens) value = b.cast(value, "float32", wide);
  value = b.scan(value, combine, wide);
  if (widens) value = b.cast(value, wide, "float32");
  b.store("s", at, value);
  BodyBuilder after("op2");
  after.iter("i", rows).iter("j", columns);
  after.store("y", at, after.call("truediv", {after.load("s", at), after.index(add({1, "j"}), "float32")}));
  return p.step(before).step(b).step(after);
}

inline ProgramBuilder integer_scan(int64_t rows, int64_t columns, const std::string& type, bool along_rows) {
  ProgramBuilder p("integer_scan" + std::to_string(rows) + "x" + std::to_string(columns) + type + (along_rows ? "r" : "c"));
  p.input("x", {rows, columns}, type).output("y", {rows, columns}, type);
  BodyBuilder b("op0");
  b.iter(along_rows ? "i" : "j", along_rows ? rows : columns).reduce(along_rows ? "j" : "i", along_rows ? columns : rows);
  const json at = add({times(columns, "i"), "j"});
  b.store("y", at, b.scan(b.load("x", at), "add", type));
  return p.step(b);
}

inline ProgramBuilder transposed_copy(int64_t batch, int64_t rows, int64_t columns) {
  ProgramBuilder p("transpose" + std::to_string(rows) + "x" + std::to_string(columns));
  p.input("x", {batch, rows, columns}).input("bias", {rows}).output("y", {batch, columns, rows});
  BodyBuilder b("op0");
  b.iter("n", batch).iter("r", rows).iter("c", columns);
  const int x = b.load("x", add({times(rows * columns, "n"), times(columns, "r"), "c"}));
  b.store("y", add({times(rows * columns, "n"), "r", times(rows, "c")}), b.call("add", {x, b.load("bias", "r")}));
  return p.step(b);
}

inline ProgramBuilder integer_ops(int64_t n, const std::string& dtype) {
  ProgramBuilder p("int_" + dtype + std::to_string(n));
  p.input("x", {n}, dtype).input("y", {n}, dtype).output("z", {n}, dtype).output("flag", {n}, "bool").output("real", {n});
  BodyBuilder b("op0");
  b.iter("i", n);
  const int x = b.load("x", "i"), y = b.load("y", "i"), three = b.constant(int64_t{3}, dtype);
  const int sum = b.call("add", {b.call("mul", {x, three}), y});
  b.store("z", "i", b.call("where", {b.call("gt", {x, y}), b.call("remainder", {sum, three}), b.call("floordiv", {b.call("maximum", {x, sum}), three})}));
  b.store("flag", "i", b.call("logical_and", {b.call("ne", {x, y}), b.call("le", {x, sum})}));
  b.store("real", "i", b.call("truediv", {x, b.call("add", {b.call("abs", {y}), b.constant(int64_t{1}, dtype)})}));
  return p.step(b);
}

inline ProgramBuilder half_chain(int64_t n, const std::string& dtype) {
  ProgramBuilder p("half_" + dtype + std::to_string(n));
  p.input("x", {n}, dtype).input("k", {n}, "bool").output("y", {n}, dtype).output("z", {n});
  BodyBuilder b("op0");
  b.iter("i", n);
  const int x = b.load("x", "i"), keep = b.load("k", "i");
  const int y = b.call("where", {keep, b.call("relu", {x}), b.call("mul", {x, b.constant(0.25, "float32")})});
  b.store("y", "i", y);
  const int narrow = b.cast(b.call("add", {x, b.constant(0.3333, "float32")}), "float32", dtype, false);
  b.store("z", "i", b.cast(narrow, dtype, "float32"));
  return p.step(b);
}

// In-place update of an input, and a reduction with few results over everything.
inline ProgramBuilder mutation(int64_t n) {
  ProgramBuilder p("mutation" + std::to_string(n));
  p.input("x", {n}, "float32", true).output("s", {1});
  BodyBuilder b("op0");
  b.iter("i", n);
  b.store("x", "i", b.call("mul", {b.load("x", "i"), b.constant(0.5, "float32")}));
  BodyBuilder s("op1");
  s.reduce("i", n);
  s.store_reduction("s", 0, s.reduction("sum", {s.call("square", {s.load("x", "i")})}));
  return p.step(b).step(s);
}

inline ProgramBuilder combined_reductions(int64_t rows, int64_t columns) {
  ProgramBuilder p("combined" + std::to_string(rows) + "x" + std::to_string(columns));
  p.input("x", {rows, columns}).input("w", {rows, columns}).input("q", {rows, columns}, "int64");
  p.output("mean", {rows}).output("m2", {rows}).output("top", {rows}).output("total", {rows}).output("bits", {rows}, "int64").output("count", {rows}, "int64");
  const json at = add({times(columns, "i"), "j"});
  BodyBuilder a("op0");
  a.iter("i", rows).reduce("j", columns);
  const int weight = a.call("square", {a.load("w", at)});
  const int w = a.reduction("welford_combine", {a.load("x", at), weight, weight});
  a.store_reduction("mean", "i", a.get(w, 0));
  a.store_reduction("m2", "i", a.get(w, 1));
  BodyBuilder o("op1");
  o.iter("i", rows).reduce("j", columns);
  const int s = o.reduction("online_softmax_reduce", {o.load("x", at)});
  o.store_reduction("top", "i", o.get(s, 0));
  o.store_reduction("total", "i", o.get(s, 1));
  BodyBuilder x("op2");
  x.iter("i", rows).reduce("j", columns);
  const int q = x.load("q", at);
  x.store_reduction("bits", "i", x.reduction("xor_sum", {q}, "int64", "int64"));
  x.store_reduction("count", "i", x.reduction("sum", {x.cast(x.call("ne", {q, x.constant(int64_t{-100}, "int64")}), "bool", "int64")}, "int64", "int64"));
  return p.step(a).step(o).step(x);
}

inline std::vector<ProgramBuilder> sample_programs() {
  return {pointwise_chain(1),        pointwise_chain(133),     row_reductions(5, 37, "row"),  row_reductions(3, 200, "row"),
          row_reductions(37, 6, "col"), row_reductions(70, 9, "col"), normalized_exponentials(3, 67, 1),       normalized_exponentials(2, 7, 41),
          normalized_exponentials(4, 300, 1),        standardized_rows(5, 50, "float32"), standardized_rows(3, 33, "bfloat16"), standardized_rows(2, 64, "float16"),
          pool(2, 9, 21, 3, 1, 1, false), pool(2, 8, 40, 2, 2, 0, false), pool(1, 11, 37, 3, 2, 1, true), pool(2, 7, 70, 4, 1, 1, false),
          gather_scatter(7, 19, 5),  scan_rows(3, 37, "add", true), scan_rows(9, 40, "add", false), scan_rows(2, 50, "maximum", true),
          transposed_copy(2, 19, 35), transposed_copy(1, 32, 48), integer_ops(53, "int64"),  integer_ops(20, "int32"),
          integer_ops(37, "int16"),  half_chain(45, "bfloat16"), half_chain(77, "float16"),  mutation(4100),
          combined_reductions(3, 45), combined_reductions(2, 16), scan_between(67, 37, "add", "float64", false),
          scan_between(3, 131, "add", "float64", true), scan_between(4, 83, "mul", "float64", true), integer_scan(3, 75, "int64", true),
          scan_between(5, 32, "add", "float32", true), integer_scan(5, 21, "int32", true), integer_scan(40, 35, "int64", false)};
}

}  // namespace kernelopt::testing
