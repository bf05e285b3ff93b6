"""Compiles Triton candidates: the source check of gate 1, then `triton.compile` in helper processes, one a core, for an
architecture that need not be here (DESIGN sections 6 and 8).

Cache (`KERNELOPT_CACHE`/triton): `k<sha>.py` sources, `<key>.json` the resources of a build, beside Triton's own folders.
A helper that hangs or dies costs the candidate that it worked on and is replaced.
"""

import concurrent.futures
import hashlib
import json
import os
import queue
import select
import subprocess
import sys
import time

from kernelopt.protocol import one_line
from kernelopt.worker import triton_build, triton_source
from kernelopt.worker.compiler import cache_folder
from kernelopt.worker.cubin import ResourcesUnknown
from kernelopt.worker.errors import CompileError

DEFAULT_ARCH = 90


def interpreting():
    """Whether kernels run in Triton's interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def architecture(wanted=None):
    """The compute capability to compile for, as 90: `wanted`, else KERNELOPT_CUDA_ARCH, else the device's, else 90."""
    wanted = wanted or os.environ.get("KERNELOPT_CUDA_ARCH")
    if wanted:
        return int(str(wanted).removeprefix("sm_"))
    import torch

    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return major * 10 + minor
    return DEFAULT_ARCH


def prepare(kernel):
    """The module file of a checked kernel. Raises CompileError."""
    triton_source.check(kernel["source"], kernel["name"])
    return triton_source.module_file(kernel["source"], cache_folder("triton"))


def load(kernel, launch, aligned):
    """The CompiledKernel for this device, built here where no helper has built it. Raises CompileError."""
    path = prepare(kernel)
    try:
        return triton_build.build(path, architecture(), triton_build.job(kernel, launch, aligned), cache_folder("triton"))
    except Exception as error:
        raise CompileError(*triton_build.describe_error(error)) from error


def compile_candidates(candidates, timeout_seconds=60, progress=lambda *_: None, arch=None):
    """Results in the order of `candidates` (docs/protocol.md, `compile`)."""
    arch = architecture(arch)
    results = [None] * len(candidates)
    count = max(1, min(os.cpu_count() or 1, len(candidates)))
    _helpers.reserve(count)
    with concurrent.futures.ThreadPoolExecutor(max_workers=count) as pool:
        jobs = {pool.submit(_compile_one, item, timeout_seconds, arch): i for i, item in enumerate(candidates)}
        for done, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            results[jobs[job]] = job.result()
            progress("compile", done, len(candidates))
    _helpers.repair()
    return results


def _compile_one(candidate, timeout_seconds, arch):
    started = time.perf_counter()
    try:
        built = _builds(candidate)
        facts, cached, paths = {}, True, []
        for kernel, items in built:
            path = prepare(kernel)
            paths.append(path)
            found, was_cached = _resources(path, arch, items, timeout_seconds)
            cached = cached and was_cached
            facts[kernel["name"]] = (kernel, items, found)
        kernels = [_launch_facts(launch, *facts[launch["kernel"]]) for launch in candidate["launches"] if launch["kernel"] in facts]
    except ResourcesUnknown as error:
        return {"error": {"kind": "environment", "message": one_line(error), "detail": ""}}
    except CompileError as error:
        return {"error": {"kind": "candidate", "message": one_line(error), "detail": error.detail}}
    return {
        "library": paths[0] if paths else None, "libraries": paths, "seconds": time.perf_counter() - started, "cached": cached,
        "symbols": sorted({kernel["name"] for kernel, _ in built}), "arch": f"sm_{arch}", "kernels": kernels,
    }


def _launch_facts(launch, kernel, items, found):
    """What a launch takes: gate 1 wants it for each one, in their order."""
    return {"name": launch["kernel"], "programs": launch["programs"], "warps": launch["warps"], "stages": launch["stages"],
            "cooperative": launch.get("cooperative", False), **found[items.index(triton_build.job(kernel, launch))]}


def _builds(candidate):
    """[(kernel, its distinct jobs)]. Raises CompileError where the launch list does not fit."""
    calls = {kernel["name"] for kernel in candidate["kernels"] if "call" in kernel}
    by_name = {kernel["name"]: kernel for kernel in candidate["kernels"] if "call" not in kernel}
    jobs = {name: [] for name in by_name}
    for launch in candidate["launches"]:
        if launch["kernel"] in calls:
            continue
        if launch["kernel"] not in by_name:
            raise CompileError(f"the launch list names {launch['kernel']}, which is no kernel")
        check_launch(launch)
        item = triton_build.job(by_name[launch["kernel"]], launch)
        if item not in jobs[launch["kernel"]]:
            jobs[launch["kernel"]].append(item)
    return [(kernel, jobs[name]) for name, kernel in by_name.items()]


def check_launch(launch):
    """Raises CompileError where programs, warps or stages are missing or absurd."""
    for name, most in (("programs", 2**31 - 1), ("warps", 32), ("stages", 16)):
        value = launch.get(name)
        if type(value) is not int or not 1 <= value <= most:
            raise CompileError(f"a launch of {launch['kernel']} with {name} {value}")
    if type(launch.get("cooperative", False)) is not bool:
        raise CompileError(f"a launch of {launch['kernel']} with cooperative {launch['cooperative']}")
    if launch["warps"] & (launch["warps"] - 1):
        raise CompileError(f"a launch of {launch['kernel']} with {launch['warps']} warps, which is no power of two")


def _resources(path, arch, items, timeout_seconds):
    import triton

    folder = cache_folder("triton")
    found, missing = {}, []
    for i, item in enumerate(items):
        text = json.dumps([os.path.basename(path), arch, item, triton.__version__], sort_keys=True)
        note = os.path.join(folder, hashlib.sha256(text.encode()).hexdigest() + ".json")
        try:
            with open(note) as file:
                noted = json.load(file)
            if not all(type(noted[name]) is int for name in ("registers", "stack_bytes", "shared_bytes")):
                raise ValueError("an incomplete note")
            found[i] = noted
        except (OSError, ValueError, TypeError, KeyError):
            missing.append((i, note))
    if missing:
        request = {"path": path, "folder": folder, "arch": arch, "jobs": [items[i] for i, _ in missing]}
        for (i, note), facts in zip(missing, _helpers.call(request, timeout_seconds)):
            found[i] = facts
            triton_source.write_whole(note, json.dumps(facts))
    return [found[i] for i in range(len(items))], not missing


class _Helpers:
    """Helper processes. They are started on the main thread only: a helper dies with the thread that started it."""

    def __init__(self):
        self._idle = queue.SimpleQueue()
        self._count = 0

    def reserve(self, count):
        while self._count < count:
            self._idle.put(self._start())
            self._count += 1

    def repair(self):
        """Replaces nothing by itself: lost helpers are started again by the next `reserve`."""
        alive = []
        while not self._idle.empty():
            process = self._idle.get()
            if process.poll() is None:
                alive.append(process)
        for process in alive:
            self._idle.put(process)
        self._count = len(alive)

    @staticmethod
    def _start():
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", TRITON_INTERPRET="0")
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "kernelopt.worker.triton_build"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=environment,
        )

    def call(self, request, timeout_seconds):
        try:
            process = self._idle.get(timeout=timeout_seconds)
        except queue.Empty:
            raise CompileError("no compiler process was free in time") from None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = _read_line(process.stdout, time.monotonic() + timeout_seconds)
        except (OSError, TimeoutError) as error:
            process.kill()
            process.wait()
            why = f"took longer than {timeout_seconds:g} s" if isinstance(error, TimeoutError) else "ended"
            raise CompileError(f"the compiler {why}") from error
        self._idle.put(process)
        reply = json.loads(line)
        if reply.get("error", {}).get("kind") == "environment":
            raise ResourcesUnknown(reply["error"]["message"])
        if "error" in reply:
            raise CompileError(reply["error"]["message"], reply["error"]["detail"])
        return reply["jobs"]


def _read_line(stream, deadline):
    data = b""
    while not data.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            raise TimeoutError
        part = os.read(stream.fileno(), 1 << 16)
        if not part:
            raise BrokenPipeError("end of file")
        data += part
    return data


_helpers = _Helpers()
