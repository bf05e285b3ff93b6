"""Pointwise ops of the loop IR (the pointwise rows of src/kernelopt/ir/op_table.h) with plain torch ops.

Every function takes tensors that already have their compute types and gives one of the type that the op table's rule
says; floating results of integer arguments take `float_dtype`, the compute type of float32.
"""

import torch


def _promote(args):
    dtype = args[0].dtype
    for arg in args[1:]:
        dtype = torch.promote_types(dtype, arg.dtype)
    return [arg.to(dtype) for arg in args]


def _divisor(b):
    # Lanes that a mask throws away may divide by zero; torch raises for integers.
    return b if b.dtype.is_floating_point else torch.where(b == 0, torch.ones_like(b), b)


def _int_pow(a, b):
    if a.dtype.is_floating_point:
        return torch.pow(a, b)
    return torch.where(b < 0, torch.zeros_like(a), torch.pow(a, b.clamp(min=0)))


def _binary(function):
    def run(a, b):
        a, b = _promote([a, b])
        return function(a, b)

    return run


def _bitwise(on_bool, on_int):
    def run(a, b):
        a, b = _promote([a, b])
        return on_bool(a, b) if a.dtype == torch.bool else on_int(a, b)

    return run


def _fma(a, b, c):
    a, b, c = _promote([a, b, c])
    return a * b + c


def _where(condition, a, b):
    a, b = _promote([a, b])
    return torch.where(condition.to(torch.bool), a, b)


def _float_class(function):
    def run(a):
        if not a.dtype.is_floating_point:
            return torch.zeros(a.shape, dtype=torch.bool, device=a.device)
        return function(a)

    return run


def _whole(function):
    return lambda a: function(a) if a.dtype.is_floating_point else a


PROMOTE = {
    "add": _binary(torch.add),
    "sub": _binary(torch.sub),
    "mul": _binary(torch.mul),
    "floordiv": _binary(lambda a, b: torch.div(a, _divisor(b), rounding_mode="floor")),
    "truncdiv": _binary(lambda a, b: torch.div(a, _divisor(b), rounding_mode="trunc")),
    "remainder": _binary(lambda a, b: torch.remainder(a, _divisor(b))),
    "fmod": _binary(lambda a, b: torch.fmod(a, _divisor(b))),
    "mod": _binary(lambda a, b: torch.fmod(a, _divisor(b))),
    "fma": _fma,
    "pow": _binary(_int_pow),
    "maximum": _binary(torch.maximum),
    "minimum": _binary(torch.minimum),
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "square": lambda a: a * a,
    "relu": lambda a: torch.relu(a) if a.dtype != torch.bool else a,
    "floor": _whole(torch.floor),
    "ceil": _whole(torch.ceil),
    "trunc": _whole(torch.trunc),
    "round": _whole(torch.round),
    "and_": _bitwise(torch.logical_and, torch.bitwise_and),
    "or_": _bitwise(torch.logical_or, torch.bitwise_or),
    "xor": _bitwise(torch.logical_xor, torch.bitwise_xor),
    "bitwise_and": _bitwise(torch.logical_and, torch.bitwise_and),
    "bitwise_or": _bitwise(torch.logical_or, torch.bitwise_or),
    "bitwise_xor": _bitwise(torch.logical_xor, torch.bitwise_xor),
    "bitwise_not": torch.bitwise_not,
    "bitwise_left_shift": _binary(torch.bitwise_left_shift),
    "bitwise_right_shift": _binary(torch.bitwise_right_shift),
    "where": _where,
    "identity": lambda a: a,
}

FLOAT = {
    "truediv": torch.true_divide,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "reciprocal": torch.reciprocal,
    **{
        name: getattr(torch, name)
        for name in (
            "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc", "tanh", "sigmoid",
            "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "lgamma", "digamma",
            "erfinv", "hypot",
        )
    },
}

BOOL = {
    **{name: _binary(getattr(torch, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{
        name: getattr(torch, name)
        for name in ("logical_and", "logical_or", "logical_xor", "logical_not", "signbit")
    },
    "isnan": _float_class(torch.isnan),
    "isinf": _float_class(torch.isinf),
}

TO_INT = {
    "floor_to_int": torch.floor,
    "ceil_to_int": torch.ceil,
    "trunc_to_int": torch.trunc,
    "round_to_int": torch.round,
}

NAMES = frozenset(PROMOTE) | frozenset(FLOAT) | frozenset(BOOL) | frozenset(TO_INT)


def apply(name, args, float_dtype, dtype=None):
    """The value of pointwise op `name`; `dtype` is the compute type of the op's `dtype` field, where it has one."""
    if name in PROMOTE:
        return PROMOTE[name](*args)
    if name in FLOAT:
        args = [arg if arg.dtype.is_floating_point else arg.to(float_dtype) for arg in args]
        return FLOAT[name](*_promote(args))
    if name in BOOL:
        return BOOL[name](*args)
    if name in TO_INT:
        value = args[0]
        if value.dtype.is_floating_point:
            value = TO_INT[name](value)
        return value.to(dtype or torch.int64)
    raise KeyError(name)
