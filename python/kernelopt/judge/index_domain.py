"""Which values the inputs of a group may take: indices in range, roots of non-negative numbers, counts (DESIGN section 6).

Indices are found by trying values: for every `indirect` op the pointwise chain behind it is evaluated on a range of
candidates for the integer buffers that it loads, so that wrapping, clamping, `ignore_index` and offsets need no rules of
their own. What several buffers of one chain share is tried with equal values, which is right for chains that grow with
each of them; the caller checks the drawn inputs by evaluating the group.
"""

import itertools
import math

import torch

from . import dtypes, index_expr, pointwise
from .loop_ir import walk

# Candidates are tried one by one up to this size of the indexed dimension, above it on a grid.
_EXACT = 1 << 15
_MAX_CORNERS = 32
_MAX_DEPTH = 200


class Domain:
    """Allowed values of one buffer: `values` sorted, `dense` where whole ranges between them are allowed too, `free` where
    nothing that was tried was out of range (clamped coordinates)."""

    def __init__(self, values, dense, free):
        self.values = values
        self.dense = dense
        self.free = free

    def narrow(self, other):
        lo, hi = max(self.values[0], other.values[0]), min(self.values[-1], other.values[-1])
        kept = sorted((set(self.values) & set(other.values)) or {v for v in self.values if lo <= v <= hi})
        return Domain(kept or [min(self.values, key=abs)], self.dense and other.dense, self.free and other.free)


class Bodies:
    """The bodies of some steps with their ops by id, and who stores each buffer."""

    def __init__(self, steps):
        self.bodies = [body for step in steps for body in step["bodies"]]
        self.ops = [{op["id"]: op for op in walk(body["ops"]) if op["id"] >= 0} for body in self.bodies]
        self.stores = {}
        for number, body in enumerate(self.bodies):
            for op in walk(body["ops"]):
                if op["op"] in ("store", "store_reduction"):
                    self.stores.setdefault(op["buffer"], []).append((number, op))

    def producer(self, name):
        """(body number, value id) of the one plain store to `name`, or None."""
        stores = self.stores.get(name, [])
        if len(stores) != 1 or stores[0][1].get("mode"):
            return None
        return stores[0][0], stores[0][1]["args"][0]


class _Chain:
    """The pointwise slice behind one value, across buffers that the group itself stores."""

    def __init__(self, bodies, external):
        self.bodies = bodies
        self.external = external
        self.loads = set()
        self.constants = set()
        self.variables = set()

    def collect(self, body, value, depth=0):
        op = self.bodies.ops[body][value]
        if depth > _MAX_DEPTH:
            return
        if op["op"] == "load":
            if op["buffer"] in self.external:
                self.loads.add(op["buffer"])
            else:
                source = self.bodies.producer(op["buffer"])
                if source is not None:
                    self.collect(*source, depth + 1)
        elif op["op"] == "constant":
            number = dtypes.number(op["value"])
            if isinstance(number, (int, float)) and math.isfinite(number):
                self.constants.add(int(number))
        elif op["op"] in ("index_expr", "value_expr"):
            self.variables |= {(body, name) for name in index_expr.names_of(op["index"])}
        elif op["op"] in pointwise.NAMES or op["op"] == "to_dtype":
            for arg in op["args"]:
                self.collect(body, arg, depth + 1)
        elif op["op"] == "masked":
            self.collect(body, op["block"]["results"][0], depth + 1)

    def value(self, body, value, candidates, corner, memo):
        """The chain's value with every external load equal to `candidates` (a float64 vector)."""
        key = (body, value)
        if key not in memo:
            memo[key] = self._value(body, self.bodies.ops[body][value], candidates, corner, memo)
        return memo[key]

    def _value(self, body, op, candidates, corner, memo):
        kind = op["op"]
        unknown = torch.zeros(1, dtype=torch.int64)
        if kind == "load":
            if op["buffer"] in self.external:
                dtype = dtypes.parse(self.external[op["buffer"]]["dtype"])
                return candidates.to(dtypes.compute_dtype(dtype, "float64"))
            source = self.bodies.producer(op["buffer"])
            return unknown if source is None else self.value(*source, candidates, corner, memo)
        if kind == "constant":
            dtype = dtypes.compute_dtype(dtypes.parse(op["dtype"]), "float64")
            number = dtypes.number(op["value"])
            return torch.full((1,), number if dtype.is_floating_point or dtype == torch.bool else int(number), dtype=dtype)
        if kind in ("index_expr", "value_expr"):
            names = index_expr.names_of(op["index"])
            values = {name: corner.get((body, name), 0) for name in names}
            result = torch.full((1,), index_expr.evaluate(op["index"], values), dtype=torch.int64)
            return result.to(dtypes.compute_dtype(dtypes.parse(op["dtype"]), "float64"))
        if kind == "masked":
            inner = self.value(body, op["block"]["results"][0], candidates, corner, memo)
            mask = self.value(body, op["args"][0], candidates, corner, memo).to(torch.bool)
            other = dtypes.number(op["value"])
            if not inner.dtype.is_floating_point:
                other = int(other) if math.isfinite(other) else 0
            return torch.where(mask, inner, torch.full((1,), other, dtype=inner.dtype))
        if kind == "to_dtype":
            inner = self.value(body, op["args"][0], candidates, corner, memo)
            return inner.to(dtypes.compute_dtype(dtypes.parse(op["dtype"]), "float64"))
        if kind in pointwise.NAMES:
            args = [self.value(body, arg, candidates, corner, memo) for arg in op["args"]]
            dtype = dtypes.parse(op["dtype"]) if op.get("dtype") else None
            return pointwise.apply(kind, args, torch.float64, dtype)
        return unknown


def _corners(chain, bodies):
    """Assignments of the chain's vars to the ends of their ranges."""
    names = sorted(chain.variables)
    ends = []
    for body, name in names:
        extent = next((var["extent"] for var in bodies.bodies[body]["vars"] if var["name"] == name), 1)
        ends.append(sorted({0, max(0, extent - 1)}))
    return [dict(zip(names, choice)) for choice in itertools.islice(itertools.product(*ends), _MAX_CORNERS)]


def _candidates(size, constants):
    near = {value + step for value in constants for step in (-1, 0, 1)}
    for shift in [value for value in constants if value and abs(value) <= 1 << 40][:8]:
        # Offsets in front of the lookup move the whole range.
        ends = range(-size - 1, size + 2) if size <= 4096 else (-size, -1, 0, 1, size // 2, size - 1)
        near |= {sign * shift + step for sign in (-1, 1) for step in ends}
    if size <= _EXACT:
        values = set(range(-size - 2, size + 3))
    else:
        step = size / 4096
        values = {int(step * number) for number in range(-4096, 4097)} | {-size - 1, -size, size - 1, size}
    near = {value for value in near if abs(value) <= 1 << 40}
    return sorted(values | near | {0})


def index_domains(steps, external):
    """`{buffer: Domain}` for the buffers of `external` (name -> buffer entry) that feed an index; floating ones too."""
    bodies = Bodies(steps)
    chains = []
    for number, body in enumerate(bodies.bodies):
        for op in walk(body["ops"]):
            if op["op"] == "indirect" and isinstance(op["size"], int):
                chain = _Chain(bodies, external)
                chain.collect(number, op["args"][0])
                if chain.loads:
                    chains.append((number, op, chain))
    # One buffer may go through several chains, and what is special to one must be tried in all.
    constants = set().union(*(chain.constants for _, _, chain in chains))
    domains = {}
    for number, op, chain in chains:
        found = _allowed(number, op, chain, constants, bodies)
        for name in chain.loads:
            domains[name] = domains[name].narrow(found) if name in domains else found
    return domains


def _allowed(body, op, chain, constants, bodies):
    size = op["size"]
    tried = _candidates(size, constants)
    vector = torch.tensor(tried, dtype=torch.float64)
    good = torch.ones(len(tried), dtype=torch.bool)
    for corner in _corners(chain, bodies):
        index = chain.value(body, op["args"][0], vector, corner, {}).to(torch.int64).expand(len(tried))
        good &= (index >= (-size if op.get("wrap_neg") else 0)) & (index < size)
    values = [value for value, fine in zip(tried, good.tolist()) if fine] or [0]
    return Domain(values, dense=size > _EXACT, free=bool(good.all()))


_ROOTS = ("sqrt", "rsqrt", "log", "log2", "log10")


def under_roots(steps, external):
    """Buffers of `external` that go into a root or a logarithm with at most constants added or multiplied on the way."""
    bodies = Bodies(steps)
    found = set()

    def descend(body, value):
        op = bodies.ops[body][value]
        if op["op"] == "load":
            if op["buffer"] in external:
                found.add(op["buffer"])
        elif op["op"] == "to_dtype":
            descend(body, op["args"][0])
        elif op["op"] in ("add", "mul", "truediv", "maximum"):
            varying = [arg for arg in op["args"] if bodies.ops[body][arg]["op"] not in ("constant", "index_expr")]
            if len(varying) == 1:
                descend(body, varying[0])

    for number, body in enumerate(bodies.bodies):
        for op in walk(body["ops"]):
            if op["op"] in _ROOTS:
                descend(number, op["args"][0])
    return found


_NEVER_NEGATIVE = ("exp", "exp2", "square", "abs", "sqrt", "rsqrt", "relu", "sigmoid", "erfc", "cosh")
_KEEPS_SIGN = ("add", "mul", "truediv", "minimum", "to_dtype", "where", "identity", "floor", "ceil", "trunc", "round")


class Signs:
    """What the rest of a program says about its computed buffers: never negative, or a known count."""

    def __init__(self, program):
        self.bodies = Bodies([step for step in program["steps"] if step.get("bodies")])

    def count(self, name):
        """The number that fills `name`, where it is the weight of a Welford reduction over plain values."""
        source = self.bodies.producer(name)
        if source is None:
            return None
        body, value = source
        op = self.bodies.ops[body][value]
        if op["op"] != "get" or op["which"] != 2:
            return None
        reduction = self.bodies.ops[body][op["args"][0]]
        if reduction["op"] != "reduction" or reduction["type"] != "welford_reduce":
            return None
        return math.prod(var["extent"] for var in self.bodies.bodies[body]["vars"] if var["kind"] == "reduce")

    def non_negative(self, name, depth=0):
        source = self.bodies.producer(name)
        return source is not None and self._value(*source, depth)

    def _value(self, body, value, depth):
        if depth > 40:
            return False
        op = self.bodies.ops[body][value]
        kind = op["op"]

        def known(arg):
            return self._value(body, arg, depth + 1)

        if kind == "constant":
            return dtypes.number(op["value"]) >= 0
        if kind == "load":
            return self.non_negative(op["buffer"], depth + 1)
        if kind in _NEVER_NEGATIVE:
            return True
        if kind in _KEEPS_SIGN:
            return all(known(arg) for arg in (op["args"][1:] if kind == "where" else op["args"]))
        if kind == "maximum":
            return any(known(arg) for arg in op["args"])
        if kind == "masked":
            return dtypes.number(op["value"]) >= 0 and known(op["block"]["results"][0])
        if kind == "reduction":
            return op["type"] in ("sum", "prod", "max", "min") and known(op["args"][0])
        if kind == "get":
            source = self.bodies.ops[body][op["args"][0]]
            if source["op"] != "reduction":
                return False
            if source["type"].startswith("welford"):
                return op["which"] > 0
            return source["type"] == "online_softmax_reduce" and op["which"] == 1
        return False
