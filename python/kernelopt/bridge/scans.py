"""Prefix sums and products that a CPU program leaves to ATen, as the loops with a scan that they stand for.

Inductor's C++ backend has no scan, so that `cumsum` and `cumprod` stay calls between its kernels:

    out[i..., j] = x[i..., 0] + ... + x[i..., j]      along one dim

ATen adds float32 up in float64 and rounds each result, and so does the body. The call makes two nodes of the schedule (the call, and the
taking of its one result), which become one step under the name of the second.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import torch

from kernelopt.bridge.products import _index

_COMBINES = {"aten.cumsum.default": "add", "aten.cumprod.default": "mul"}
# Result type -> the type in which ATen accumulates on a CPU. Products of float64 are left alone: lanes that are multiplied before
# what came earlier could leave the type's range where ATen does not; float32 has float64's range to spare.
_ACCUMULATES = {torch.float32: "float64", torch.float64: "float64", torch.int64: "int64", torch.int32: "int32"}
_NAMES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64", torch.int32: "int32", torch.bool: "bool",
          torch.int8: "int8", torch.int16: "int16", torch.uint8: "uint8"}


def taken_result(node):
    """The node that takes the one result of a call to cumsum or cumprod; None for any other node, or where others read the call."""
    kernel = node.node
    if type(kernel).__name__ != "FallbackKernel" or str(getattr(kernel, "op_overload", "")) not in _COMBINES:
        return None
    users = [user for output in node.get_outputs() for user in output.users if not user.is_weak]
    if len(users) != 1 or type(getattr(users[0].node, "node", None)).__name__ != "MultiOutput":
        return None
    return users[0].node


def scan_of(name: str, kernel, taken, entry_of, static_int) -> tuple[dict, dict] | None:
    """(body, numbers) of such a call on a CPU: `kernel` makes it and `taken` is its result. None where it is not understood.

    entry_of and static_int as in product_body.
    """
    inputs = list(kernel.inputs)
    given = dict(kernel.kwargs)
    if len(inputs) != 1 or not set(given) <= {"dim", "dtype"} or "dim" not in given:
        return None
    x, out = (_operand(item, entry_of, static_int) for item in (inputs[0], taken))
    if x is None or out is None or x["size"] != out["size"] or not out["size"] or 0 in out["size"]:
        return None
    combine, result = _COMBINES[str(kernel.op_overload)], taken.get_layout().dtype
    if result not in _ACCUMULATES or given.get("dtype") not in (None, result):
        return None
    if combine == "mul" and result == torch.float64:
        return None
    # Without a dtype integers become int64.
    if given.get("dtype") is None and result != (x["dtype"] if x["dtype"].is_floating_point else torch.int64):
        return None
    rank = len(out["size"])
    dim = static_int(given["dim"])
    dim = dim + rank if dim < 0 else dim
    if not 0 <= dim < rank:
        return None
    own, type_of = _NAMES[x["dtype"]], _NAMES[result]
    accumulated = _ACCUMULATES[result]
    places = [number for number in range(rank) if number != dim] + [dim]
    variables = {place: f"p{number}" for number, place in enumerate(places)}
    ops: list[dict] = []

    def add(op: str, **fields) -> int:
        ops.append({"id": len(ops), "op": op, **fields})
        return len(ops) - 1

    def cast(value: int, source: str, target: str) -> int:
        if source == target:
            return value
        return add("to_dtype", args=[value], dtype=target, src_dtype=source, use_compute_types=True)

    at = [variables[number] for number in range(rank)]
    value = cast(cast(add("load", buffer=x["name"], index=_index(x, at)), own, type_of), type_of, accumulated)
    first = len(ops)
    left, right, joined = first, first + 1, first + 2
    ops.append({"id": first + 3, "op": "scan", "dtypes": [accumulated], "args": [value], "block": {
        "params": [left, right], "ops": [{"id": joined, "op": combine, "args": [left, right]}], "results": [joined]}})
    value = first + 4
    ops.append({"id": value, "op": "get", "args": [first + 3], "which": 0})
    if accumulated != type_of:
        ops.append({"id": value + 1, "op": "to_dtype", "args": [value], "dtype": type_of, "src_dtype": accumulated, "use_compute_types": True})
        value += 1
    ops.append({"id": -1, "op": "store", "buffer": out["name"], "index": _index(out, at), "args": [value], "mode": None})
    body = {"name": name, "ops": ops, "vars": [
        {"name": variables[place], "extent": out["size"][place], "kind": "reduce" if place == dim else "iter"} for place in places]}
    numbers = {"op": "cumsum" if combine == "add" else "cumprod", "dim": dim, "dtype": type_of,
               **{key: {part: operand[part] for part in ("name", "size", "stride", "offset")} for key, operand in (("x", x), ("out", out))}}
    return body, numbers


def _operand(node, entry_of, static_int) -> dict | None:
    """As products.read_operand, of any type that a scan takes."""
    layout = node.get_layout()
    found = entry_of(node.get_name())
    if found is None or layout.dtype not in _NAMES:
        return None
    name, entry = found
    if entry["dtype"] != _NAMES[layout.dtype] or entry["layout"] not in ("fixed", "non_owning"):
        return None
    offset = static_int(layout.offset) if type(node).__name__ == "ReinterpretView" else 0
    return {"name": name, "size": [static_int(size) for size in layout.size],
            "stride": [static_int(stride) for stride in layout.stride], "offset": offset, "dtype": layout.dtype}
