"""Recorder: scheduled Inductor nodes -> step documents (docs/formats.md "Program"; DESIGN.md section 3).

A loop body is replayed under a recording ops handler, because sizes of indirect indices and combine functions live in
Python closures and not in the body's graph. Recording never changes a body. What is not known becomes a refusal by name.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import math

import sympy
import torch
from torch._inductor import dependencies as inductor_dependencies
from torch._inductor import ir as inductor_ir
from torch._inductor import scheduler as inductor_scheduler
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.utils import sympy_index_symbol
from torch._inductor.virtualized import OpsValue, V

from kernelopt.bridge.adapters import torch_release
from kernelopt.bridge.convolutions import convolution_of
from kernelopt.bridge.pooling import packed_call, pool_of
from kernelopt.bridge.products import product_body
from kernelopt.bridge.scans import scan_of, taken_result


class Refusal(Exception):
    """A step or program cannot be recorded; the text is the reason that the report shows."""


DTYPE_NAMES = {
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int8: "int8", torch.int16: "int16", torch.int32: "int32", torch.int64: "int64",
    torch.uint8: "uint8", torch.bool: "bool",
}
REDUCTION_RESULTS = {
    "sum": 1, "prod": 1, "max": 1, "min": 1, "any": 1, "xor_sum": 1, "argmax": 1, "argmin": 1, "dot": 1,
    "welford_reduce": 3, "welford_combine": 3, "online_softmax_reduce": 2,
}
# Ops that the generic rule (all arguments are values) must not record: they have effects or hidden operands.
_OPS_NEVER_PLAIN = frozenset({
    "bucketize", "frexp", "randint64", "rand_eager", "device_assert_async", "partial_accumulate",
    "inline_asm_elementwise", "halide_clamp", "output", "placeholder", "indirect_indexing",
})


def dtype_name(dtype) -> str:
    if dtype not in DTYPE_NAMES:
        raise Refusal(f"dtype {str(dtype).removeprefix('torch.')}")
    return DTYPE_NAMES[dtype]


def json_number(value):
    """A Python number as JSON has it; non-finite ones become strings."""
    if isinstance(value, bool) or isinstance(value, int):
        return value
    if isinstance(value, (sympy.Integer, sympy.Float, sympy.Rational)):
        value = int(value) if value.is_Integer else float(value)
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return value
    raise Refusal(f"constant of type {type(value).__name__}")


def _unwrap(value):
    return value.value if isinstance(value, OpsValue) else value


def static_int(value) -> int:
    """An extent that is known now; Refusal("symbolic size") otherwise."""
    if isinstance(value, bool):
        raise Refusal("symbolic size")
    if isinstance(value, int):
        return value
    if isinstance(value, sympy.Integer):
        return int(value)
    value = sympy.sympify(value)
    if value.is_Integer:
        return int(value)
    raise Refusal("symbolic size")


def index_tree(expr, symbols) -> object:
    """A sympy index expression as the tree of docs/formats.md; `symbols` are the names that may occur."""
    if isinstance(expr, int):
        return expr
    expr = sympy.sympify(expr)
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        if expr.name not in symbols:
            raise Refusal("symbolic size")
        return expr.name
    name = type(expr).__name__
    if name == "Identity":
        return index_tree(expr.args[0], symbols)
    if name in ("FloorDiv", "CleanDiv"):
        return _floordiv(expr.args[0], expr.args[1], symbols)
    if name == "ModularIndexing":
        base, divisor, modulus = expr.args
        inner = index_tree(base, symbols) if divisor == 1 else _floordiv(base, divisor, symbols)
        return {"mod": [inner, _positive(modulus)]}
    if name in ("Mod", "PythonMod"):
        return {"mod": [index_tree(expr.args[0], symbols), _positive(expr.args[1])]}
    if expr.is_Add:
        return {"add": [index_tree(arg, symbols) for arg in expr.args]}
    if expr.is_Mul:
        return {"mul": [index_tree(arg, symbols) for arg in expr.args]}
    if expr.is_Pow and expr.exp.is_Integer and 2 <= int(expr.exp) <= 8:
        base = index_tree(expr.base, symbols)
        return {"mul": [base] * int(expr.exp)}
    if name == "Abs":
        inner = index_tree(expr.args[0], symbols)
        return {"max": [inner, {"mul": [-1, inner]}]}
    if name in ("Min", "Max"):
        return {name.lower(): [index_tree(arg, symbols) for arg in expr.args]}
    raise Refusal(f"index function {name}")


def _positive(expr) -> int:
    value = sympy.sympify(expr)
    if not value.is_Integer or int(value) <= 0:
        raise Refusal("division by something that is not a positive constant")
    return int(value)


def _floordiv(base, divisor, symbols):
    return {"floordiv": [index_tree(base, symbols), _positive(divisor)]}


class _Value:
    """An SSA value of the body under recording."""

    __slots__ = ("id",)

    def __init__(self, number: int):
        self.id = number


class _Results:
    """Several results of one op; taking one records a `get`."""

    def __init__(self, recorder: "BodyRecorder", number: int, count: int):
        self._recorder, self._id, self._count = recorder, number, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, which: int) -> _Value:
        if not 0 <= which < self._count:
            raise IndexError(which)
        return self._recorder.emit("get", args=[self._id], which=which)


class BodyRecorder(DefaultHandler):
    """Ops handler that writes down what a loop body does. One instance records one body.

    buffer_of: maps the name in a body to real memory. index_ops: from the adapter.
    """

    def __init__(self, buffer_of, index_ops):
        self.ops: list[dict] = []
        self._stack = [self.ops]
        self._buffer_of = buffer_of
        self._index_ops = index_ops
        self._next = 0
        self._indirect = 0
        self.symbols: set[str] = set()

    # -- emission

    def emit(self, op: str, effect: bool = False, **fields) -> _Value:
        number = -1
        if not effect:
            number = self._next
            self._next += 1
        self._stack[-1].append({"id": number, "op": op, **fields})
        return _Value(number)

    def _tree(self, expr):
        return index_tree(expr, self.symbols)

    @staticmethod
    def _id(value, op: str) -> int:
        value = _unwrap(value)
        if not isinstance(value, _Value):
            raise Refusal(f"op {op} with an operand that is not a value")
        return value.id

    def _ids(self, values, op: str) -> list[int]:
        values = values if isinstance(values, (tuple, list)) else [values]
        return [self._id(value, op) for value in values]

    # -- memory

    def load(self, name, index):
        return self.emit("load", buffer=self._buffer_of(name), index=self._tree(index))

    def store(self, name, index, value, mode=None):
        if mode not in (None, "atomic_add"):
            raise Refusal(f"store mode {mode}")
        return self.emit("store", effect=True, buffer=self._buffer_of(name), index=self._tree(index),
                         args=[self._id(value, "store")], mode=mode)

    def store_reduction(self, name, index, value):
        return self.emit("store_reduction", effect=True, buffer=self._buffer_of(name), index=self._tree(index),
                         args=[self._id(value, "store_reduction")])

    def load_seed(self, name, offset):
        return self.emit("load_seed", buffer=self._buffer_of(name), offset=static_int(offset))

    # -- values that are not plain functions of values

    def constant(self, value, dtype):
        return self.emit("constant", value=json_number(value), dtype=dtype_name(dtype))

    def _index_value(self, expr, dtype):
        return self.emit("index_expr", index=self._tree(expr), dtype=dtype_name(dtype))

    def indirect_indexing(self, index_var, size, check=True, wrap_neg=True):
        symbol = f"i{self._indirect}"
        self._indirect += 1
        self.emit("indirect", effect=True, args=[self._id(index_var, "indirect_indexing")], size=self._tree(size),
                  check=bool(check), wrap_neg=bool(wrap_neg), symbol=symbol)
        self.symbols.add(symbol)
        return sympy_index_symbol(symbol)

    def check_bounds(self, index, size, lower, upper):
        return self.emit("check_bounds", effect=True, index=self._tree(index), size=self._tree(size),
                         lower=bool(lower), upper=bool(upper))

    def to_dtype(self, x, dtype, src_dtype=None, use_compute_types=True):
        return self.emit("to_dtype", args=[self._id(x, "to_dtype")], dtype=dtype_name(dtype),
                         src_dtype=dtype_name(src_dtype) if src_dtype is not None else None,
                         use_compute_types=bool(use_compute_types))

    def to_dtype_bitcast(self, x, dtype, src_dtype):
        return self.emit("to_dtype_bitcast", args=[self._id(x, "to_dtype_bitcast")], dtype=dtype_name(dtype),
                         src_dtype=dtype_name(src_dtype))

    def _to_int(self, name, x, dtype):
        return self.emit(name, args=[self._id(x, name)], dtype=dtype_name(dtype))

    def trunc_to_int(self, x, dtype):
        return self._to_int("trunc_to_int", x, dtype)

    def ceil_to_int(self, x, dtype):
        return self._to_int("ceil_to_int", x, dtype)

    def floor_to_int(self, x, dtype):
        return self._to_int("floor_to_int", x, dtype)

    def round_to_int(self, x, dtype):
        return self._to_int("round_to_int", x, dtype)

    def masked(self, mask, body, other):
        other = _unwrap(other)
        if isinstance(other, _Value):
            raise Refusal("op masked with a computed other value")
        mask_id = self._id(mask, "masked")
        block, result = self._block(body)
        return self.emit("masked", args=[mask_id], value=json_number(other),
                         block={"ops": block, "results": self._ids(result, "masked")})

    def _block(self, body, *args):
        ops: list[dict] = []
        self._stack.append(ops)
        try:
            result = _unwrap(body(*args))
        finally:
            self._stack.pop()
        return ops, result

    # -- over an axis

    def reduction(self, dtype, src_dtype, reduction_type, value):
        if reduction_type not in REDUCTION_RESULTS:
            raise Refusal(f"reduction {reduction_type}")
        result = self.emit("reduction", type=reduction_type, dtype=dtype_name(dtype), src_dtype=dtype_name(src_dtype),
                           args=self._ids(value, "reduction"))
        count = REDUCTION_RESULTS[reduction_type]
        return result if count == 1 else _Results(self, result.id, count)

    def scan(self, dtypes, combine_fn, values):
        count = len(values)
        args = self._ids(values, "scan")
        params = list(range(self._next, self._next + 2 * count))
        self._next += 2 * count
        left = tuple(OpsValue(_Value(number)) for number in params[:count])
        right = tuple(OpsValue(_Value(number)) for number in params[count:])
        ops, result = self._block(combine_fn, left, right)
        scan = self.emit("scan", dtypes=[dtype_name(dtype) for dtype in dtypes], args=args,
                         block={"params": params, "ops": ops, "results": self._ids(result, "scan")})
        return _Results(self, scan.id, count)

    def sort(self, dtypes, values, stable, descending):
        result = self.emit("sort", dtypes=[dtype_name(dtype) for dtype in dtypes], args=self._ids(values, "sort"),
                           stable=bool(stable), descending=bool(descending))
        return _Results(self, result.id, len(values))

    # -- everything else: a pure function of values, or unknown

    def _default(self, name, args, kwargs):
        if name in self._index_ops and len(args) == 2 and not kwargs:
            return self._index_value(*args)
        if name in _OPS_NEVER_PLAIN or kwargs or not args:
            raise Refusal(f"op {name}")
        return self.emit(name, args=[self._id(arg, name) for arg in args])


def record_body(name: str, body, buffer_of, index_ops) -> dict:
    """The body document of one LoopBody. Raises Refusal."""
    recorder = BodyRecorder(buffer_of, index_ops)
    iter_sizes, reduce_sizes = body.sizes
    variables, symbols = [], ([], [])
    for position, sizes in enumerate((iter_sizes, reduce_sizes)):
        for size in sizes:
            var = f"p{len(variables)}"
            variables.append({"name": var, "extent": static_int(size), "kind": ("iter", "reduce")[position]})
            symbols[position].append(sympy_index_symbol(var))
            recorder.symbols.add(var)
    with V.set_ops_handler(recorder):
        body(*symbols, allow_same_symbol_in_index=True)
    return {"name": name, "vars": variables, "ops": recorder.ops}


def body_ops(block_ops):
    """Every op of a list, nested blocks included, in order."""
    for op in block_ops:
        yield op
        if "block" in op:
            yield from body_ops(op["block"]["ops"])


class ScheduleRecorder:
    """Turns the schedule of one graph into the steps, buffers, inputs and outputs of a Program document.

    Must be constructed inside the compile, at the entry of Scheduler.codegen and before any backend has printed.
    """

    def __init__(self, graph, scheduler, adapter):
        self.graph, self.scheduler, self.adapter = graph, scheduler, adapter
        self._aliased: dict[str, str] = {}
        self._calls: dict[str, tuple[dict, dict]] = {}  # loops of library calls and what their step says beside, by step
        self._makers: dict[str, object] = {}  # of a step that takes the result of a call before it: the call's node

    def real_name(self, name: str) -> str:
        """The memory behind a name: mutation renames applied."""
        return self.scheduler.mutation_real_name.get(name, name)

    def program(self, number: int) -> dict:
        """The Program document without wrapper text. Raises Refusal where the whole graph is out of reach."""
        if any(not isinstance(value, inductor_ir.TensorBox) for value in self.graph.graph_inputs.values()):
            raise Refusal("symbolic size")
        buffers = self._buffers()
        for node in self.scheduler.nodes:
            if self._kind(node) == "extern" and (found := self._library_call(node, buffers)) is not None:
                self._calls[node.get_name()] = found
        self._find_scans(buffers)
        self._find_pools(buffers)
        self._mark_removable(buffers)
        inside = {id(maker) for maker in self._makers.values()}
        steps = [self._step(node, buffers) for node in self.scheduler.nodes if id(node) not in inside]
        inputs = list(self.graph.graph_inputs)
        outputs = [self.real_name(name) for name in self.graph.get_output_names()]
        used = set(inputs) | set(outputs)
        for step in steps:
            used.update(step["reads"], step["writes"], step["last_use"])
        pending = list(used)
        while pending:
            entry = buffers.get(pending.pop())
            for other in (entry or {}).get("base"), (entry or {}).get("mutates"):
                if other and other not in used:
                    used.add(other)
                    pending.append(other)
        return {
            "format": "kernelopt.program", "version": 1, "torch": torch_release(), "adapter": self.adapter.minor,
            "device": self.graph.device_type or "cpu", "graph": number, "inputs": inputs, "outputs": outputs,
            "buffers": {name: entry for name, entry in buffers.items() if name in used},
            "steps": steps, "wrapper": "", "kernels": [],
        }

    def members(self, names) -> list:
        """The nodes of the schedule that the steps `names` of the program stand for, in their order."""
        nodes = {node.get_name(): node for node in self.scheduler.nodes}
        found = []
        for name in names:
            if name in self._makers:
                found.append(self._makers[name])
            found.append(nodes[name])
        return found

    # -- buffers

    def _buffers(self) -> dict:
        outputs = {self.real_name(name) for name in self.graph.get_output_names()}
        table = {}
        for name, box in self.graph.graph_inputs.items():
            table[name] = self._entry("input", box.get_layout(), name in outputs)
        for name, tensor in self.graph.constants.items():
            table[name] = {
                "kind": "constant", "dtype": DTYPE_NAMES.get(tensor.dtype, "uint8"), "size": list(tensor.size()),
                "stride": list(tensor.stride()), "offset": 0, "device": tensor.device.type,
                "layout": "fixed" if tensor.dtype in DTYPE_NAMES else "none", "base": None, "mutates": None,
                "is_output": name in outputs, "removable": False, "value": None,
            }
            if tensor.dim() == 0 and tensor.device.type == "cpu" and tensor.dtype in DTYPE_NAMES:
                table[name]["value"] = json_number(tensor.item())
        for name, scheduled in self.scheduler.name_to_buf.items():
            table[name] = self._computed(name, scheduled, name in outputs)
        return table

    def _mark_removable(self, table: dict) -> None:
        shared = {entry["base"] for entry in table.values()} | set(self._aliased.values())
        for name, entry in table.items():
            if entry["kind"] == "computed" and entry["layout"] == "fixed":
                entry["removable"] = name not in shared and not entry["is_output"] and self._removable(name)

    def _entry(self, kind: str, layout, is_output: bool) -> dict:
        entry = {"kind": kind, "dtype": "uint8", "size": [0], "stride": [1], "offset": 0, "device": "cpu",
                 "layout": "none", "base": None, "mutates": None, "is_output": is_output, "removable": False,
                 "value": None}
        if not isinstance(layout, inductor_ir.Layout):
            return entry
        entry["device"] = layout.device.type
        if layout.dtype in DTYPE_NAMES:
            entry.update(dtype=DTYPE_NAMES[layout.dtype], size=[static_int(size) for size in layout.size],
                         stride=[static_int(stride) for stride in layout.stride], layout="fixed")
        return entry

    def _computed(self, name: str, scheduled, is_output: bool) -> dict:
        layout = scheduled.node.get_output_spec()
        if isinstance(layout, inductor_ir.MutationLayoutSHOULDREMOVE):
            entry = self._entry("computed", layout.real_layout(), is_output)
            entry.update(layout="mutation", mutates=self.real_name(name))
            return entry
        entry = self._entry("computed", layout, is_output)
        if isinstance(layout, inductor_ir.NonOwningLayout):
            base, offset = self._storage(layout)
            entry.update(layout="non_owning", base=base, offset=offset)
        elif entry["layout"] == "fixed" and static_int(layout.offset) != 0:
            entry["layout"] = "none"  # never seen: a body index would then start elsewhere
        aliases = scheduled.get_aliases()
        if aliases and entry["layout"] == "fixed":
            self._aliased[name] = self.real_name(aliases[0])
        return entry

    def _storage(self, layout) -> tuple[str, int]:
        """Owner of a non-owning layout's storage and the offset in it, in elements."""
        offset = 0
        while isinstance(layout, inductor_ir.NonOwningLayout):
            offset += static_int(layout.view.get_layout().offset)
            owner = layout.view.data
            while not isinstance(owner, inductor_ir.Buffer):
                if isinstance(owner, inductor_ir.ReinterpretView):
                    offset += static_int(owner.get_layout().offset)
                owner = owner.data
            name, layout = owner.get_name(), owner.get_output_spec()
        return self.real_name(name), offset

    def _removable(self, name: str) -> bool:
        scheduled = self.scheduler.name_to_buf[name]
        if name in self.scheduler.mutation_renames or name in self.scheduler.mutation_real_name:
            return False
        if name in self._aliased or not self._is_loop_node(scheduled.defining_op):
            return False
        return all(user.is_weak or self._is_loop_node(user.node) for user in scheduled.users)

    def _is_loop_node(self, node) -> bool:
        if node.get_name() in self._calls or any(node is maker for maker in self._makers.values()):
            return True
        return isinstance(node, inductor_scheduler.SchedulerNode) and not node.is_template()

    # -- steps

    def _step(self, node, buffers: dict) -> dict:
        weak = inductor_dependencies.WeakDep
        own = set(node.get_buffer_names())
        reads = {self.real_name(dep.name) for dep in node.read_writes.reads if not isinstance(dep, weak)} - own
        maker = self._makers.get(node.get_name())
        writes = {self.real_name(name) for name in own}
        for output in node.get_outputs():
            writes.update(self.real_name(name) for name in output.get_mutations())
        step = {
            "name": node.get_name(), "kind": self._kind(node), "reads": sorted(reads & buffers.keys()),
            "writes": sorted(writes), "last_use": sorted(self._last_use(node, buffers)),
            "origins": self._origins(node), "refused": None,
        }
        if step["kind"] == "generated":
            try:
                step["bodies"] = self._bodies(node, buffers)
                self._memory_of(step, own)
            except Refusal as refusal:
                step.update(bodies=[], refused=str(refusal))
        elif step["kind"] in ("extern", "template"):
            step["extern"] = self._extern(maker or node)
            if node.get_name() in self._calls:
                body, more = self._calls[node.get_name()]
                step["bodies"] = [body]
                step["extern"].update(more)
                self._memory_of(step, own)
        if maker is not None:
            hidden = set(maker.get_buffer_names())
            step["origins"] = sorted({*step["origins"], *self._origins(maker)})
            step["last_use"] = sorted({*step["last_use"], *self._last_use(maker, buffers)} - hidden)
        return step

    def _find_scans(self, buffers: dict) -> None:
        """Notes the scans among the library calls of a CPU program: each is two neighbours of the schedule and one step."""
        if (self.graph.device_type or "cpu") != "cpu":
            return
        nodes = list(self.scheduler.nodes)
        for maker, taker in zip(nodes, nodes[1:]):
            if taken_result(maker) is not taker or {*maker.get_buffer_names()} & {*self.graph.get_output_names()}:
                continue
            try:
                found = scan_of(taker.get_name(), maker.node, taker.node, self._entry_of(buffers), static_int)
            except Refusal:
                continue
            if found is not None:
                self._calls[taker.get_name()] = (found[0], {"scan": found[1]})
                self._makers[taker.get_name()] = maker

    def _find_pools(self, buffers: dict) -> None:
        """Notes the pools among the library calls: each is two nodes, the call and the taking of its result, and one step."""
        nodes = list(self.scheduler.nodes)
        places = {node.get_name(): number for number, node in enumerate(nodes)}
        for number, taker in enumerate(nodes):
            call = packed_call(taker.node) if self._kind(taker) == "extern" else None
            at = places.get(call.get_operation_name()) if call is not None else None
            if at is None or at > number or not self._only_user(call.get_name(), taker):
                continue
            # The step stands where the result is taken: what the call read must still be there.
            if any(output.get_mutations() for between in nodes[at + 1:number] for output in between.get_outputs()):
                continue
            try:
                found = pool_of(taker.get_name(), taker.node, self._entry_of(buffers), static_int)
            except Refusal:
                continue
            if found is not None:
                self._calls[taker.get_name()] = (found[0], {"pool": found[1]})
                self._makers[taker.get_name()] = nodes[at]

    def _only_user(self, name: str, node) -> bool:
        users = [user for user in self.scheduler.name_to_buf[name].users if not user.is_weak]
        return [user.get_name() for user in users] == [node.get_name()]

    def _entry_of(self, buffers: dict):
        def entry_of(name: str):
            real = self.real_name(name)
            return (real, buffers[real]) if real in buffers and real == name and name not in self._aliased else None

        return entry_of

    def _library_call(self, node, buffers: dict) -> tuple[dict, dict] | None:
        """(loops, further entries of `extern`) of a library call whose meaning is known."""
        entry_of = self._entry_of(buffers)
        try:
            body = product_body(node.get_name(), node.node, entry_of, static_int)
            if body is not None:
                return body, {}
            found = convolution_of(node.get_name(), node.node, entry_of, static_int)
            return (found[0], {"convolution": found[1]}) if found is not None else None
        except Refusal:
            return None

    def _kind(self, node) -> str:
        if isinstance(node, inductor_scheduler.NopKernelSchedulerNode):
            return "nop"
        if node.is_template():
            return "template"
        if node.is_extern():
            return "extern"
        return "generated"

    def _last_use(self, node, buffers: dict) -> set[str]:
        return {self.real_name(name) for name in getattr(node, "last_usage", ())} & buffers.keys()

    def _origins(self, node) -> list[str]:
        names = set()
        for member in node.get_nodes():
            for origin in member.node.get_origins() if member.node is not None else ():
                target = origin.target
                if isinstance(target, torch._ops.OpOverload):
                    target = target.overloadpacket
                if origin.op == "call_function":
                    names.add(str(target))
        return sorted(names)

    def _bodies(self, node, buffers: dict) -> list[dict]:
        if type(node).__name__ not in self.adapter.plain_nodes:
            raise Refusal(f"node {type(node).__name__}")
        bodies = []
        for member in node.get_nodes():
            if type(member).__name__ != "SchedulerNode" or not isinstance(member.node, inductor_ir.ComputedBuffer):
                raise Refusal(f"node {type(member).__name__}")
            bodies.append(record_body(member.get_name(), member._body, self.real_name, self.adapter.index_ops))
        for body in bodies:
            for op in body_ops(body["ops"]):
                self._check_buffer(op.get("buffer"), buffers)
        return bodies

    def _check_buffer(self, name: str | None, buffers: dict) -> None:
        if name is None:
            return
        if name not in buffers:
            raise Refusal("memory without a buffer")
        if buffers[name]["layout"] not in ("fixed", "non_owning"):
            raise Refusal("buffer type or layout")
        if name in self._aliased:
            raise Refusal("output of a call that aliases its input")

    def _memory_of(self, step: dict, own: set[str]) -> None:
        """Exact reads and writes, from the bodies."""
        loads, stores = {}, {}
        for body in step["bodies"]:
            for op in body_ops(body["ops"]):
                if op["op"] in ("load", "load_seed"):
                    loads[op["buffer"]] = None
                elif op["op"] in ("store", "store_reduction"):
                    stores[op["buffer"]] = None
        step["reads"] = [name for name in loads if name not in own]
        step["writes"] = list(stores)

    def _extern(self, node) -> dict:
        kernel = node.get_template_node() if node.is_template() else node.node
        call = getattr(kernel, "python_kernel_name", None)
        overload = getattr(kernel, "op_overload", None)
        args: list[str] = []
        for value in getattr(kernel, "inputs", None) or []:
            for item in value if isinstance(value, (list, tuple)) else [value]:
                name = getattr(item, "get_name", None)
                if name is not None:
                    args.append(self.real_name(name()))
        return {"call": str(call or type(kernel).__name__), "op": str(overload or ""), "args": args}
