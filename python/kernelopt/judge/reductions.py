"""Reductions, scans and sorts of the loop IR over the trailing (reduce) dimensions of a block.

A reduction gives a list of results whose reduce dimensions have size 1. `combine` joins the results of two consecutive
blocks of one iteration space, so that a long reduction can be cut; the order of the operands is the order of iteration.
"""

import torch

# Larger than any flat index; marks "not an extreme" while the first extreme is looked for.
_FAR = torch.iinfo(torch.int64).max


def full(value, shape):
    """`value` with every dimension at the block's length (a view)."""
    return value.expand(shape)


def flat(value, shape, iters):
    """`value` over the whole block with the reduce dimensions (those after `iters`) as one trailing dimension."""
    return full(value, shape).reshape(*shape[:iters], -1)


def _keep(value, shape, iters):
    return value.reshape(*shape[:iters], *([1] * (len(shape) - iters)))


def _sum(value, dims):
    return value.sum(dim=dims, keepdim=True, dtype=value.dtype)


def _xor(value):
    while value.shape[-1] > 1:
        if value.shape[-1] % 2:
            value = torch.cat([value, torch.zeros_like(value[..., :1])], dim=-1)
        half = value.shape[-1] // 2
        value = torch.bitwise_xor(value[..., :half], value[..., half:])
    return value[..., 0]


def _extreme(kind, value):
    return torch.amax if kind in ("max", "argmax") else torch.amin


def _mean(value, dims):
    mean = value.mean(dim=dims, keepdim=True)
    if not bool(torch.isfinite(mean).all()):
        # A plain sum may overflow where a running mean does not.
        count = 1
        for dim in dims:
            count *= value.shape[dim]
        scaled = _sum(value / count, dims)
        mean = torch.where(torch.isfinite(mean), mean, scaled)
    return mean


def _combine_welford(a, b):
    mean_a, m2_a, weight_a = a
    mean_b, m2_b, weight_b = b
    weight = weight_a + weight_b
    share = torch.where(weight == 0, torch.zeros_like(weight), weight_b / weight)
    delta = mean_b - mean_a
    return [mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight]


def reduce(kind, args, dtype, shape, iters, start):
    """Results of reduction `kind` of a block of lengths `shape`.

    `dtype` is the compute type of the accumulation, `start` an int64 tensor (or None) that gives the flat index over
    the whole reduce space of each element of the block, for argmax and argmin.
    """
    dims = tuple(range(iters, len(shape)))
    if kind in ("argmax", "argmin"):
        value = full(args[0], shape)
        index = full(args[1].to(torch.int64) if len(args) > 1 else start, shape)
        if value.dtype == torch.bool:
            value = value.to(torch.int8)
        best = _extreme(kind, value)(value, dim=dims, keepdim=True)
        hit = value == best
        if value.dtype.is_floating_point:
            hit |= torch.isnan(value) & torch.isnan(best)
        first = torch.where(hit, index, _FAR).amin(dim=dims, keepdim=True)
        return [first, best]
    if kind == "welford_combine":
        mean, m2, weight = (full(arg.to(dtype), shape) for arg in args)
        total = _sum(weight, dims)
        centre = _sum(mean * weight, dims) / total
        centre = torch.where(total == 0, torch.zeros_like(centre), centre)
        # Lanes of weight zero must not bring in what their mean holds.
        spread = torch.where(weight == 0, torch.zeros_like(mean), (mean - centre) ** 2 * weight)
        return [centre, _sum(m2 + spread, dims), total]
    value = full(args[0], shape)
    if kind == "any":
        return [value.to(torch.bool).amax(dim=dims, keepdim=True)]
    value = value.to(dtype)
    if kind == "dot" and len(args) > 1:
        value = value * full(args[1].to(dtype), shape)
    if kind in ("sum", "dot"):
        if value.dtype == torch.bool:
            return [value.amax(dim=dims, keepdim=True)]
        return [_sum(value, dims)]
    if kind in ("max", "min"):
        return [_extreme(kind, value)(value, dim=dims, keepdim=True)]
    if kind == "prod":
        return [_keep(flat(value, shape, iters).prod(dim=-1, dtype=value.dtype), shape, iters)]
    if kind == "xor_sum":
        return [_keep(_xor(flat(value, shape, iters)), shape, iters)]
    if kind == "welford_reduce":
        mean = _mean(value, dims)
        count = 1
        for dim in dims:
            count *= shape[dim]
        m2 = _sum((value - mean) ** 2, dims)
        # A running mean that has met an infinity goes on as NaN, in whatever order the rest comes.
        return [torch.where(torch.isnan(m2), m2, mean), m2, torch.full_like(mean, count)]
    if kind == "online_softmax_reduce":
        best = value.amax(dim=dims, keepdim=True)
        return [best, _sum(torch.exp(value - best), dims)]
    raise ValueError(f"unknown reduction {kind!r}")


def combine(kind, a, b):
    """The results of two consecutive blocks as one."""
    if kind in ("sum", "dot"):
        return [a[0] | b[0] if a[0].dtype == torch.bool else a[0] + b[0]]
    if kind == "prod":
        return [a[0] * b[0]]
    if kind == "any":
        return [a[0] | b[0]]
    if kind == "xor_sum":
        return [torch.bitwise_xor(a[0], b[0])]
    if kind == "max":
        return [torch.maximum(a[0], b[0])]
    if kind == "min":
        return [torch.minimum(a[0], b[0])]
    if kind in ("argmax", "argmin"):
        (first_a, best_a), (first_b, best_b) = a, b
        better = best_b > best_a if kind == "argmax" else best_b < best_a
        equal = best_a == best_b
        if best_a.dtype.is_floating_point:
            better |= torch.isnan(best_b) & ~torch.isnan(best_a)
            better &= ~torch.isnan(best_a)
            equal |= torch.isnan(best_a) & torch.isnan(best_b)
        better |= equal & (first_b < first_a)
        return [torch.where(better, first_b, first_a), torch.where(better, best_b, best_a)]
    if kind in ("welford_reduce", "welford_combine"):
        return _combine_welford(a, b)
    if kind == "online_softmax_reduce":
        best = torch.maximum(a[0], b[0])
        # A block of -inf alone has the sum NaN, which must not outlive a block that has more.
        parts = [
            torch.where((one == float("-inf")) & (best > one), torch.zeros_like(total), total * torch.exp(one - best))
            for one, total in (a, b)
        ]
        return [best, parts[0] + parts[1]]
    raise ValueError(f"unknown reduction {kind!r}")


def scan(values, function, single_op, shape, iters):
    """Inclusive scan of `values` in row-major order of the reduce dimensions.

    `function(left, right)` is the associative combine over lists of tensors; `single_op` is its op where it is one
    plain op of one value ("add", "mul"), which torch does directly.
    """
    rows = [flat(value, shape, iters) for value in values]
    if single_op == "add" and rows[0].dtype != torch.bool:
        rows = [torch.cumsum(rows[0], dim=-1, dtype=rows[0].dtype)]
    elif single_op == "mul" and rows[0].dtype != torch.bool:
        rows = [torch.cumprod(rows[0], dim=-1, dtype=rows[0].dtype)]
    else:
        length, step = rows[0].shape[-1], 1
        while step < length:
            joined = function([row[..., :-step] for row in rows], [row[..., step:] for row in rows])
            rows = [torch.cat([row[..., :step], new.to(row.dtype)], dim=-1) for row, new in zip(rows, joined)]
            step *= 2
    return [row.reshape(shape) for row in rows]


def sort(values, stable, descending, shape, iters):
    """The first value sorted along the flattened reduce dimensions (NaN is the largest), the others carried along."""
    rows = [flat(value, shape, iters) for value in values]
    key, order = torch.sort(rows[0], dim=-1, descending=descending, stable=True)
    rows = [key] + [row.gather(-1, order) for row in rows[1:]]
    return [row.reshape(shape) for row in rows]
