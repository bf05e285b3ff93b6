"""Session: one compile under our hooks (DESIGN.md section 3).

Activation is per compile: an instance in Inductor's configuration carries the session, and the hooks do nothing without it.
Nested compiles (subgraph benchmarks, bodies of higher-order ops) are ignored. Compiler caches are off in a session, because
they return finished programs past every hook.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import functools
import types

import torch
from torch._inductor import config as inductor_config_module
from torch._inductor.virtualized import V

from kernelopt.bridge.adapters import adapter_for, clone_function
from kernelopt.bridge.digest import GroupView, fingerprint, has_loops, sha256_of
from kernelopt.bridge.record import Refusal, ScheduleRecorder
from kernelopt.bridge.regroup import IsolatePlan, KernelPlan, StitchError, find_groups, register_backend, regroup

MODES = ("default", "max-autotune", "max-autotune-no-cudagraphs")
_SESSION_VERSION = 1
_RECOMPILE_LIMIT = 256  # one code object may carry many of our compiles side by side


class SessionCarrier:
    """Sits in Inductor's `_post_fusion_custom_pass`. Its pickled state is the cache key: library digest and our version."""

    def __init__(self, session, key: str):
        self.session, self.key = session, key

    def __call__(self, nodes):
        return nodes

    def __getstate__(self):
        return {"key": self.key, "version": _SESSION_VERSION}

    def __setstate__(self, state):
        self.session, self.key = None, state["key"]


class _CompileDone(Exception):
    """Ends a compile whose text is all that is wanted."""


class GraphRecord:
    """What a session learnt about one graph.

    program: Program document, or None with `refused` set. replaced: [{"graph", "steps", "digest"}]. problems: reasons why
    a group of the kernel set was not placed. described: results of an isolating session, in the order asked for.
    """

    def __init__(self, number: int):
        self.number = number
        self.program: dict | None = None
        self.refused: str | None = None
        self.fingerprint: dict = {}
        self.replaced: list[dict] = []
        self.problems: list[str] = []
        self.described: list[tuple[list[str], IsolatePlan | str]] = []
        self.graph = None  # the GraphLowering, for its identity only
        self.complete = False


class Session:
    """One compile of one model, perhaps of several graphs.

    kernel_set: `kernelopt.kernels` document to stitch, or None. isolate: {graph number: [[step names], ...]} to print apart.
    text_only: stop each graph after its text; the graph then runs eagerly. on_graph(record): called after each graph.
    """

    def __init__(self, kernel_set: dict | None = None, isolate: dict | None = None, text_only: bool = False, on_graph=None):
        self.adapter = adapter_for()
        self.kernel_set, self.isolate, self.text_only, self.on_graph = kernel_set, isolate or {}, text_only, on_graph
        self.graphs: list[GraphRecord] = []
        self._current: GraphRecord | None = None

    # -- called by the hooks

    def wants(self, graph) -> bool:
        """Whether this graph is the one that Dynamo handed to our backend."""
        current = self._current
        if current is None or type(graph).__name__ != "GraphLowering" or getattr(graph, "name", None):
            return False
        return current.graph is None or current.graph is graph

    def on_schedule(self, scheduler) -> None:
        record = self._current
        if record.graph is not None:
            return
        record.graph = V.graph
        try:
            device = V.graph.device_type or "cpu"
            record.fingerprint = fingerprint(self.adapter, device)
            recorder = ScheduleRecorder(V.graph, scheduler, self.adapter)
            record.program = recorder.program(record.number)
        except Refusal as refusal:
            record.refused = str(refusal)
            return
        if self.kernel_set is not None:
            self._stitch(record, scheduler, recorder)
        for steps in self.isolate.get(record.number, ()):
            self._isolate(record, scheduler, recorder, steps)

    def on_program(self, graph, text: str) -> None:
        record = self._current
        record.complete = True
        record.graph = None
        self._current = None
        if record.program is None:
            return
        record.program["wrapper"] = text
        record.program["kernels"] = [
            {"name": name, "source": finished_source(source, name)}
            for source, name in graph.wrapper_code.src_to_kernel.items() if isinstance(source, str)]

    # -- regrouping

    def _stitch(self, record: GraphRecord, scheduler, recorder) -> None:
        program = record.program
        expected = self.kernel_set.get("fingerprint") or {}
        differs = sorted(key for key in expected if expected[key] != record.fingerprint.get(key))
        if differs:
            record.problems += [f"{key} was {expected[key]}, is {record.fingerprint.get(key)}" for key in differs]
            return
        if getattr(V.graph, "cpp_wrapper", False):
            record.problems.append("the program is wrapped in C++")
            return
        digests = {step["name"]: GroupView(program, [step["name"]]).digest(record.fingerprint)
                   for step in program["steps"] if has_loops(step) or step["kind"] == "generated" and not step["refused"]}
        members = {name: recorder.members([name]) for name in digests}

        def digest_of(names):
            return GroupView(program, names).digest(record.fingerprint)

        for names, entry in find_groups(program, digests, digest_of, self.kernel_set["groups"]):
            try:
                chosen = [node for name in names for node in members[name]]
                self._check_device(program, chosen)
                plan = KernelPlan(GroupView(program, names), entry["candidate"])
                regroup(scheduler, self.adapter, [(chosen, plan)])
            except StitchError as error:
                record.problems.append(f"{entry['digest'][:12]}: {error}")
                continue
            record.replaced.append({"graph": record.number, "steps": names, "digest": entry["digest"]})

    @staticmethod
    def _check_device(program: dict, members) -> None:
        """The fingerprint and the search are for the program's device; what runs beside it on the host stays as it is."""
        for member in members:
            device = member.get_device()
            if device is None or device.type != program["device"]:
                raise StitchError(f"step {member.get_name()} runs on {device}")

    def _isolate(self, record: GraphRecord, scheduler, recorder, steps) -> None:
        try:
            view = GroupView(record.program, steps)
            members = recorder.members(step["name"] for step in view.steps)
            self._check_device(record.program, members)
            if record.program["device"] == "cpu" and any(
                step["kind"] != "generated" and not {"pool", "scan"} & step["extern"].keys() for step in view.steps
            ):
                raise StitchError("library calls are not timed apart on a CPU")
            plan = IsolatePlan(view)
            regroup(scheduler, self.adapter, [(members, plan)])
            record.described.append((list(steps), plan))
        except (StitchError, ValueError, KeyError) as error:
            record.described.append((list(steps), str(error)))

    # -- the backend given to torch.compile

    def backend(self, mode: str):
        """A backend for torch.compile that compiles as Inductor does in `mode`, under this session."""
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}; one of {', '.join(MODES)}")
        install_hooks()

        def kernelopt_session(gm, example_inputs):
            from torch._inductor import list_mode_options
            from torch._inductor.compile_fx import compile_fx

            record = GraphRecord(len(self.graphs))
            self.graphs.append(record)
            key = sha256_of(self.kernel_set) if self.kernel_set else "none"
            patches = {} if mode == "default" else dict(list_mode_options(mode))
            patches.update({"fx_graph_cache": False, "_post_fusion_custom_pass": SessionCarrier(self, key)})
            self._current = record
            try:
                with torch._functorch.config.patch(enable_autograd_cache=False):
                    compiled = compile_fx(gm, example_inputs, config_patches=patches)
            except Exception:
                if not (self.text_only and record.complete):
                    raise
                compiled = gm.forward
            finally:
                self._current = None
            if not record.complete and record.refused is None:
                record.refused = "no schedule seen (empty graph, or compiled elsewhere)"
            if self.on_graph is not None:
                self.on_graph(record)
            return compiled

        def reset():
            if torch.cuda.is_available():
                from torch._inductor.cudagraph_trees import reset_cudagraph_trees

                reset_cudagraph_trees()

        kernelopt_session.reset = reset  # torch.compiler.reset() asks each backend
        return kernelopt_session


def finished_source(source: str, name: str) -> str:
    """A kernel's text as it is compiled: placeholders filled in. A C++ kernel is called `kernel`, others have their name."""
    from torch._inductor.utils import Placeholder

    entry = name if "triton_heuristics" in source else "kernel"
    return (source.replace(str(Placeholder.KERNEL_NAME), entry).replace(str(Placeholder.DESCRIPTIVE_NAME), name)
            .replace("#pragma CMT", "//" if entry == "kernel" else "#"))


def active_session() -> Session | None:
    carrier = inductor_config_module._post_fusion_custom_pass
    return carrier.session if isinstance(carrier, SessionCarrier) else None


@functools.cache
def install_hooks() -> None:
    """Hooks Scheduler.codegen and GraphLowering.codegen, and derives the backends. Once per process; inert for others."""
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import Scheduler

    for device in ("cpu", "cuda"):
        register_backend(device)
    schedule_codegen, graph_codegen = Scheduler.codegen, GraphLowering.codegen

    @functools.wraps(schedule_codegen)
    def hooked_schedule(self):
        session = active_session()
        if session is not None and session.wants(V.graph):
            session.on_schedule(self)
        return schedule_codegen(self)

    @functools.wraps(graph_codegen)
    def hooked_graph(self):
        session = active_session()
        wanted = session is not None and session.wants(self)
        result = graph_codegen(self)
        if wanted:
            text = result[0] if isinstance(result, tuple) else result
            session.on_program(self, getattr(text, "value", text))
            if session.text_only:
                raise _CompileDone()
        return result

    Scheduler.codegen, GraphLowering.codegen = hooked_schedule, hooked_graph


def traceable(function):
    """A private function that Dynamo traces as the given callable: a clone, or a frame of ours that calls it.

    Dynamo starts no compile in a frame of torch's own files (forward of torch.nn.Sequential), but inlines it.
    """
    if isinstance(function, types.FunctionType) and not torch._dynamo.trace_rules.check(function):
        return clone_function(function)

    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return clone_function(call)


def entry_function(model):
    """(function, leading arguments) to compile for a model: its forward, or __call__ where the module has hooks."""
    if not isinstance(model, torch.nn.Module):
        return traceable(model), ()
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    if any(getattr(model, name, None) for name in hooks) or not isinstance(model.forward, types.MethodType):
        return traceable(type(model).__call__), (model,)
    return traceable(model.forward.__func__), (model,)


def compile_in_session(function, session: Session, mode: str):
    """torch.compile of a private function (see traceable) under the session. Compiling happens at the first call."""
    return torch.compile(function, backend=session.backend(mode), dynamic=False)


def raised_limits():
    """Context for calls that may compile: one code object below ours may be compiled by many sessions."""
    return torch._dynamo.config.patch(recompile_limit=_RECOMPILE_LIMIT, accumulated_recompile_limit=4 * _RECOMPILE_LIMIT)
