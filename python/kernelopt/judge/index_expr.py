"""Index expression trees (docs/formats.md): exact affine form, bounds, and evaluation with integer tensors."""

import torch

INF = float("inf")


def names_of(expr, into=None):
    """The set of vars and symbols that `expr` mentions."""
    into = set() if into is None else into
    if isinstance(expr, str):
        into.add(expr)
    elif isinstance(expr, dict):
        for args in expr.values():
            for arg in args:
                names_of(arg, into)
    return into


def _split(expr):
    if len(expr) != 1:
        raise ValueError(f"index expression with keys {sorted(expr)}")
    return next(iter(expr.items()))


def bounds(expr, ranges):
    """Inclusive bounds of `expr`; `ranges` maps a name to its inclusive bounds, an absent name is unbounded."""
    if isinstance(expr, int):
        return expr, expr
    if isinstance(expr, str):
        return ranges.get(expr, (-INF, INF))
    key, args = _split(expr)
    parts = [bounds(arg, ranges) for arg in args]
    lo, hi = parts[0]
    if key == "add":
        return sum(p[0] for p in parts), sum(p[1] for p in parts)
    if key == "mul":
        for lo2, hi2 in parts[1:]:
            corners = [_times(a, b) for a in (lo, hi) for b in (lo2, hi2)]
            lo, hi = min(corners), max(corners)
        return lo, hi
    if key == "min":
        return min(p[0] for p in parts), min(p[1] for p in parts)
    if key == "max":
        return max(p[0] for p in parts), max(p[1] for p in parts)
    (dlo, dhi) = parts[1]
    if key == "floordiv":
        if dlo < 1 or dhi == INF:
            return -INF, INF
        corners = [a if abs(a) == INF else a // d for a in (lo, hi) for d in (dlo, dhi)]
        return min(corners), max(corners)
    if key == "mod":
        if dlo < 1:
            return -INF, INF
        if lo >= 0 and hi < dlo:
            return lo, hi
        return 0, dhi - 1
    raise ValueError(f"unknown index operator {key!r}")


def _times(a, b):
    return 0 if a == 0 or b == 0 else a * b


def affine(expr, ranges):
    """`(coefficients by name, constant)` where `expr` is exactly affine over `ranges`, else None."""
    if isinstance(expr, int):
        return {}, expr
    if isinstance(expr, str):
        return ({expr: 1}, 0) if expr in ranges else None
    key, args = _split(expr)
    if key in ("floordiv", "mod"):
        lo, hi = bounds(args[0], ranges)
        divisor = args[1]
        if not isinstance(divisor, int) or divisor < 1:
            return None
        if key == "mod" and lo >= 0 and hi < divisor:
            return affine(args[0], ranges)
        if key == "floordiv" and abs(lo) != INF and abs(hi) != INF and lo // divisor == hi // divisor:
            return {}, lo // divisor
        inner = affine(args[0], ranges)
        if inner is None:
            return None
        if divisor == 1:
            return inner if key == "floordiv" else ({}, 0)
        if all(c % divisor == 0 for c in inner[0].values()):
            if key == "mod":
                return {}, inner[1] % divisor
            return {n: c // divisor for n, c in inner[0].items()}, inner[1] // divisor
        return None
    parts = [affine(arg, ranges) for arg in args]
    if any(part is None for part in parts):
        return None
    if key == "add":
        coefficients, constant = {}, 0
        for part, const in parts:
            constant += const
            for name, c in part.items():
                coefficients[name] = coefficients.get(name, 0) + c
        return {n: c for n, c in coefficients.items() if c}, constant
    if key == "mul":
        coefficients, constant = parts[0]
        for part, const in parts[1:]:
            if coefficients and part:
                return None
            if part:
                coefficients, constant, part, const = part, const, coefficients, constant
            coefficients = {n: c * const for n, c in coefficients.items() if c * const}
            constant *= const
        return coefficients, constant
    return None  # min and max


def evaluate(expr, values):
    """`expr` with `values` (name -> int or integer tensor): an int or an int64 tensor, broadcast as torch does."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, str):
        return values[expr]
    key, args = _split(expr)
    parts = [evaluate(arg, values) for arg in args]
    result = parts[0]
    for part in parts[1:]:
        if key == "add":
            result = result + part
        elif key == "mul":
            result = result * part
        elif isinstance(result, int) and isinstance(part, int):
            result = {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max}[key](result, part)
        else:
            result = _tensor_op(key, result, part)
    return result


def _tensor_op(key, a, b):
    if key == "floordiv":
        return torch.div(a, b, rounding_mode="floor")
    if key == "mod":
        return torch.remainder(a, b)
    device = (a if isinstance(a, torch.Tensor) else b).device
    a = torch.as_tensor(a, dtype=torch.int64, device=device)
    b = torch.as_tensor(b, dtype=torch.int64, device=device)
    if key == "min":
        return torch.minimum(a, b)
    if key == "max":
        return torch.maximum(a, b)
    raise ValueError(f"unknown index operator {key!r}")
