"""Capture, group description and stitching for the worker (docs/protocol.md; DESIGN.md section 3)."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time

import torch

from kernelopt.bridge.digest import GroupError, GroupView, candidate_digest
from kernelopt.bridge.printers import TORCH_DTYPES
from kernelopt.bridge.session import Session, compile_in_session, entry_function, finished_source, raised_limits


@dataclasses.dataclass
class CaptureResult:
    """One compile of a model.

    programs: Program documents in graph order, without refused graphs. refused: [{"graph", "reason"}]. graph_breaks:
    [{"reason", "count"}]. callable(*inputs): the compiled model; it shares parameters and buffers with the model. The
    compile's own run leaves inputs, buffers and random state as they were; attributes that are no tensors may change.
    """

    model: object
    inputs: list
    mode: str
    programs: list[dict]
    refused: list[dict]
    graph_breaks: list[dict]
    compile_seconds: float
    callable: object
    session: Session
    fingerprints: dict[int, dict]
    replaced: list[dict] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    def program(self, graph: int) -> dict:
        for program in self.programs:
            if program["graph"] == graph:
                return program
        raise GroupError(f"graph {graph} was not captured")


@contextlib.contextmanager
def _state_kept(model):
    """Restores buffers, parameters' versions aside, and the random state after a run that was only for compiling."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()] if isinstance(model, torch.nn.Module) else []
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(enabled=True, devices=devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, saved in buffers:
                    buffer.copy_(saved)


def _graph_breaks(before: dict) -> list[dict]:
    now = torch._dynamo.utils.counters["graph_break"]
    changed = ((reason, count - before.get(reason, 0)) for reason, count in now.items())
    return [{"reason": str(reason), "count": count} for reason, count in changed if count > 0]


def _run(model, inputs, mode: str, session: Session) -> CaptureResult:
    function, leading = entry_function(model)
    compiled = compile_in_session(function, session, mode)
    before = dict(torch._dynamo.utils.counters["graph_break"])
    started = time.perf_counter()
    with torch.no_grad(), _state_kept(model), raised_limits():
        compiled(*leading, *copy.deepcopy(list(inputs)))
    seconds = time.perf_counter() - started

    def call(*args, **kwargs):
        return compiled(*leading, *args, **kwargs)

    return CaptureResult(
        model=model, inputs=list(inputs), mode=mode,
        programs=[record.program for record in session.graphs if record.program is not None],
        refused=[{"graph": record.number, "reason": record.refused} for record in session.graphs if record.refused],
        graph_breaks=_graph_breaks(before), compile_seconds=seconds, callable=call, session=session,
        fingerprints={record.number: record.fingerprint for record in session.graphs},
        replaced=[entry for record in session.graphs for entry in record.replaced],
        problems=[problem for record in session.graphs for problem in record.problems])


def capture(model, inputs, mode: str = "default", text_only: bool = False) -> CaptureResult:
    """Compiles the model as torch.compile does in `mode` (no_grad, static shapes) and returns its programs.

    text_only: builds no kernels; the callable then runs the graphs eagerly. For looking, not for timing.

    Exceptions of the compiler or of the model are the caller's.
    """
    return _run(model, inputs, mode, Session(text_only=text_only))


def stitch(model, inputs, mode: str = "default", kernel_set: dict | None = None, passthrough: bool = False):
    """(callable, replaced, result): the compiled model with every matching group of `kernel_set` replaced.

    passthrough (or no kernel set) compiles the compiler's own program on the same path. replaced: [{"graph", "steps",
    "digest"}]; result.problems says why a group that matched was not placed.
    """
    session = Session(kernel_set=None if passthrough else kernel_set)
    result = _run(model, inputs, mode, session)
    return result.callable, result.replaced, result


def describe_groups(captured: CaptureResult, groups: list[list[str]], graph: int = 0) -> list[dict]:
    """Per group of step names: digest, step digests, names, what survives, and the compiler's kernels for exactly it.

    {"digest", "step_digests", "names", "external" (canonical names that survive; "reads" and "writes" tell them apart),
    "baseline": candidate-shaped document, "refused": null}; `refused` with a reason, then `baseline` is null and, where the
    steps are no group at all, nothing else is there. Each round recompiles the model's text (no C++ is built), one round
    unless groups overlap.
    """
    results: list[dict | None] = [None] * len(groups)
    views: dict[int, GroupView] = {}
    for number, steps in enumerate(groups):
        try:
            views[number] = GroupView(captured.program(graph), steps)
        except GroupError as error:
            results[number] = {"refused": str(error), "baseline": None}
    pending = list(views)
    while pending:
        batch, taken, later = [], set(), []
        for number in pending:
            steps = set(groups[number])
            (later if steps & taken else batch).append(number)
            if number in batch:
                taken |= steps
        session = Session(isolate={graph: [list(groups[number]) for number in batch]}, text_only=True)
        _run(captured.model, captured.inputs, captured.mode, session)
        described = session.graphs[graph].described if graph < len(session.graphs) else []
        for number, (_, plan) in zip(batch, described):
            results[number] = _description(views[number], captured.fingerprints[graph], plan)
        for number in batch[len(described):]:
            results[number] = {"refused": "the graph did not come back in a second compile", "baseline": None}
        pending = later
    return results


def _description(view: GroupView, fingerprint: dict, plan) -> dict:
    digest = view.digest(fingerprint)
    canonical = {name: f"b{number}" for number, name in enumerate(view.names)}
    reads, writes = [canonical[name] for name in view.reads], [canonical[name] for name in view.writes]
    result = {
        "digest": digest, "names": view.names, "external": [name for name in canonical.values() if name in {*reads, *writes}],
        "step_digests": [GroupView(view.program, [step["name"]]).digest(fingerprint) for step in view.steps],
        "reads": reads, "writes": writes, "baseline": None, "refused": None,
    }
    if isinstance(plan, str):
        result["refused"] = plan
    elif plan.view.canonical() != view.canonical() or plan.view.names != view.names:
        result["refused"] = "a second compile gave another schedule"
    else:
        try:
            if fingerprint["device"] == "cpu":
                result["baseline"] = _compiler_candidate(view, digest, fingerprint, plan.kernels, canonical)
            else:
                result["baseline"] = _compiler_triton(view, digest, plan, canonical)
        except GroupError as error:
            result["refused"] = str(error)
    return result


_NAMES_OF_CPP = {"float": "float32", "double": "float64", "at::Half": "float16", "at::BFloat16": "bfloat16", "half": "float16",
                 "bfloat16": "bfloat16", "int8_t": "int8", "int16_t": "int16", "int32_t": "int32", "int64_t": "int64",
                 "uint8_t": "uint8", "bool": "bool"}


def _compiler_candidate(view: GroupView, digest: str, fingerprint: dict, kernels: list[dict], canonical: dict) -> dict:
    """The compiler's C++ kernels in the shape of a candidate. Raises GroupError where a launch is not expressible."""
    document = {"format": "kernelopt.candidate", "version": 1, "language": "cpp", "group": digest, "kernels": [],
                "launches": [], "scratch": [], "threads": fingerprint["threads"], "plan": {"origin": "compiler"}, "formats": []}
    steps = {step["name"]: step for step in view.steps}
    for number, kernel in enumerate(kernels):
        if "step" in kernel:
            call = {**_library_call(steps[kernel["step"]], canonical, view), "name": f"call{number}"}
            document["kernels"].append(call)
            document["launches"].append({"kernel": call["name"], "args": [param["name"] for param in call["params"]]})
            continue
        params, args = [], []
        for definition, call, cpp_type in zip(kernel["arg_defs"], kernel["call_args"], kernel["arg_types"]):
            base = cpp_type.removeprefix("const ").removesuffix("*").strip()
            if call not in canonical or not cpp_type.endswith("*") or base not in _NAMES_OF_CPP:
                raise GroupError(f"compiler kernel takes {definition}")
            name = canonical[call]
            role = "in" if cpp_type.startswith("const ") else view.role(call)
            params.append({"name": name, "dtype": _NAMES_OF_CPP[base], "role": role})
            args.append(name)
        document["kernels"].append({"name": f"kernel{number}", "source": finished_source(kernel["source"], kernel["name"]),
                                    "params": params})
        document["launches"].append({"kernel": f"kernel{number}", "args": args})
    document["digest"] = candidate_digest(document)
    return document


_DTYPE_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def _compiler_triton(view: GroupView, digest: str, plan, canonical: dict) -> dict:
    """The compiler's Triton kernels (docs/formats.md, `inductor_triton`). Raises GroupError where a launch is not expressible."""
    scratch = {space["name"]: f"s{number}" for number, space in enumerate(plan.workspaces)}
    document = {"format": "kernelopt.candidate", "version": 1, "language": "inductor_triton", "group": digest, "kernels": [],
                "launches": [], "scratch": [
                    {"name": scratch[space["name"]], "dtype": _dtype_name(space["dtype"]), "elements": space["elements"],
                     "zeroed": space["zeroed"]} for space in plan.workspaces],
                "threads": 1, "plan": {"origin": "compiler"}, "formats": []}
    steps = {step["name"]: step for step in view.steps}
    for kernel in plan.kernels:
        if "step" in kernel:
            call = _library_call(steps[kernel["step"]], canonical, view)
            call["name"] = f"call{len(document['kernels'])}"
            document["kernels"].append(call)
            document["launches"].append({"kernel": call["name"], "args": [param["name"] for param in call["params"]]})
            continue
        if kernel["source"] is None or len(kernel["call_args"]) != len(kernel["arg_types"]):
            raise GroupError(f"compiler kernel {kernel['name']} is no single Triton kernel")
        params, args = [], []
        for number, (call, kind) in enumerate(zip(kernel["call_args"], kernel["arg_types"])):
            name = scratch.get(call) or canonical.get(call)
            if isinstance(kind, torch.dtype) and name is not None:
                _on_gpu(view, call, name)
                role = "scratch" if call in scratch else view.role(call)
                params.append({"name": name, "dtype": _dtype_name(kind), "role": role})
                args.append(name)
            elif (size := _integer(call)) is not None:
                params.append({"name": f"size{number}", "dtype": "int64", "role": "size"})
                args.append(size)
            else:
                raise GroupError(f"compiler kernel takes {call}")
        if all(known["name"] != kernel["name"] for known in document["kernels"]):
            document["kernels"].append({"name": kernel["name"], "source": finished_source(kernel["source"], kernel["name"]),
                                        "params": params})
        document["launches"].append({"kernel": kernel["name"], "args": args})
    document["digest"] = candidate_digest(document)
    return document


def _library_call(step: dict, canonical: dict, view: GroupView) -> dict:
    """A kernel entry `call` (docs/formats.md, `inductor_triton`): what a library call stands for."""
    body, numbers = step["bodies"][0], step["extern"].get("convolution")
    if numbers is not None:
        params = [{"name": canonical[numbers[key]["name"]], "dtype": "float32", "role": "out" if key == "out" else "in"}
                  for key in ("x", "w", "out")]
        return {"name": "", "call": "convolution", "numbers": numbers, "params": params}
    if (numbers := step["extern"].get("scan")) is not None:
        params = [{"name": canonical[numbers[key]["name"]], "dtype": view.program["buffers"][numbers[key]["name"]]["dtype"],
                   "role": "out" if key == "out" else "in"} for key in ("x", "out")]
        return {"name": "", "call": "scan", "numbers": numbers, "params": params}
    if (numbers := step["extern"].get("pool")) is not None:
        params = [{"name": canonical[numbers[key]["name"]], "dtype": numbers[key]["dtype"], "role": "out" if key == "out" else "in"}
                  for key in ("x", "out")]
        return {"name": "", "call": "pool", "numbers": numbers, "params": params}
    loads = [op for op in body["ops"] if op["op"] == "load"]
    store = body["ops"][-1]
    constants = [op["value"] for op in body["ops"] if op["op"] == "constant"]
    if constants:
        raise GroupError("a product with factors")
    operands = [*loads, store]
    params = [{"name": canonical[op["buffer"]], "dtype": view.program["buffers"][op["buffer"]]["dtype"],
               "role": "out" if op is store else "in"} for op in operands]
    extents = {var["name"]: var["extent"] for var in body["vars"]}
    return {"name": "", "call": "product", "extents": extents, "indices": [op["index"] for op in operands], "params": params}


def _dtype_name(dtype) -> str:
    if dtype not in _DTYPE_NAMES:
        raise GroupError(f"compiler kernel takes {dtype}")
    return _DTYPE_NAMES[dtype]


def _on_gpu(view: GroupView, real: str, name: str) -> None:
    if name.startswith("b") and view.program["buffers"][real]["device"] == "cpu":
        raise GroupError(f"{real} is a number on the host, which the compiler's kernel takes by value")


def _integer(value) -> int | None:
    """A size as the call has it: an integer, a sympy integer or the text of one."""
    try:
        return int(str(value))
    except ValueError:
        return None
