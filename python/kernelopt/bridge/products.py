"""Matrix products among the library calls, as loop bodies (DESIGN.md section 4, "Vendor calls may be challenged").

A call whose meaning is known is recorded as the loop nest that it stands for, so that groups, digests, references and
candidates treat it as they treat generated steps:

    out[z, m, n] = (sum over k of a[z, m, k] * b[z, k, n]) [* alpha] [+ beta * bias[z, m, n]]

The first four ops of such a body are load, load, mul and reduction sum; whatever follows depends on the sum.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import torch

# Name of the call -> (position of the bias among its inputs, rank of its operands). The rest are a and b.
_CALLS = {"mm": (None, 2), "bmm": (None, 3), "addmm": (0, 2), "bias_addmm": (0, 2), "baddbmm": (0, 3)}


def product_body(name: str, kernel, entry_of, static_int) -> dict | None:
    """The body of an extern node that is a float32 product at full precision; None for any other call.

    entry_of(buffer name) -> (real name, entry of the program's buffers) or None; static_int raises Refusal for symbolic sizes.
    """
    call = str(getattr(kernel, "python_kernel_name", None) or "").removeprefix("extern_kernels.")
    if type(kernel).__name__ != "ExternKernelOut" or call not in _CALLS or kernel.constant_args:
        return None
    # With a lower precision the library does something else than the loops say.
    if torch.get_float32_matmul_precision() != "highest" or torch.backends.cuda.matmul.allow_tf32:
        return None
    bias_at, rank = _CALLS[call]
    inputs = list(kernel.inputs)
    if len(inputs) != (2 if bias_at is None else 3) or not set(kernel.kwargs) <= {"alpha", "beta"}:
        return None
    operands = [read_operand(item, entry_of, static_int) for item in inputs]
    out = read_operand(kernel, entry_of, static_int)
    if out is None or any(operand is None for operand in operands):
        return None
    bias = operands.pop(bias_at) if bias_at is not None else None
    a, b = operands
    sizes = out["size"]
    if len(sizes) != rank or len(a["size"]) != rank or len(b["size"]) != rank:
        return None
    (m, n), k = sizes[-2:], a["size"][-1]
    if a["size"] != [*sizes[:-2], m, k] or b["size"] != [*sizes[:-2], k, n] or 0 in (*sizes, k):
        return None
    if bias is not None and (len(bias["size"]) > rank or any(
            size not in (1, full) for size, full in zip(reversed(bias["size"]), reversed(sizes)))):
        return None
    iters = [f"p{number}" for number in range(rank)]
    over = f"p{rank}"
    recorder = _Ops()
    value = recorder.add("mul", args=[_load(recorder, a, [*iters[:-1], over]), _load(recorder, b, [*iters[:-2], over, iters[-1]])])
    value = recorder.add("reduction", type="sum", dtype="float32", src_dtype="float32", args=[value])
    value = _scaled(recorder, value, kernel.kwargs.get("alpha", 1))
    beta = kernel.kwargs.get("beta", 1)
    if bias is not None and beta != 0:
        place = iters[rank - len(bias["size"]):]
        loaded = _load(recorder, bias, [var if size > 1 else None for var, size in zip(place, bias["size"])])
        value = recorder.add("add", args=[value, _scaled(recorder, loaded, beta)])
    recorder.ops.append({"id": -1, "op": "store_reduction", "buffer": out["name"], "index": _index(out, iters), "args": [value]})
    extents = [*sizes, k]
    return {"name": name, "ops": recorder.ops, "vars": [
        {"name": f"p{number}", "extent": extent, "kind": "iter" if number < rank else "reduce"}
        for number, extent in enumerate(extents)]}


class _Ops:
    def __init__(self):
        self.ops: list[dict] = []

    def add(self, op: str, **fields) -> int:
        number = len(self.ops)
        self.ops.append({"id": number, "op": op, **fields})
        return number


def read_operand(node, entry_of, static_int) -> dict | None:
    """Name, size, stride and offset (in elements of the buffer's own memory) of a float32 operand; None for other kinds."""
    layout = node.get_layout()
    found = entry_of(node.get_name())
    if found is None or layout.dtype != torch.float32:
        return None
    name, entry = found
    # A view counts from the start of its buffer, and so do the indices of bodies.
    if entry["dtype"] != "float32" or entry["layout"] not in ("fixed", "non_owning"):
        return None
    offset = static_int(layout.offset) if type(node).__name__ == "ReinterpretView" else 0
    return {"name": name, "size": [static_int(size) for size in layout.size],
            "stride": [static_int(stride) for stride in layout.stride], "offset": offset}


def _index(operand: dict, variables: list):
    terms: list = [operand["offset"]] if operand["offset"] else []
    for var, stride in zip(variables, operand["stride"]):
        if var is not None and stride:
            terms.append(var if stride == 1 else {"mul": [stride, var]})
    if not terms:
        return 0
    return terms[0] if len(terms) == 1 else {"add": terms}


def _load(recorder: _Ops, operand: dict, variables: list) -> int:
    return recorder.add("load", buffer=operand["name"], index=_index(operand, variables))


def _scaled(recorder: _Ops, value: int, factor) -> int:
    if factor == 1:
        return value
    constant = recorder.add("constant", value=float(factor), dtype="float32")
    return recorder.add("mul", args=[value, constant])
