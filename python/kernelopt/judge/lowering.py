"""`check_lowering`: does the recorded loop IR say what the compiler's program and eager compute? (DESIGN section 6)

The judge compiles the model itself, without any candidate, and watches the compiler's program run: each buffer's value is
taken when the program lets go of it. Steps are then evaluated in order from the compiler's real values, so that an error
does not travel, and what a step writes is compared with the compiler's value. Where a buffer is the whole value of an
ATen node, it is also compared with that node run eagerly.

Not checked: buffers that exist only inside one kernel, buffers that a later step overwrites, and steps that read such a
value of an extern call; each is skipped with its reason.
"""

import contextlib
import linecache
import re
import sys

import torch

from kernelopt.bridge import has_loops
from kernelopt.bridge.capture import _run as compile_and_run
from kernelopt.bridge.session import Session

from . import loop_ir
from .compare import Reference
from .memory import Memory

_DELETED = re.compile(r"\bdel (\w+)")
_NAME = re.compile(r"\w+")
# Lines that make or rename memory and compute nothing.
_NO_WORK = ("empty_strided", "assert_", "# reuse", "# alias", "args.clear", "args = ")
# Above this many bytes of intermediate values the check is left out.
_MOST_BYTES = 6 << 30


class _OriginSession(Session):
    """A session that also remembers each graph's post-grad FX graph and the buffers that stand for whole nodes."""

    def __init__(self):
        super().__init__()
        self.modules = {}
        self.origins = {}

    def on_schedule(self, scheduler):
        from torch._inductor.virtualized import V

        number = self._current.number
        super().on_schedule(scheduler)
        if number in self.modules:
            return
        self.modules[number] = V.graph.module
        origins = self.origins[number] = {}
        for node in scheduler.nodes:
            for member in node.get_nodes():
                buffer = getattr(member, "node", None)
                origin = buffer.get_origin_node() if hasattr(buffer, "get_origin_node") else None
                if origin is not None:
                    origins[buffer.get_name()] = origin.name


class Watcher:
    """A trace function that reads the buffers of one compiler program while it runs.

    `first` holds inputs and constants before the first step, `last` every named value when it was let go. The CPU program
    hands memory on (`buf1 = buf0; del buf0  # reuse`) before the kernel runs that fills both in turn: what no call was
    given has no value to keep.
    """

    def __init__(self, program):
        self.names = set(program["buffers"])
        self.wrapper = program["wrapper"].strip()
        self.first, self.last = {}, {}
        self._touched, self._running = set(), ""

    def __call__(self, frame, event, argument):
        if event != "call" or frame.f_code.co_name != "call" or self.first:
            return None
        text = "".join(linecache.getlines(frame.f_code.co_filename)).strip()
        return self._line if text == self.wrapper else None

    def _line(self, frame, event, argument):
        local = frame.f_locals
        if self._running and not any(mark in self._running for mark in _NO_WORK):
            self._touched.update(_NAME.findall(self._running))
        self._running = ""
        if event == "line":
            for name, value in local.items():
                if name in self.names and name not in self.first and isinstance(value, torch.Tensor):
                    self.first[name] = value.detach().clone() if name.startswith("arg") else None
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            for name in _DELETED.findall(line):
                self._keep(name, local.get(name))
            self._running = "" if line.strip().startswith("del ") else line
        elif event == "return":
            for name in self.names:
                self._keep(name, local.get(name))
                value = frame.f_globals.get(name)
                if isinstance(value, torch.Tensor):
                    self.first[name] = value.detach().clone()
        return self._line

    def _keep(self, name, value):
        if name in self.names and name in self._touched and isinstance(value, torch.Tensor):
            self.last[name] = value.detach().clone()


@contextlib.contextmanager
def watching(watcher):
    """The watcher sees what runs inside."""
    before = sys.gettrace()
    sys.settrace(watcher)
    try:
        yield
    finally:
        sys.settrace(before)


class _Interpreter(torch.fx.Interpreter):
    """Runs an FX graph eagerly and keeps the values of some nodes."""

    def __init__(self, module, wanted):
        super().__init__(module)
        self.wanted, self.values = wanted, {}

    def run_node(self, node):
        value = super().run_node(node)
        if node.name in self.wanted and isinstance(value, torch.Tensor):
            self.values[node.name] = value.detach().clone()
        return value


def _skip_all(program, reason):
    return {"steps": [{"step": step["name"], "skipped": reason} for step in program["steps"]]}


def _bytes(program):
    return sum(
        torch.Size(meta["size"]).numel() * 4 for meta in program["buffers"].values() if meta["layout"] != "none"
    )


def check(loaded, program, mode, progress=lambda *_: None):
    """The result of `check_lowering`: per step `max_abs` and `d` against the compiler's values, `eager_max_abs` and
    `eager_d` against eager where a node corresponds, or `skipped` with the reason."""
    if _bytes(program) > _MOST_BYTES:
        return _skip_all(program, "the intermediate values are too large to keep")
    session = _OriginSession()
    progress("compile", 0, 1)
    captured = compile_and_run(loaded.fresh(), loaded.inputs(loaded.seed), mode, session)
    own = next((other for other in captured.programs if other["graph"] == program["graph"]), None)
    if own is None or own["steps"] != program["steps"]:
        return _skip_all(program, "another compile gave another schedule")
    watcher = Watcher(own)
    arguments = loaded.inputs(loaded.seed)
    with watching(watcher), torch.no_grad():
        captured.callable(*arguments)
    if not watcher.last:
        return _skip_all(program, "the compiler's program did not show itself")
    eager = _eager_values(session, own, watcher)
    return {"steps": _Walk(own, watcher, session.origins.get(own["graph"], {}), eager, loaded.device).steps(progress)}


def _eager_values(session, program, watcher):
    """`{node name: value}` from the post-grad graph on the program's own inputs; empty where it does not run."""
    module = session.modules.get(program["graph"])
    arguments = [watcher.first.get(name) for name in program["inputs"]]
    if module is None or any(argument is None for argument in arguments):
        return {}
    interpreter = _Interpreter(module, set(session.origins[program["graph"]].values()))
    try:
        with torch.no_grad():
            interpreter.run(*[argument.clone() for argument in arguments])
    except Exception:  # an op that has no eager kernel outside the compiler
        return {}
    return interpreter.values


class _Walk:
    """Evaluates a program's steps in order, each from the compiler's values of what it reads."""

    def __init__(self, program, watcher, origins, eager, device="cpu"):
        self.program, self.watcher, self.origins, self.eager = program, watcher, origins, eager
        self.memory = Memory(program["buffers"], "float32", device)
        self.unknown = set()
        self.last_writer = {}
        self.readers = {}
        for step in program["steps"]:
            for name in step["reads"]:
                self.readers.setdefault(name, set()).add(step["name"])
            for name in step["writes"]:
                self.last_writer[name] = step["name"]
        for name, value in watcher.first.items():
            if value is not None and self._plain(name):
                self.memory.write(name, value)

    def _plain(self, name):
        return self.program["buffers"].get(name, {}).get("layout") not in (None, "none")

    def steps(self, progress):
        results = []
        for number, step in enumerate(self.program["steps"]):
            progress("check", number, len(self.program["steps"]))
            if has_loops(step):
                results.append({"step": step["name"], **self._looped(step)})
            else:
                results.append({"step": step["name"], "skipped": step["refused"] or f"{step['kind']} step"})
                if step["kind"] != "nop":
                    for name in step["writes"]:
                        if self._take(step, name) is None and self._plain(name):
                            self.unknown.add(name)
        return results

    def _take(self, step, name):
        """The compiler's own value of a buffer into memory, where the program showed it."""
        value = self.watcher.last.get(name)
        meta = self.program["buffers"].get(name)
        fits = (
            value is not None and self._plain(name) and list(value.shape) == meta["size"]
            and value.dtype == self.memory.dtype(name)
        )
        # The compiler may keep such a buffer in a register although its name stands for memory that another one used.
        inner = self._plain(name) and meta["removable"] and not self.readers.get(name, set()) - {step["name"]}
        if fits and not inner and self._is_last(step, name):
            self.memory.write(name, value)
            self.unknown.discard(name)
            return value
        return None

    def _is_last(self, step, name):
        """Whether no later step writes the memory of `name`; pieces of a larger buffer have writers of their own."""
        root = self.memory.root(name)[0]
        return root != name or self.last_writer.get(name) == step["name"]

    def _looped(self, step):
        missing = sorted(set(step["reads"]) & self.unknown)
        if missing:
            self.unknown.update(step["writes"])
            return {"skipped": f"reads {missing[0]}, which the compiler's program does not show"}
        try:
            loop_ir.evaluate(self.program, [step["name"]], {}, "float32", memory=self.memory)
        except loop_ir.LoopError as error:
            self.unknown.update(step["writes"])
            return {"skipped": str(error)}
        result, seen = {"max_abs": 0.0, "d": 0.0}, []
        for name in step["writes"]:
            ours = self.memory.tensor(name).clone()
            if self._is_last(step, name):
                self._against_eager(name, ours, result)
            real = self._take(step, name)
            if real is not None:
                d, largest = _distance(ours, real)
                result["max_abs"], result["d"] = max(result["max_abs"], largest), max(result["d"], d)
                seen.append(name)
        if not seen and "eager_d" not in result:
            return {"skipped": "what it writes stays inside one kernel"}
        if not seen:
            result["max_abs"] = result["d"] = None
        return {**result, "checked": seen}

    def _against_eager(self, name, ours, result):
        value = self.eager.get(self.origins.get(name))
        if value is None or value.dtype != ours.dtype or value.shape != ours.shape:
            return
        d, largest = _distance(ours, value)
        result["eager_max_abs"] = max(result.get("eager_max_abs", 0.0), largest)
        result["eager_d"] = max(result.get("eager_d", 0.0), d)


def _distance(ours, other):
    """(relative L2 distance, largest difference) to `other`; infinite where NaN and inf differ in place or sign."""
    if not ours.dtype.is_floating_point:
        gap = (ours.to(torch.int64) - other.to(torch.int64)).to(torch.float64).abs()
        largest = float(gap.max()) if gap.numel() else 0.0
        return (0.0 if largest == 0 else float("inf")), largest
    a, b = ours.to(torch.float64), other.to(torch.float64)
    finite = torch.isfinite(a) & torch.isfinite(b)
    if bool((~finite & ~((a == b) | (torch.isnan(a) & torch.isnan(b)))).any()):
        return float("inf"), float("inf")
    d, _, largest = Reference(ours, b).distance(ours)
    return d, largest
