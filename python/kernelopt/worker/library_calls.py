"""Library calls as launches (docs/formats.md): of the compiler's baseline, matrix products, convolutions, pools and scans; of a challenge,
convolutions in half precision between kernels of its own."""

import functools

import torch

from kernelopt.bridge.convolutions import convolve, output_padding
from kernelopt.bridge.pooling import bind_pool
from kernelopt.protocol import ProtocolError


def bind(kernel, tensors):
    """A function of no arguments that makes the call `kernel` over `tensors`, one a parameter, the result last."""
    if kernel["call"] == "convolution":
        return _convolution(kernel["numbers"], tensors)
    if kernel["call"] == "scan":
        return _scan(kernel["numbers"], tensors)
    if kernel["call"] == "pool":
        numbers = kernel["numbers"]
        return bind_pool(numbers, *_operands(numbers, ("x", "out"), tensors))
    if kernel["call"] != "product":
        raise ProtocolError("internal", f"no library call {kernel['call']}")
    names = list(kernel["extents"])
    iters, over = names[:-1], names[-1]
    places = [[*iters[:-1], over], [*iters[:-2], over, iters[-1]], iters]
    indices = kernel["indices"]
    a, b = (_view(tensors[i], indices[i], places[i], kernel["extents"]) for i in range(2))
    out = _view(tensors[-1], indices[-1], iters, kernel["extents"])
    batched = len(iters) == 3
    if len(tensors) == 3:
        return functools.partial(torch.bmm if batched else torch.mm, a, b, out=out)
    strides, _ = affine(indices[2])
    # As the compiler's call has it: a bias along the columns is one row.
    dims = [iters[-1]] if not batched and set(strides) <= {iters[-1]} else iters
    bias = _view(tensors[2], indices[2], dims, kernel["extents"])
    return functools.partial(torch.baddbmm if batched else torch.addmm, bias, a, b, out=out)


def _convolution(numbers, tensors):
    x, w, out = _operands(numbers, ("x", "w", "out"), tensors)
    flags = torch.backends.cudnn
    groups = numbers.get("groups", 1)
    # These have no form that writes into a given tensor; depthwise ones in fp32 are not cuDNN's at all.
    if numbers.get("transposed") or groups > 1:
        call = functools.partial(torch.convolution, x, w, None, numbers["stride"], numbers["padding"], numbers["dilation"],
                                 numbers.get("transposed", False), output_padding(numbers), groups)
        return lambda: out.copy_(call())
    return functools.partial(torch.ops.aten.cudnn_convolution.out, x, w, numbers["padding"], numbers["stride"], numbers["dilation"], 1,
                             flags.benchmark, flags.deterministic, flags.allow_tf32, out=out)


def _scan(numbers, tensors):
    x, out = _operands(numbers, ("x", "out"), tensors)
    return functools.partial({"cumsum": torch.cumsum, "cumprod": torch.cumprod}[numbers["op"]], x, numbers["dim"], dtype=out.dtype, out=out)


def _operands(numbers, keys, tensors):
    return [tensor.as_strided(numbers[key]["size"], numbers[key]["stride"], tensor.storage_offset() + numbers[key]["offset"])
            for key, tensor in zip(keys, tensors)]


class Returned:
    """A scratch buffer that a library call returns: it exists from the call to the last launch that reads it."""

    def __init__(self):
        self.tensor = None

    def data_ptr(self):
        return self.tensor.data_ptr()


def bind_returning(kernel, x, w, returned):
    """A function of no arguments that makes the call of a challenge's kernel over two scratch tensors and keeps the result."""
    if kernel["call"] != "convolution":
        raise ProtocolError("candidate", f"no library call {kernel['call']}")

    def run():
        returned.tensor = convolve(x, w, kernel["numbers"])

    return run


def affine(index):
    """({variable: stride}, offset) of an index expression that is a sum of variables and their multiples."""
    strides, offset = {}, 0
    for term in index["add"] if isinstance(index, dict) and "add" in index else [index]:
        if isinstance(term, int):
            offset += term
        elif isinstance(term, str):
            strides[term] = strides.get(term, 0) + 1
        else:
            factor, variable = term["mul"]
            strides[variable] = strides.get(variable, 0) + factor
    return strides, offset


def _view(tensor, index, variables, extents):
    strides, offset = affine(index)
    return tensor.as_strided([extents[name] for name in variables], [strides.get(name, 0) for name in variables],
                             tensor.storage_offset() + offset)
