"""Interpreter of loop bodies (docs/formats.md) with plain torch ops: the reference of gate 2 (DESIGN section 6).

A body is evaluated in blocks of its iteration space. In a block every value is a tensor with one dimension per var,
of length 1 where the value does not depend on that var, so that broadcasting does the loop nest. Affine loads are strided
views; other loads gather. Values take the types of dtypes.compute_dtype.

    memory = evaluate(program, ["op0", "op1"], {"arg0_1": tensor}, "float64")
    result = memory.tensor("buf1")

LoopError: the body asks for something that the formats do not have, or an index leaves its buffer.
"""

import itertools
import math

import torch

from kernelopt.bridge import has_loops
from kernelopt.bridge.convolutions import output_padding

from . import dtypes, index_expr, philox, pointwise, reductions
from .memory import Memory

# Elements of one block. A float64 value of a block takes 8 MiB, and a body keeps a few dozen values at most.
BLOCK_ELEMENTS = 1 << 20
# A GPU needs long blocks to be busy, and has the memory: 128 MiB a float64 value.
GPU_BLOCK_ELEMENTS = 1 << 24

_EFFECTS = ("store", "store_reduction", "check_bounds")


class LoopError(ValueError):
    """A loop body that cannot be evaluated, or that reads or writes outside a buffer."""


def find_steps(program, group):
    """The steps called `group`, in program order; LoopError where one is missing or has no bodies."""
    wanted = set(group)
    steps = [step for step in program["steps"] if step["name"] in wanted]
    if len(steps) != len(wanted):
        raise LoopError(f"no step {sorted(wanted - {step['name'] for step in steps})} in the program")
    for step in steps:
        if not has_loops(step):
            raise LoopError(f"step {step['name']} has no loop body: {step.get('refused') or step['kind']}")
    return steps


def reads_and_writes(steps):
    """Buffer names that the bodies of `steps` read before any of them wrote, and those that they write, in order."""
    reads, writes = {}, {}
    for step in steps:
        for body in step["bodies"]:
            stored = {}
            for op in walk(body["ops"]):
                if op["op"] in ("load", "load_seed") or op.get("mode") == "atomic_add":
                    if op["buffer"] not in writes:
                        reads.setdefault(op["buffer"])
                if op["op"] in ("store", "store_reduction"):
                    stored.setdefault(op["buffer"])
            writes.update(stored)
    return list(reads), list(writes)


def walk(ops):
    """Every op, those of nested blocks included."""
    for op in ops:
        yield op
        if "block" in op:
            yield from walk(op["block"]["ops"])


def evaluate(program, group, inputs, mode, device="cpu", memory=None, block_elements=None):
    """Runs the steps `group` of `program` and returns the Memory with all buffers that they wrote.

    `inputs` maps real names to tensors and is not changed. A `memory` from an earlier call goes on from there.
    """
    steps = find_steps(program, group)
    memory = memory or Memory(program["buffers"], mode, device)
    block_elements = block_elements or (BLOCK_ELEMENTS if memory.device.type == "cpu" else GPU_BLOCK_ELEMENTS)
    for name, tensor in inputs.items():
        memory.write(name, tensor)
    with torch.no_grad():
        for step in steps:
            for body in step["bodies"]:
                try:
                    if step["kind"] == "extern" and "convolution" in step["extern"]:
                        _convolve(step["extern"]["convolution"], memory)
                        continue
                    run = BodyRun if step["kind"] == "generated" or {"pool", "scan"} & step["extern"].keys() else ProductRun
                    run(body, memory, mode, block_elements).run()
                except LoopError as error:
                    raise LoopError(f"{step['name']}: {error}") from None
    return memory


class BodyRun:
    """One evaluation of one body over its whole iteration space."""

    def __init__(self, body, memory, mode, block_elements=BLOCK_ELEMENTS):
        self.ops = body["ops"]
        self.memory = memory
        self.mode = mode
        self.float_dtype = dtypes.compute_dtype(torch.float32, mode)
        self.vars = [var["name"] for var in body["vars"]]
        self.extents = [var["extent"] for var in body["vars"]]
        self.iters = sum(var["kind"] == "iter" for var in body["vars"])
        if any(var["kind"] == "reduce" for var in body["vars"][: self.iters]):
            raise LoopError("a reduce var stands before an iter var")
        self.ranges = {name: (0, extent - 1) for name, extent in zip(self.vars, self.extents)}
        self.block_elements = block_elements
        written = {op["buffer"] for op in walk(self.ops) if op["op"] in ("store", "store_reduction")}
        self.written_roots = {memory.root(name)[0] for name in written}
        self._padded = {}
        self._plan()

    def _plan(self):
        """Which ops come after the reductions, whether the reduction can be cut, and where each value dies."""
        after, inner = set(), set()
        self.late = []
        scans = False
        for op in self.ops:
            scans |= op["op"] in ("scan", "sort")
            uses = self._uses(op)
            is_late = op["op"] == "store_reduction" or any(use in after for use in uses)
            self.late.append(is_late)
            if op["op"] == "reduction" or is_late:
                after.add(op["id"])
            if not is_late:
                inner.add(op["id"])
        needs_inner = any(
            use in inner and use not in after
            for op, is_late in zip(self.ops, self.late)
            if is_late
            for use in self._uses(op)
        )
        chained = any(op["op"] == "reduction" and late for op, late in zip(self.ops, self.late))
        has_reduction = any(op["op"] == "reduction" for op in self.ops)
        self.can_cut = has_reduction and not (scans or needs_inner or chained)
        self.dies = {}
        for position, op in enumerate(self.ops):
            for use in self._uses(op):
                self.dies[use] = position

    def _uses(self, op):
        uses = list(op.get("args", ()))
        if "block" in op:
            for nested in walk(op["block"]["ops"]):
                uses.extend(nested.get("args", ()))
            uses.extend(op["block"]["results"])
        return uses

    def run(self):
        if any(extent == 0 for extent in self.extents[: self.iters]):
            return
        if any(extent == 0 for extent in self.extents):
            raise LoopError("an empty reduction")
        for block in self._blocks(range(self.iters), math.prod(self.extents[self.iters :])):
            state = {}
            cuts = [{}]
            if self.can_cut:
                used = math.prod(length for _, length in block.values())
                cuts = list(self._blocks(range(self.iters, len(self.vars)), used))
            else:
                cuts = [{dim: (0, self.extents[dim]) for dim in range(self.iters, len(self.vars))}]
            for number, cut in enumerate(cuts):
                _Block(self, {**block, **cut}, state, last=number == len(cuts) - 1).run()

    def _blocks(self, dims, other):
        """Blocks of the vars `dims` in order, outermost cut first; `other` elements stand inside or beside each."""
        dims = list(dims)
        lengths, room = {}, max(1, self.block_elements // max(1, other))
        for dim in reversed(dims):
            lengths[dim] = max(1, min(self.extents[dim], room))
            room = room // self.extents[dim] if lengths[dim] == self.extents[dim] else 1
        spans = [
            [(start, min(lengths[dim], self.extents[dim] - start)) for start in range(0, self.extents[dim], lengths[dim])]
            for dim in dims
        ]
        for choice in itertools.product(*spans):
            yield dict(zip(dims, choice))

    def padded(self, name, lo, hi):
        """Storage of `name` that may be read from `lo` to `hi`, and the position of element 0 in it; None if absurd."""
        storage = self.memory.storage(name)
        count = storage.numel()
        before, behind = max(0, -lo), max(0, hi - count + 1)
        if not before and not behind:
            return storage, 0
        if before + behind > 4 * count + 4096 or self.memory.root(name)[0] in self.written_roots:
            return None
        old = self._padded.get(name)
        if old is None or old[1] < before or old[0].numel() - old[1] - count < behind:
            if old is not None:
                before = max(before, old[1])
                behind = max(behind, old[0].numel() - old[1] - count)
            fill = float("nan") if storage.dtype.is_floating_point else 0
            wide = torch.full((before + count + behind,), fill, dtype=storage.dtype, device=storage.device)
            wide[before : before + count].copy_(storage)
            old = self._padded[name] = (wide, before)
        return old


def _convolve(numbers, memory):
    """A library's convolution (bridge/convolutions.py), by torch's own."""

    def view(key):
        operand = numbers[key]
        storage = memory.storage(operand["name"])
        return storage.as_strided(operand["size"], operand["stride"], storage.storage_offset() + operand["offset"])

    result = torch.convolution(view("x"), view("w"), None, numbers["stride"], numbers["padding"], numbers["dilation"],
                               numbers.get("transposed", False), output_padding(numbers), numbers.get("groups", 1))
    view("out").copy_(result)


class ProductRun(BodyRun):
    """A library's matrix product (bridge/products.py): the sum by one torch.matmul, for no loop could hold all its terms."""

    def run(self):
        load_a, load_b, _, total = self.ops[:4]
        z, (m, n), over = self.vars[: self.iters - 2], self.vars[self.iters - 2 : self.iters], self.vars[self.iters]
        sums = torch.matmul(self._operand(load_a, [*z, m, over]), self._operand(load_b, [*z, over, n])).unsqueeze(-1)
        for block in self._blocks(range(self.iters), 1):
            part = _Block(self, {**block, self.iters: (0, 1)}, {}, True)
            for dim, (start, length) in block.items():
                part.values[total["id"]] = part.values.get(total["id"], sums).narrow(dim, start, length)
            for op in self.ops[4:]:
                result = part.apply(op)
                if result is not None:
                    part.values[op["id"]] = result

    def _operand(self, load, names):
        form = index_expr.affine(load["index"], self.ranges)
        if form is None:
            raise LoopError("a product over an index that is not affine")
        strides, offset = form
        extents = dict(zip(self.vars, self.extents))
        storage = self.memory.storage(load["buffer"])
        view = storage.as_strided([extents[name] for name in names], [strides.get(name, 0) for name in names],
                                  storage.storage_offset() + offset)
        return view.to(dtypes.compute_dtype(self.memory.dtype(load["buffer"]), self.mode))


class _Block:
    """Evaluation of the ops on one block. `state` carries partial reductions from cut to cut."""

    def __init__(self, run, block, state, last):
        self.run_ = run
        self.memory = run.memory
        self.state = state
        self.last = last
        self.starts = [block[dim][0] for dim in range(len(run.vars))]
        self.shape = [block[dim][1] for dim in range(len(run.vars))]
        self.iters = run.iters
        self.device = run.memory.device
        self.values = {}
        self.index_values = {}
        self.ranges = {
            name: (start, start + length - 1) for name, start, length in zip(run.vars, self.starts, self.shape)
        }
        self.var_ranges = dict(self.ranges)
        for dim, name in enumerate(run.vars):
            view = [1] * len(self.shape)
            view[dim] = self.shape[dim]
            start = self.starts[dim]
            self.index_values[name] = torch.arange(start, start + self.shape[dim], device=self.device).reshape(view)
        self.mask = None

    def run(self):
        for position, (op, is_late) in enumerate(zip(self.run_.ops, self.run_.late)):
            if is_late and not self.last:
                continue
            result = self.apply(op)
            if result is not None:
                self.values[op["id"]] = result
            for use in self.run_._uses(op):
                if self.run_.dies[use] == position:
                    self.values.pop(use, None)

    def apply(self, op):
        kind = op["op"]
        method = getattr(self, "op_" + kind, None)
        if method is not None:
            return method(op)
        if kind not in pointwise.NAMES:
            raise LoopError(f"op {kind}")
        dtype = op.get("dtype")
        return pointwise.apply(
            kind, self.args(op), self.run_.float_dtype, self.compute(dtype) if dtype is not None else None
        )

    def args(self, op):
        values = []
        for use in op["args"]:
            value = self.values[use]
            values.append(value[0] if isinstance(value, list) else value)
        return values

    def compute(self, name):
        return dtypes.compute_dtype(dtypes.parse(name), self.run_.mode)

    def scalar(self, value, dtype):
        if not dtype.is_floating_point and dtype != torch.bool:
            value = int(value)
        return torch.full([1] * len(self.shape), value, dtype=dtype, device=self.device)

    # Index expressions

    def index(self, expr):
        value = index_expr.evaluate(expr, self.index_values)
        if isinstance(value, int):
            return torch.full([1] * len(self.shape), value, dtype=torch.int64, device=self.device)
        return value

    def safe_index(self, name, expr, count):
        """Index tensor of `expr` with every lane inside `count` elements; only lanes under a mask may have been out."""
        value = self.index(expr)
        lo, hi = index_expr.bounds(expr, self.ranges)
        if lo >= 0 and hi < count:
            return value
        self.check(value, 0, count, f"index of {name}")
        return value.clamp(0, count - 1)

    def check(self, value, lo, hi, what):
        """LoopError where an active lane of `value` is not in [lo, hi)."""
        outside = (value < lo) | (value >= hi)
        if self.mask is not None:
            outside = outside & self.mask
        if bool(outside.any()):
            wide, outside = torch.broadcast_tensors(value, outside)
            raise LoopError(f"{what} is {int(wide[outside][0])}, outside [{lo}, {hi})")

    def op_index_expr(self, op):
        return self.index(op["index"]).to(self.compute(op["dtype"]))

    def op_value_expr(self, op):
        return self.op_index_expr(op)

    def op_indirect(self, op):
        value = self.args(op)[0].to(torch.int64)
        size = self.index(op["size"])
        size = int(size) if size.numel() == 1 else size
        if op.get("wrap_neg"):
            value = torch.where(value < 0, value + size, value)
        if isinstance(size, int):
            if op.get("check"):
                self.check(value, 0, size, "indirect index")
                self.ranges[op["symbol"]] = (0, size - 1)
                value = value.clamp(0, max(0, size - 1))
        self.index_values[op["symbol"]] = value

    def op_check_bounds(self, op):
        size = int(self.index(op["size"]))
        value = self.index(op["index"])
        lo = 0 if op.get("lower", True) else torch.iinfo(torch.int64).min
        hi = size if op.get("upper", True) else torch.iinfo(torch.int64).max
        self.check(value, lo, hi, "checked index")

    # Memory

    def op_load(self, op):
        name = op["buffer"]
        value = self._load_affine(name, op["index"])
        if value is None:
            storage = self.memory.storage(name)
            index = self.safe_index(name, op["index"], storage.numel())
            value = storage[index]
        elif self.memory.root(name)[0] in self.run_.written_roots:
            value = value.clone()
        return value.to(dtypes.compute_dtype(self.memory.dtype(name), self.run_.mode))

    def _load_affine(self, name, expr):
        form = index_expr.affine(expr, self.var_ranges)
        if form is None:
            return None
        coefficients, constant = form
        lo, hi = index_expr.bounds(expr, self.ranges)
        exact_lo = constant + sum(min(c * b for b in self.ranges[n]) for n, c in coefficients.items())
        exact_hi = constant + sum(max(c * b for b in self.ranges[n]) for n, c in coefficients.items())
        lo, hi = max(lo, exact_lo), min(hi, exact_hi)
        storage, origin = self.memory.storage(name), 0
        if lo < 0 or hi >= storage.numel():
            if self.mask is None:
                raise LoopError(f"index of {name} is in [{lo}, {hi}], outside [0, {storage.numel()})")
            wide = self.run_.padded(name, exact_lo, exact_hi)
            if wide is None:
                return None
            storage, origin = wide
        return self._strided(storage, coefficients, constant + origin)

    def _strided(self, storage, coefficients, constant):
        sizes, strides, flips = [], [], []
        position = constant
        for dim, name in enumerate(self.run_.vars):
            c = coefficients.get(name, 0)
            position += c * self.starts[dim]
            sizes.append(self.shape[dim] if c else 1)
            strides.append(abs(c))
            if c < 0:
                position += c * (self.shape[dim] - 1)
                flips.append(dim)
        view = storage.as_strided(sizes, strides, storage.storage_offset() + position)
        return view.flip(flips) if flips else view

    def op_load_seed(self, op):
        storage = self.memory.storage(op["buffer"])
        return storage[int(self.index(op["offset"]))].reshape([1] * len(self.shape)).to(torch.int64)

    def op_store(self, op):
        name, value = op["buffer"], self.args(op)[0]
        storage = self.memory.storage(name)
        value = value.to(storage.dtype)
        if op.get("mode") == "atomic_add":
            self._atomic_add(name, storage, op["index"], value)
            return
        if op.get("mode") is not None:
            raise LoopError(f"store mode {op['mode']}")
        self._store(name, storage, op["index"], value, self.shape)

    def op_store_reduction(self, op):
        name, value = op["buffer"], self.args(op)[0]
        storage = self.memory.storage(name)
        shape = self.shape[: self.iters] + [1] * (len(self.shape) - self.iters)
        self._store(name, storage, op["index"], value.to(storage.dtype), shape)

    def _store(self, name, storage, expr, value, shape):
        form = index_expr.affine(expr, self.var_ranges)
        if form is not None:
            coefficients, constant = form
            lo, hi = index_expr.bounds(expr, self.ranges)
            if lo < 0 or hi >= storage.numel():
                raise LoopError(f"index of {name} is in [{lo}, {hi}], outside [0, {storage.numel()})")
            if all(c > 0 for c in coefficients.values()):
                for dim, var in enumerate(self.run_.vars):
                    # Lanes that write the same element: the last one stands, as in the loop.
                    if var not in coefficients and value.shape[dim] > 1:
                        value = value.narrow(dim, value.shape[dim] - 1, 1)
                target = self._strided(storage, coefficients, constant)
                if _disjoint(target):
                    target.copy_(value)
                    return
        index = self.safe_index(name, expr, storage.numel()).expand(shape)
        storage[index.reshape(-1)] = value.expand(shape).reshape(-1)

    def _atomic_add(self, name, storage, expr, value):
        index = self.safe_index(name, expr, storage.numel()).expand(self.shape).reshape(-1)
        value = value.expand(self.shape).reshape(-1)
        if storage.dtype in dtypes.HALVES:
            wide = storage.float().index_add_(0, index, value.float())
            storage.copy_(wide)
        else:
            storage.index_add_(0, index, value)

    # Values

    def op_constant(self, op):
        dtype = self.compute(op["dtype"])
        return self.scalar(dtypes.number(op["value"]), dtype)

    def op_to_dtype(self, op):
        value, dtype = self.args(op)[0], dtypes.parse(op["dtype"])
        value = value.to(self.compute(op["dtype"]))
        if dtype in dtypes.HALVES and self.run_.mode == "float32" and not op.get("use_compute_types", True):
            value = value.to(dtype).to(torch.float32)
        return value

    def op_to_dtype_bitcast(self, op):
        value = self.args(op)[0].to(dtypes.parse(op["src_dtype"]))
        return value.contiguous().view(dtypes.parse(op["dtype"])).to(self.compute(op["dtype"]))

    def op_get(self, op):
        value = self.values[op["args"][0]]
        return value[op["which"]] if isinstance(value, list) else value

    def op_rand(self, op):
        seed, offset = self.args(op)
        return philox.rand(seed, offset, self.device.type).to(self.run_.float_dtype)

    def op_randn(self, op):
        seed, offset = self.args(op)
        return philox.randn(seed, offset, self.device.type).to(self.run_.float_dtype)

    # Blocks

    def op_masked(self, op):
        mask = self.args(op)[0].to(torch.bool)
        outer, self.mask = self.mask, mask if self.mask is None else self.mask & mask
        try:
            self._nested(op["block"]["ops"])
        finally:
            self.mask = outer
        results = []
        for result in op["block"]["results"]:
            value = self.values[result]
            results.append(torch.where(mask, value, self.scalar(dtypes.number(op["value"]), value.dtype)))
        return results[0] if len(results) == 1 else results

    def _nested(self, ops):
        for op in ops:
            result = self.apply(op)
            if result is not None:
                self.values[op["id"]] = result

    def op_reduction(self, op):
        kind, dtype = op["type"], self.compute(op["dtype"])
        index = self._flat_index() if kind in ("argmax", "argmin") and len(op["args"]) == 1 else None
        if kind == "any":
            dtype = torch.bool
        part = reductions.reduce(kind, self._reduction_args(op), dtype, self.shape, self.iters, index)
        done = self.state.get(op["id"])
        part = part if done is None else reductions.combine(kind, done, part)
        self.state[op["id"]] = part
        if not self.last:
            return None
        if kind in ("argmax", "argmin"):
            return part[0].to(self.compute(op["dtype"]))
        return part[0] if len(part) == 1 else part

    def _reduction_args(self, op):
        values = []
        for use in op["args"]:
            value = self.values[use]
            values.extend(value if isinstance(value, list) else [value])
        return values

    def _flat_index(self):
        result = 0
        for name, extent in list(zip(self.run_.vars, self.run_.extents))[self.iters :]:
            result = result * extent + self.index_values[name]
        return result

    def op_scan(self, op):
        block, count = op["block"], len(op["args"])
        params = block["params"]
        ops = block["ops"]
        single = ops[0]["op"] if len(ops) == 1 and count == 1 and sorted(ops[0]["args"]) == sorted(params) else None
        values = [value.to(self.compute(dtype)) for value, dtype in zip(self.args(op), op["dtypes"])]

        def function(left, right):
            shape, self.shape = self.shape, list(left[0].shape)
            try:
                self.values.update(zip(params, left + right))
                self._nested(ops)
                return [self.values[result].expand(left[0].shape) for result in block["results"]]
            finally:
                self.shape = shape

        results = reductions.scan(values, function, single, self.shape, self.iters)
        return results[0] if len(results) == 1 else results

    def op_sort(self, op):
        values = [value.to(self.compute(dtype)) for value, dtype in zip(self.args(op), op["dtypes"])]
        results = reductions.sort(values, op["stable"], op["descending"], self.shape, self.iters)
        return results[0] if len(results) == 1 else results


def _disjoint(view):
    """Whether no two elements of a strided view share memory (sufficient condition)."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(view.stride(), view.shape) if size > 1):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True
