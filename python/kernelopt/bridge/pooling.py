"""Pooling that the compiler leaves to ATen, as loop bodies (DESIGN.md section 4, "Vendor calls may be challenged").

The compiler makes loops of a pool itself where its window is small or does not overlap; these it hands to ATen:

    avg_pool2d, avg_pool3d                       more than 25 places of the window, and a stride that differs from it
    adaptive_avg_pool2d, adaptive_max_pool2d     sizes that do not divide, more than 25 places of the largest window
    adaptive_avg_pool3d, adaptive_max_pool3d     always
    max_pool2d, max_pool3d                       in some versions, more than 25 places

    out[n, o...] = (sum or maximum over k... of x[n, o*stride - padding + k*dilation]) [/ places counted]

with the places outside of x left out; an adaptive one has the places from floor(o * size / out) to ceil((o + 1) * size / out).
Windows are loops here, which plans unroll where they are short.

Such a call is two nodes, one that makes a tuple and one that takes the tensor from it. They are one step of the program.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import math

import torch

# ATen's calls -> (maximum instead of average, adaptive, spatial dims).
POOLS = {
    "aten.avg_pool2d.default": (False, False, 2), "aten.avg_pool3d.default": (False, False, 3),
    "aten._adaptive_avg_pool2d.default": (False, True, 2), "aten._adaptive_avg_pool3d.default": (False, True, 3),
    "aten.adaptive_max_pool2d.default": (True, True, 2), "aten.adaptive_max_pool3d.default": (True, True, 3),
    "aten.max_pool2d_with_indices.default": (True, False, 2), "aten.max_pool3d_with_indices.default": (True, False, 3),
}
_DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def packed_call(kernel):
    """The node of the ATen call whose first or only result `kernel` is; None where it is no such result."""
    if type(kernel).__name__ != "MultiOutput" or len(kernel.inputs) != 1 or type(kernel.inputs[0]).__name__ != "FallbackKernel":
        return None
    return kernel.inputs[0] if [place for _, place in kernel.indices] in ([], [0]) else None


def pool_of(name: str, kernel, entry_of, static_int) -> tuple[dict, dict] | None:
    """(body, what ATen's call takes) of the result of one of POOLS; None for any other node. See product_body for the last two
    arguments. That nothing else reads what the call returns is the caller's to see."""
    call = packed_call(kernel)
    op = str(getattr(call, "op_overload", None) or "")
    if op not in POOLS:
        return None
    is_max, adaptive, rank = POOLS[op]
    given = _arguments(call)
    x, out = _operand(call.inputs[0], entry_of, static_int), _operand(kernel, entry_of, static_int)
    if x is None or out is None or x["dtype"] != out["dtype"] or len(x["size"]) not in (rank + 1, rank + 2):
        return None
    sizes, results = x["size"][-rank:], out["size"][-rank:]
    if 0 in (*x["size"], *out["size"]) or out["size"][:-rank] != x["size"][:-rank]:
        return None

    def integers(key: str) -> list[int]:
        values = [static_int(value) for value in (given[key] if isinstance(given[key], (list, tuple)) else [given[key]])]
        return values * rank if len(values) == 1 else values

    if adaptive:
        arguments = {"output_size": integers("output_size")}
        if arguments["output_size"] != results:
            return None
        dims = [_Adaptive(*row) for row in zip(sizes, results)]
    else:
        arguments = {"kernel_size": integers("kernel_size"), "stride": integers("stride" if given["stride"] else "kernel_size"),
                     "padding": integers("padding"), "ceil_mode": bool(given["ceil_mode"])}
        if is_max:
            arguments["dilation"] = integers("dilation")
        else:
            override = given["divisor_override"]
            arguments["count_include_pad"] = bool(given["count_include_pad"])
            arguments["divisor_override"] = None if override is None else static_int(override)
        rows = zip(sizes, results, *(arguments.get(key) or [1] * rank for key in ("kernel_size", "stride", "padding", "dilation")))
        dims = [_Plain(*row, arguments.get("count_include_pad", True)) for row in rows]
    # Every window must hold a place of x.
    if any(begin >= dim.size or end <= 0 for dim in dims for begin, end in (dim.first, dim.last)):
        return None
    numbers = {"op": op, "arguments": arguments, "x": x, "out": out}
    return _body(name, numbers, dims, is_max), numbers


def bind_pool(numbers: dict, x, out):
    """A function of no arguments that makes ATen's call on x and writes what it returns to out, both tensors as `numbers` has them."""
    name = numbers["op"].split(".")[1].removeprefix("_")  # the adaptive averages write into a given tensor under their public names
    call, arguments = getattr(torch.ops.aten, name).out, numbers["arguments"]
    if POOLS[numbers["op"]][0]:
        indices = torch.empty_like(out, dtype=torch.int64)
        return lambda: call(x, **arguments, out=out, indices=indices)
    return lambda: call(x, **arguments, out=out)


class _Plain:
    """One dim of a pool with a window of fixed length.

    places: of the window, `spread` apart. first, last: (begin, end) of the first and the last window. begin, count: index
    expressions of the window's number.
    """

    def __init__(self, size, results, places, stride, padding, spread, with_padding):
        self.size, self.places, self.spread = size, places, spread
        self._stride, self._padding, self._with_padding, self._results = stride, padding, with_padding, results
        self.first, self.last = ((begin, begin + spread * (places - 1) + 1) for begin in (-padding, (results - 1) * stride - padding))

    def begin(self, var: str):
        return _sum(_times(var, self._stride), -self._padding)

    def bounds(self, var: str) -> list:
        """(comparison, index expression) that places of x have to meet."""
        below = [("ge", 0)] if self.first[0] < 0 else []
        return below + ([("lt", self.size)] if self.last[1] > self.size else [])

    def count(self, var: str):
        begin, end = self.begin(var), _sum(_times(var, self._stride), self.places - self._padding)
        if self._with_padding:
            most = self.size + 2 * self._padding
            if (self._results - 1) * self._stride + self.places <= most:
                return self.places
            return {"min": [self.places, _sum(_times(var, -self._stride), most)]}
        if self.first[0] >= 0 and self.last[1] <= self.size:
            return self.places
        return {"add": [{"min": [end, self.size]}, {"mul": [-1, {"max": [begin, 0]}]}]}


class _Adaptive:
    """One dim of an adaptive pool; as _Plain."""

    spread = 1

    def __init__(self, size, results):
        self.size, self._results = size, results
        spans = [(number * size // results, -(-(number + 1) * size // results)) for number in range(results)]
        lengths = [end - begin for begin, end in spans]
        self.places, self._same = max(lengths), min(lengths) == max(lengths)
        self.first, self.last = spans[0], spans[-1]

    def begin(self, var: str):
        if self.size % self._results == 0:
            return _times(var, self.size // self._results)
        return {"floordiv": [_times(var, self.size), self._results]}

    def _end(self, var: str):
        return {"floordiv": [_sum(_times(var, self.size), self.size + self._results - 1), self._results]}

    def bounds(self, var: str) -> list:
        return [] if self._same else [("lt", self._end(var))]

    def count(self, var: str):
        return self.places if self._same else {"add": [self._end(var), {"mul": [-1, self.begin(var)]}]}


def _arguments(call) -> dict:
    """What the call is given, by the names of its schema, defaults included."""
    args, kwargs = call.unflatten_args(call.inputs, call.constant_args)
    given = {**kwargs, **getattr(call, "kwargs", {})}
    result = {}
    for position, argument in enumerate(call.op_overload._schema.arguments):
        result[argument.name] = args[position] if position < len(args) else given.get(argument.name, argument.default_value)
    return result


def _operand(node, entry_of, static_int) -> dict | None:
    """As read_operand, of any floating type, which the entry `dtype` has."""
    layout = node.get_layout()
    found = entry_of(node.get_name())
    if found is None or layout.dtype not in _DTYPES or found[1]["dtype"] != _DTYPES[layout.dtype] or found[1]["layout"] not in ("fixed", "non_owning"):
        return None
    offset = static_int(layout.offset) if type(node).__name__ == "ReinterpretView" else 0
    return {"name": found[0], "dtype": found[1]["dtype"], "size": [static_int(size) for size in layout.size],
            "stride": [static_int(stride) for stride in layout.stride], "offset": offset}


def _body(name: str, numbers: dict, dims: list, is_max: bool) -> dict:
    x, out = numbers["x"], numbers["out"]
    computed = "float64" if x["dtype"] == "float64" else "float32"
    rank = len(dims)
    leading = [(size, step, to) for size, step, to in zip(x["size"][:-rank], x["stride"], out["stride"])]
    if len(leading) == 2 and all(leading[0][at] == leading[1][at] * leading[1][0] for at in (1, 2)):
        leading = [(leading[0][0] * leading[1][0], *leading[1][1:])]  # images and channels are one loop
    extents = [size for size, _, _ in leading] + out["size"][-rank:]
    iters = [f"p{number}" for number in range(len(extents))]
    over = {}  # dim -> its loop over the places of the window
    for number, dim in enumerate(dims):
        if dim.places > 1:
            over[number] = f"p{len(iters) + len(over)}"
    ops: list[dict] = []
    used = 0

    def add(op: str, **fields) -> int:
        nonlocal used
        ops.append({"id": used, "op": op, **fields})
        used += 1
        return used - 1

    places, mask = [], None
    spatial = iters[len(leading):]
    for number, (dim, var) in enumerate(zip(dims, spatial)):
        place = _sum(dim.begin(var), _times(over[number], dim.spread) if number in over else 0)
        places.append(place)
        for comparison, bound in dim.bounds(var):
            at = add("index_expr", index=place, dtype="int64")
            limit = add("constant", value=bound, dtype="int64") if isinstance(bound, int) else add("index_expr", index=bound, dtype="int64")
            inside = add(comparison, args=[at, limit])
            mask = inside if mask is None else add("and_", args=[mask, inside])
    index = {"add": [x["offset"], *(_times(var, step) for var, (_, step, _) in zip(iters, leading)),
                     *({"mul": [step, place]} for step, place in zip(x["stride"][-rank:], places))]}
    if mask is None:
        value = add("load", buffer=x["name"], index=index)
    else:
        inner, used = used, used + 1
        value = add("masked", args=[mask], value="-inf" if is_max else 0.0,
                    block={"ops": [{"id": inner, "op": "load", "buffer": x["name"], "index": index}], "results": [inner]})
    if over:
        value = add("reduction", type="max" if is_max else "sum", dtype=computed, src_dtype=computed, args=[value])
    if not is_max:
        override = numbers["arguments"].get("divisor_override")
        counts = [override] if override is not None else [dim.count(var) for dim, var in zip(dims, spatial)]
        fixed = math.prod(count for count in counts if isinstance(count, int))
        varying = [count for count in counts if not isinstance(count, int)]
        if varying:
            counted = add("index_expr", index={"mul": [fixed, *varying]}, dtype="int64")
        elif fixed != 1:
            counted = add("constant", value=float(fixed), dtype=computed)
        if varying or fixed != 1:
            value = add("truediv", args=[value, counted])
    target = {"add": [out["offset"], *(_times(var, to) for var, (_, _, to) in zip(iters, leading)),
                      *(_times(var, to) for var, to in zip(spatial, out["stride"][-rank:]))]}
    store = {"id": -1, "op": "store_reduction" if over else "store", "buffer": out["name"], "index": target, "args": [value]}
    ops.append(store if over else {**store, "mode": None})
    return {"name": name, "ops": ops, "vars": [
        *({"name": var, "extent": extent, "kind": "iter"} for var, extent in zip(iters, extents)),
        *({"name": var, "extent": dims[number].places, "kind": "reduce"} for number, var in over.items())]}


def _times(variable: str, factor: int):
    return variable if factor == 1 else {"mul": [factor, variable]}


def _sum(*terms):
    kept = [term for term in terms if term != 0]
    return kept[0] if len(kept) == 1 else {"add": kept} if kept else 0
