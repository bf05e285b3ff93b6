"""Canonical form, digests and the device fingerprint (docs/formats.md "Group"; DESIGN.md section 4).

Everything but `fingerprint` is a pure function of Program documents. Two groups with equal digests compute the same
thing on the same kind of machine, and correspond buffer by buffer through `names`.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess

import torch

from kernelopt.bridge.adapters import Adapter, adapter_for, torch_release

GROUP_VERSION = 1


class GroupError(ValueError):
    """The steps named do not form a group (unknown, without loops, refused, wrong order)."""


def canonical_json(document) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256_of(document) -> str:
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()


@functools.cache
def _compiler_version() -> str:
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        compiler = get_cpp_compiler()
        text = subprocess.run([compiler, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, timeout=20)
        name = "clang" if "clang" in compiler else "gcc"
        return f"{name} {text.stdout.strip()}"
    except Exception as error:  # a machine without a compiler still captures; it just never matches one with
        return f"none ({type(error).__name__})"


def fingerprint(adapter: Adapter | None = None, device: str = "cpu") -> dict:
    """What must be equal for a verified kernel to be valid: versions, the machine's kind and numeric flags.

    On a GPU the host's processor and compiler do not matter, on a CPU instruction set and thread count do. Autocast is the
    caller's state at compile time, so call it inside the compile.
    """
    from torch._inductor import config

    adapter = adapter or adapter_for()
    return {
        "torch": torch_release(), "adapter": adapter.minor, "device": device,
        **(_cpu_facts(adapter) if device == "cpu" else _gpu_facts()),
        "autocast": bool(torch.is_autocast_enabled(device)),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        "emulate_precision_casts": bool(config.emulate_precision_casts),
    }


def _cpu_facts(adapter: Adapter) -> dict:
    from torch._inductor import cpu_vec_isa

    return {"cpu": torch.backends.cpu.get_cpu_capability(), "isa": str(cpu_vec_isa.pick_vec_isa()),
            "compiler": _compiler_version(), "threads": adapter.effective_threads()}


def _gpu_facts() -> dict:
    """The current device. The name carries memory size and form factor, on which clocks and bandwidth depend."""
    from torch._inductor import config

    try:
        import triton

        version = triton.__version__
    except ImportError:
        version = None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {"gpu": properties.name, "gpu_arch": f"sm_{properties.major}{properties.minor}",
            "multiprocessors": properties.multi_processor_count, "triton": version, "cuda": torch.version.cuda,
            "disable_ftz": bool(getattr(getattr(config, "eager_numerics", None), "disable_ftz", False))}


def has_loops(step: dict) -> bool:
    """Whether a step can be a member of a group: generated, or a library call whose loops are known."""
    return bool(step.get("bodies")) and not step["refused"] and step["kind"] in ("generated", "extern")


class GroupView:
    """A group of steps with loop bodies of one Program document, given by step names in any order.

    bodies: in program order. names: real buffer names in the order b0, b1, ...; reads and writes: real names that are
    read from outside or survive the group; internals: real names that are written and needed only inside.
    Raises GroupError.
    """

    def __init__(self, program: dict, steps):
        wanted = list(steps)
        position = {step["name"]: index for index, step in enumerate(program["steps"])}
        missing = [name for name in wanted if name not in position]
        if missing or not wanted:
            raise GroupError(f"no such step: {', '.join(missing) or '(empty group)'}")
        if len(set(wanted)) != len(wanted):
            raise GroupError("a step occurs twice")
        self.program = program
        self.indices = sorted(position[name] for name in wanted)
        self.steps = [program["steps"][index] for index in self.indices]
        for step in self.steps:
            if step["refused"]:
                raise GroupError(f"step {step['name']}: {step['refused']}")
            if step["kind"] != "generated" and not has_loops(step):
                raise GroupError(f"step {step['name']} is {step['kind']}, not generated")
        self.bodies = [body for step in self.steps for body in step["bodies"]]
        self._collect()

    def _collect(self) -> None:
        loads, stores, order = {}, {}, {}
        for op in _all_ops(self.bodies):
            if "buffer" in op:
                order.setdefault(op["buffer"])
                (loads if op["op"] in ("load", "load_seed") else stores).setdefault(op["buffer"])
        self.names = list(order)
        member = {step["name"] for step in self.steps}
        first_writer: dict[str, str] = {}
        read_outside: set[str] = set()
        for step in self.program["steps"]:
            for name in step["writes"]:
                first_writer.setdefault(name, step["name"])
            if step["name"] not in member:
                read_outside.update(step["reads"])
        self.defined = {name for name in stores if self.program["buffers"][name]["kind"] == "computed"
                        and first_writer.get(name) in member}
        self.reads = [name for name in loads if name not in self.defined]
        self.writes = [name for name in stores
                       if not (name in self.defined and self.program["buffers"][name]["removable"]
                               and name not in read_outside)]
        self.internals = [name for name in stores if name not in set(self.writes)]

    def role(self, name: str) -> str:
        """in, out or inout, as a candidate's parameter has it."""
        if name not in self.writes and name not in self.internals:
            return "in"
        return "inout" if name in self.reads else "out"

    def canonical(self) -> dict:
        """The canonical form without the fingerprint."""
        index = {name: number for number, name in enumerate(self.names)}
        storage: dict[str, int] = {}
        buffers = []
        for name in self.names:
            entry = self.program["buffers"][name]
            owner = storage.setdefault(entry["base"] or name, index[name])
            buffers.append({
                "dtype": entry["dtype"], "size": entry["size"], "stride": entry["stride"], "storage": owner,
                "offset": entry["offset"], "survives": name in self.writes or name in self.reads,
                "value": entry["value"],
            })
        return {"buffers": buffers, "bodies": [_canonical_body(body, index) for body in self.bodies]}

    def digest(self, fingerprint_: dict) -> str:
        return sha256_of({"format": "kernelopt.group", "version": GROUP_VERSION, "fingerprint": fingerprint_,
                          **self.canonical()})


def _all_ops(bodies):
    pending = [op for body in reversed(bodies) for op in reversed(body["ops"])]
    while pending:
        op = pending.pop()
        yield op
        if "block" in op:
            pending.extend(reversed(op["block"]["ops"]))


def _canonical_body(body: dict, buffers: dict[str, int]) -> dict:
    names = {var["name"]: f"v{number}" for number, var in enumerate(body["vars"])}
    ids: dict[int, int] = {-1: -1}

    def expression(tree):
        if isinstance(tree, str):
            return names.setdefault(tree, f"v{len(names)}")
        if isinstance(tree, dict):
            return {key: [expression(arg) for arg in args] for key, args in tree.items()}
        return tree

    def number(value: int) -> int:
        return ids.setdefault(value, len(ids) - 1)

    def operation(op: dict) -> dict:
        out = dict(op)
        if "buffer" in op:
            out["buffer"] = f"b{buffers[op['buffer']]}"
        for key in ("index", "size"):
            if key in op:
                out[key] = expression(op[key])
        if "symbol" in op:
            out["symbol"] = expression(op["symbol"])
        if "args" in op:
            out["args"] = [number(value) for value in op["args"]]
        if "block" in op:
            block = op["block"]
            out["block"] = {"params": [number(value) for value in block.get("params", [])],
                            "ops": [operation(inner) for inner in block["ops"]],
                            "results": [number(value) for value in block["results"]]}
        out["id"] = number(op["id"])
        return out

    variables = [{"extent": var["extent"], "kind": var["kind"]} for var in body["vars"]]
    return {"vars": variables, "ops": [operation(op) for op in body["ops"]]}


def step_digest(program: dict, step: str, fingerprint_: dict) -> str:
    """Digest of the group that holds this step alone."""
    return GroupView(program, [step]).digest(fingerprint_)


def candidate_digest(candidate: dict) -> str:
    """Identity of a candidate document as far as Python needs one (its `digest` field is the engine's)."""
    return sha256_of({key: candidate.get(key) for key in ("language", "kernels", "launches", "scratch", "group")})
