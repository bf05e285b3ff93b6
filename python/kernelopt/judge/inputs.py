"""Inputs of a group, drawn for a seed and a case (DESIGN section 6, docs/protocol.md `group_inputs`).

Cases: `ordinary` (also called `normal`: standard normal), `uniform` (in [-1, 1]), `positive` (in [0.1, 1.1]), `large` (a
thousand times ordinary, thirty for half types), `wide` (each value times a power of two of its own, up to 2^20 either way),
`special` (ordinary with a few zeros, signed zeros, denormals, infinities
and NaN). Values that the group cannot do without stay plausible in every case: indices are in range, and what comes from a
sum of squares or goes under a root is not negative. Samples of a real run, where given, set the scale.

The same program, group, seed and case always give the same values.
"""

import hashlib

import torch

from . import dtypes, index_domain, memory
from .loop_ir import LoopError, evaluate, find_steps, reads_and_writes, walk

CASES = ("ordinary", "uniform", "positive", "large", "wide", "special")
_ALIASES = {"normal": "ordinary"}
# Share of an index input's elements that take an unusual allowed value (ignore_index, a negative index).
_UNUSUAL = 8


def input_names(program, group):
    """Real names of the buffers whose contents the group starts from, in order of first use.

    Beside plain reads these are buffers that the group writes into without having defined them: mutated inputs, and
    buffers that an earlier step filled.
    """
    steps = find_steps(program, group)
    member = {step["name"] for step in steps}
    first_writer = {}
    for step in program["steps"]:
        for name in step["writes"]:
            first_writer.setdefault(name, step["name"])
    reads, writes = reads_and_writes(steps)
    buffers = program["buffers"]

    def defined(name):
        return buffers[name]["kind"] == "computed" and first_writer.get(name) in member

    names = [name for name in reads if not defined(name) or name not in writes]
    names += [name for name in writes if not defined(name) and name not in names]
    return [name for name in names if buffers[name].get("value") is None or name in writes]


def _generator(seed, case, name_index, device):
    text = f"{seed}/{case}/{name_index}".encode()
    generator = torch.Generator(device)
    generator.manual_seed(int.from_bytes(hashlib.sha256(text).digest()[:7], "little"))
    return generator


class _Facts:
    """What is known of the group's inputs before anything is drawn."""

    def __init__(self, program, steps, names):
        external = {name: program["buffers"][name] for name in names}
        self.domains = index_domain.index_domains(steps, external)
        self.roots = index_domain.under_roots(steps, external)
        self.signs = index_domain.Signs(program)
        self.seeds = {
            op["buffer"] for step in steps for body in step["bodies"] for op in walk(body["ops"]) if op["op"] == "load_seed"
        }


def group_inputs(program, group, seed, case="ordinary", samples=None, check=True, device="cpu"):
    """`{real name: tensor}` for the inputs of a group; sizes and strides are the buffers', views share their storage.

    `samples` maps real names to tensors of a real run. With `check`, a group that indexes indirectly is evaluated once on
    what was drawn; if an index is out of range, all index inputs fall back to one allowed value, and LoopError says so
    where even that does not help. ValueError for an unknown case. Values are drawn on `device`: another kind of device draws
    others.
    """
    case = _ALIASES.get(case, case)
    if case not in CASES:
        raise ValueError(f"no input case {case!r}; there are {', '.join(CASES)}")
    steps = find_steps(program, group)
    names = input_names(program, group)
    facts = _Facts(program, steps, names)
    drawn = _draw(program, names, seed, case, samples or {}, facts, False, device)
    indirect = any(op["op"] == "indirect" for step in steps for body in step["bodies"] for op in walk(body["ops"]))
    if check and indirect:
        try:
            evaluate(program, group, drawn, "float32", device)
        except LoopError:
            drawn = _draw(program, names, seed, case, samples or {}, facts, True, device)
            evaluate(program, group, drawn, "float32", device)
    return drawn


def _draw(program, names, seed, case, samples, facts, plain, device):
    buffers = program["buffers"]
    layout = memory.Memory(buffers, "float32")
    roots = {}
    for name in names:
        roots.setdefault(layout.root(name)[0], name)
    storages = {}
    for number, (root, first) in enumerate(roots.items()):
        sample = samples.get(root, samples.get(first))
        meta = buffers[root]
        count = layout.extent_of(root)
        storages[root] = _values(
            first if root not in names else root, dtypes.parse(meta["dtype"]), count, _generator(seed, case, number, device),
            case, sample, facts, plain,
        )
    result = {}
    for name in names:
        root, offset = layout.root(name)
        meta = buffers[name]
        result[name] = storages[root].as_strided(meta["size"], meta["stride"], offset)
    return result


def _values(name, dtype, count, generator, case, sample, facts, plain):
    domain = facts.domains.get(name)
    if domain is not None and not (domain.free and dtype.is_floating_point):
        return _indices(domain, dtype, count, generator, case, plain)
    if name in facts.seeds:
        return torch.randint(0, 1 << 31, (count,), generator=generator, device=generator.device, dtype=torch.int64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(count, generator=generator, device=generator.device) < 0.5
    if not dtype.is_floating_point:
        lo, hi = (0, 13) if dtype == torch.uint8 else (-3, 13)
        if case == "large":
            lo, hi = lo * 10, hi * 9
        if sample is not None and sample.numel():
            lo, hi = int(sample.min()), int(sample.max()) + 1
        return torch.randint(lo, hi, (count,), generator=generator, device=generator.device, dtype=torch.int64).to(dtype)
    fixed = facts.signs.count(name)
    if fixed is not None:
        return torch.full((count,), float(fixed), dtype=dtype, device=generator.device)
    return _floats(name, dtype, count, generator, case, sample, facts)


def _floats(name, dtype, count, generator, case, sample, facts):
    positive = name in facts.roots or facts.signs.non_negative(name)
    scale = (30.0 if dtype in dtypes.HALVES else 1000.0) if case == "large" else 1.0
    known = None
    if sample is not None:
        known = sample.detach().reshape(-1).to(generator.device, torch.float64)
        known = known[torch.isfinite(known)]
        known = known if known.numel() else None
    if known is not None:
        positive = positive or bool((known >= 0).all())
        lo, hi = float(known.min()), float(known.max())
        if lo == hi:
            return torch.full((count,), lo, dtype=torch.float64, device=generator.device).to(dtype)
        if case == "uniform":
            values = lo + (hi - lo) * torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
        else:
            values = known[torch.randint(0, known.numel(), (count,), generator=generator, device=generator.device)]
            values = values * (1 + 0.05 * torch.randn(count, generator=generator, device=generator.device, dtype=torch.float64))
            values = values.abs() + 0.1 * known.std() if case == "positive" else values
        values = values * scale
    elif case == "uniform":
        values = 2 * torch.rand(count, generator=generator, device=generator.device) - 1
    elif case == "positive":
        values = torch.rand(count, generator=generator, device=generator.device) + 0.1
    else:
        values = torch.randn(count, generator=generator, device=generator.device) * scale
    if positive:
        values = values.abs()
    if case == "wide":
        reach = 4 if dtype in dtypes.HALVES else 20
        values = values * torch.exp2(torch.randint(-reach, reach + 1, (count,), generator=generator, device=generator.device).to(values.dtype))
    values = values.to(dtype)
    if case == "special":
        _put_specials(values, generator, finite=name in facts.domains)
    return values


def _put_specials(values, generator, finite):
    count = values.numel()
    if count == 0:
        return
    tiny = torch.finfo(values.dtype).tiny
    specials = [0.0, -0.0, tiny / 2, -tiny / 4]
    if not finite:
        specials += [float("inf"), float("-inf"), float("nan")]
    # Few, so that most rows of a reduction stay finite; in small tensors not every kind.
    specials = specials if count >= 64 else specials[-(1 + count // 10):]
    where = torch.randint(0, count, (len(specials),), generator=generator, device=generator.device)
    values[where] = torch.tensor(specials, dtype=torch.float64, device=values.device).to(values.dtype)


def _indices(domain, dtype, count, generator, case, plain):
    values = domain.values
    usual = [value for value in values if value >= 0] or values
    if plain:
        return torch.full((count,), usual[0], dtype=torch.float64, device=generator.device).to(dtype)
    if dtype.is_floating_point:
        lo, hi = values[0], values[-1]
        return (lo + (hi - lo) * torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)).to(dtype)
    if domain.dense:
        drawn = torch.randint(usual[0], usual[-1] + 1, (count,), generator=generator, device=generator.device)
    else:
        drawn = torch.tensor(usual, device=generator.device)[torch.randint(0, len(usual), (count,), generator=generator, device=generator.device)]
    # A value far from all others (ignore_index) belongs to ordinary data; negative indices only to special ones.
    unusual = [value for value in values if value < 0]
    if case != "special":
        unusual = [value for value in unusual if value - 1 not in values and value + 1 not in values]
    if unusual and count > 1:
        chosen = torch.tensor(unusual, device=generator.device)[torch.randint(0, len(unusual), (count,), generator=generator, device=generator.device)]
        drawn = torch.where(torch.randint(0, _UNUSUAL, (count,), generator=generator, device=generator.device) == 0, chosen, drawn)
    limit = torch.iinfo(dtype) if dtype != torch.bool else None
    if limit is not None:
        drawn = drawn.clamp(limit.min, limit.max)
    return drawn.to(dtype)
