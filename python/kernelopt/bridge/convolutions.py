"""Convolutions among the library calls, as loop bodies (DESIGN.md section 4, "Vendor calls may be challenged").

    out[n, co, o...] = sum over ci, k... of x[n, ci, o*stride - padding + k*dilation] * w[co, ci, k...]

with x zero outside its bounds; a transposed one

    out[n, co, o...] = sum over ci, k... of x[n, ci, (o + padding - k*dilation) / stride] * w[ci, co, k...]

with x zero where the division leaves a rest as well. A depthwise one, with few places of the window, is recorded as the sum that it is for
each element, without a loop: as the compiler records pooling, so that plans for windows fit. The body says so in full, for digests and regions; beside it the step carries the numbers
themselves (`convolution` of docs/formats.md), from which references and candidates work.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import itertools
import math

import torch

from kernelopt.bridge.products import read_operand


_MAX_TAPS = 25  # places of the window of a depthwise convolution, each of which becomes ops of the body


def convolution_of(name: str, kernel, entry_of, static_int) -> tuple[dict, dict] | None:
    """(body, numbers) of an extern node that is an ungrouped float32 convolution, which the library computes in TF32, or of a depthwise one;
    None for any other call. See product_body for the last two arguments."""
    call = str(getattr(kernel, "python_kernel_name", None) or "").removeprefix("extern_kernels.")
    if type(kernel).__name__ != "ExternKernelAlloc" or call != "convolution" or len(kernel.inputs) != 2:
        return None
    if torch.backends.cudnn.enabled and not torch.backends.cudnn.allow_tf32:
        return None
    given = dict(kernel.kwargs)
    transposed = bool(given.get("transposed"))
    groups = given.get("groups", 1)
    if given.get("bias") is not None:
        return None
    x, w = (read_operand(item, entry_of, static_int) for item in kernel.inputs)
    out = read_operand(kernel, entry_of, static_int)
    if x is None or w is None or out is None:
        return None
    rank = len(x["size"]) - 2
    stride, padding, dilation = ([static_int(value) for value in given[key]] for key in ("stride", "padding", "dilation"))
    if not 1 <= rank <= 3 or any(len(values) != rank for values in (stride, padding, dilation)) or min(padding) < 0:
        return None
    depthwise = groups == x["size"][1] > 1 and not transposed and w["size"][1] == 1 and math.prod(w["size"][2:]) <= _MAX_TAPS
    if groups != 1 and not depthwise:
        return None
    if w["size"][0 if transposed else 1] * groups != x["size"][1] or 0 in (*x["size"], *w["size"], *out["size"]):
        return None
    for dim in range(rank):
        window = dilation[dim] * (w["size"][2 + dim] - 1) + 1
        if transposed:
            least = (x["size"][2 + dim] - 1) * stride[dim] - 2 * padding[dim] + window
            if not least <= out["size"][2 + dim] < least + max(stride[dim], dilation[dim]):
                return None
        elif out["size"][2 + dim] != (x["size"][2 + dim] + 2 * padding[dim] - window) // stride[dim] + 1:
            return None
    numbers = {"stride": stride, "padding": padding, "dilation": dilation, "x": x, "w": w, "out": out}
    if transposed:
        numbers["transposed"] = True
    if depthwise:
        numbers["groups"] = groups
        return _depthwise_body(name, numbers, rank), numbers
    return _body(name, numbers, rank), numbers


def output_padding(numbers: dict) -> list[int]:
    """What torch.convolution takes beside the numbers: zeros but for a transposed convolution, whose size is ambiguous."""
    if not numbers.get("transposed"):
        return [0] * len(numbers["stride"])
    x, w, out = (numbers[key]["size"][2:] for key in ("x", "w", "out"))
    rows = zip(out, x, w, numbers["stride"], numbers["padding"], numbers["dilation"])
    return [to - ((start - 1) * step - 2 * pad + spread * (window - 1) + 1) for to, start, window, step, pad, spread in rows]


def convolve(x, w, numbers: dict):
    """A challenge's library call: x and w are flat memory, the numbers say what they hold; the result is a tensor of its own.

    Raises RuntimeError where the library returns another memory order than the kernels that follow were written for.
    """
    x, w = (flat.as_strided(numbers[key]["size"], numbers[key]["stride"]) for flat, key in ((x, "x"), (w, "w")))
    result = torch.convolution(x, w, None, numbers["stride"], numbers["padding"], numbers["dilation"],
                               numbers.get("transposed", False), output_padding(numbers), 1)
    wanted = numbers["out"]
    order = [step for step, size in zip(result.stride(), result.shape) if size > 1]
    if list(result.shape) != wanted["size"] or order != [step for step, size in zip(wanted["stride"], wanted["size"]) if size > 1]:
        raise RuntimeError(f"the library's convolution returned {list(result.shape)} with strides {list(result.stride())}")
    return result


def _body(name: str, numbers: dict, rank: int) -> dict:
    x, w, out = (numbers[key] for key in ("x", "w", "out"))
    extents = [*out["size"], x["size"][1], *w["size"][2:]]
    variables = [f"p{number}" for number in range(len(extents))]
    iters, over = variables[: 2 + rank], variables[2 + rank:]
    ops: list[dict] = []

    def add(op: str, **fields) -> int:
        ops.append({"id": len(ops), "op": op, **fields})
        return len(ops) - 1

    places, mask = [], None
    transposed = numbers.get("transposed", False)

    def require(index, bounds):
        nonlocal mask
        at = add("index_expr", index=index, dtype="int64")
        for comparison, bound in bounds:
            limit = add("constant", value=bound, dtype="int64")
            inside = add(comparison, args=[at, limit])
            mask = inside if mask is None else add("and_", args=[mask, inside])

    for dim in range(rank):
        stride, padding, dilation = (numbers[key][dim] for key in ("stride", "padding", "dilation"))
        if transposed:
            # Indices are never negative: the numerator is moved up by a multiple of the stride.
            shift = -(-max(0, dilation * (w["size"][2 + dim] - 1) - padding) // stride) * stride
            terms = [iters[2 + dim], _times(over[1 + dim], -dilation), padding + shift]
            numerator = {"add": [term for term in terms if term != 0]}
            place = numerator if stride == 1 else {"floordiv": [numerator, stride]}
            require(place, (("ge", shift // stride), ("lt", x["size"][2 + dim] + shift // stride)))
            if stride > 1:
                require({"mod": [numerator, stride]}, (("eq", 0),))
            places.append({"add": [place, -(shift // stride)]} if shift else place)
            continue
        terms = [_times(iters[2 + dim], stride), _times(over[1 + dim], dilation)]
        if padding:
            terms.append(-padding)
        places.append({"add": terms})
        if padding:
            require(places[-1], (("ge", 0), ("lt", x["size"][2 + dim])))
    index = {"add": [x["offset"], _times(iters[0], x["stride"][0]), _times(over[0], x["stride"][1]),
                     *({"mul": [x["stride"][2 + dim], place]} for dim, place in enumerate(places))]}
    if mask is None:
        value = add("load", buffer=x["name"], index=index)
    else:
        inner = len(ops)
        ops.append({"id": inner + 1, "op": "masked", "args": [mask], "value": 0.0,
                    "block": {"ops": [{"id": inner, "op": "load", "buffer": x["name"], "index": index}], "results": [inner]}})
        value = inner + 1
        ops_offset = 1
    # A masked op takes two ids.
    taken = 0 if mask is None else ops_offset

    def late(op: str, **fields) -> int:
        ops.append({"id": len(ops) + taken, "op": op, **fields})
        return len(ops) - 1 + taken

    of_out, of_in = (1, 0) if transposed else (0, 1)
    weight = {"add": [w["offset"], _times(iters[1], w["stride"][of_out]), _times(over[0], w["stride"][of_in]),
                      *(_times(over[1 + dim], w["stride"][2 + dim]) for dim in range(rank))]}
    loaded = late("load", buffer=w["name"], index=weight)
    product = late("mul", args=[value, loaded])
    total = late("reduction", type="sum", dtype="float32", src_dtype="float32", args=[product])
    target = {"add": [out["offset"], *(_times(var, step) for var, step in zip(iters, out["stride"]))]}
    ops.append({"id": -1, "op": "store_reduction", "buffer": out["name"], "index": target, "args": [total]})
    return {"name": name, "ops": ops, "vars": [
        {"name": var, "extent": extent, "kind": "iter" if number < 2 + rank else "reduce"}
        for number, (var, extent) in enumerate(zip(variables, extents))]}


def _depthwise_body(name: str, numbers: dict, rank: int) -> dict:
    x, w, out = (numbers[key] for key in ("x", "w", "out"))
    extents = out["size"]
    iters = [f"p{number}" for number in range(len(extents))]
    several = extents[1] // x["size"][1]  # channels out for each channel in
    channel = iters[1] if several == 1 else {"floordiv": [iters[1], several]}
    ops: list[dict] = []
    used = 0

    def add(op: str, **fields) -> int:
        nonlocal used
        ops.append({"id": used, "op": op, **fields})
        used += 1
        return used - 1

    total = None
    for taps in itertools.product(*(range(size) for size in w["size"][2:])):
        places, mask = [], None
        for dim, tap in enumerate(taps):
            start = tap * numbers["dilation"][dim] - numbers["padding"][dim]
            place = _times(iters[2 + dim], numbers["stride"][dim])
            places.append({"add": [place, start]} if start else place)
            bounds = []
            if start < 0:
                bounds.append(("ge", 0))
            if (extents[2 + dim] - 1) * numbers["stride"][dim] + start >= x["size"][2 + dim]:
                bounds.append(("lt", x["size"][2 + dim]))
            if bounds:
                at = add("index_expr", index=places[-1], dtype="int64")
            for comparison, bound in bounds:
                inside = add(comparison, args=[at, add("constant", value=bound, dtype="int64")])
                mask = inside if mask is None else add("and_", args=[mask, inside])
        index = {"add": [x["offset"], _times(iters[0], x["stride"][0]), {"mul": [x["stride"][1], channel]},
                         *({"mul": [x["stride"][2 + dim], place]} for dim, place in enumerate(places))]}
        if mask is None:
            value = add("load", buffer=x["name"], index=index)
        else:
            inner, used = used, used + 1
            value = add("masked", args=[mask], value=0.0,
                        block={"ops": [{"id": inner, "op": "load", "buffer": x["name"], "index": index}], "results": [inner]})
        weight = add("load", buffer=w["name"], index={"add": [
            w["offset"] + sum(tap * step for tap, step in zip(taps, w["stride"][2:])), _times(iters[1], w["stride"][0])]})
        product = add("mul", args=[value, weight])
        total = product if total is None else add("add", args=[total, product])
    target = {"add": [out["offset"], *(_times(var, step) for var, step in zip(iters, out["stride"]))]}
    ops.append({"id": -1, "op": "store", "buffer": out["name"], "index": target, "args": [total], "mode": None})
    return {"name": name, "ops": ops, "vars": [
        {"name": var, "extent": extent, "kind": "iter"} for var, extent in zip(iters, extents)]}


def _times(variable: str, factor: int):
    return variable if factor == 1 else {"mul": [factor, variable]}
