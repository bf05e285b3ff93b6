"""`compile`: candidates of any language, each with the compiler of its language (docs/protocol.md)."""

import time

from kernelopt.protocol import one_line
from kernelopt.worker import compiler, launching
from kernelopt.worker.errors import CompileError


def compile_candidates(candidates, timeout_seconds=60, progress=lambda *_: None, arch=None):
    """Results in the order of `candidates`. C++ and Triton compile in parallel, on the CPU cores alone."""
    results = [None] * len(candidates)
    done = [0]

    def step(stage, _done, _total):
        done[0] += 1
        progress(stage, done[0], len(candidates))

    def part(language):
        return [i for i, candidate in enumerate(candidates) if candidate.get("language") == language]

    def take(places, found):
        for place, result in zip(places, found, strict=True):
            results[place] = result

    if part("cpp"):
        take(part("cpp"), compiler.compile_candidates([candidates[i] for i in part("cpp")], timeout_seconds, step))
    if part("triton"):
        from kernelopt.worker import triton_compiler

        items = [candidates[i] for i in part("triton")]
        take(part("triton"), triton_compiler.compile_candidates(items, timeout_seconds, step, arch))
    for i in part("inductor_triton"):
        results[i] = _compile_inductor(candidates[i])
        step("compile", 0, 0)
    for i, candidate in enumerate(candidates):
        if results[i] is None:
            message = f"no compiler for the language {candidate.get('language')}"
            results[i] = {"error": {"kind": "candidate", "message": message, "detail": ""}}
    return results


def _compile_inductor(candidate):
    started = time.perf_counter()
    try:
        loaded = launching.load_inductor_kernels(candidate)
    except CompileError as error:
        return {"error": {"kind": "candidate", "message": one_line(error), "detail": error.detail}}
    names = [kernel["name"] for kernel in candidate["kernels"]]
    return {"library": None, "libraries": [], "seconds": time.perf_counter() - started, "cached": False, "symbols": sorted(names),
            "kernels": [facts for name, kernel in loaded.items() for facts in inductor_resources(name, kernel)]}


def inductor_resources(name, kernel):
    """[what `compile` says of a kernel]: empty until the compiler's tuner has chosen one configuration."""
    launchers = getattr(kernel, "launchers", None) or []
    if len(launchers) != 1:
        return []
    launcher, = launchers
    spills = getattr(launcher, "n_spills", None)  # Triton counts words
    return [{"name": name, "warps": launcher.config.num_warps, "stages": launcher.config.num_stages,
             "registers": getattr(launcher, "n_regs", None), "stack_bytes": None if spills is None else 4 * spills,
             "shared_bytes": getattr(launcher, "shared", None)}]
