"""From a candidate document to a function of no arguments that runs its launches over a GroupMemory (docs/formats.md)."""

import ctypes
import functools

import torch

from kernelopt.protocol import ProtocolError
from kernelopt.worker import compiler, library_calls
from kernelopt.worker.errors import CompileError
from kernelopt.worker.group_memory import launches

LANGUAGES = ("cpp", "triton", "inductor_triton")


def device_of(candidates):
    """`cpu` or `cuda`: where these candidates run. Raises ProtocolError where they do not run on one device."""
    from kernelopt.worker import triton_compiler

    found = set()
    for candidate in candidates:
        language = candidate.get("language")
        if language not in LANGUAGES:
            raise ProtocolError("candidate", f"language {language}")
        found.add("cpu" if language == "cpp" or triton_compiler.interpreting() else "cuda")
    if len(found) != 1:
        raise ProtocolError("internal", "candidates of different devices in one request")
    return found.pop()


def bind(candidate, memory, position):
    """A function that runs the candidate's launches, scratch zeroed as it asks. On a GPU it only queues them, on the current
    stream. Raises ProtocolError (candidate)."""
    try:
        steps = {"cpp": _cpp, "triton": _triton, "inductor_triton": _inductor}[candidate["language"]](candidate, memory, position)
    except CompileError as error:
        raise ProtocolError("candidate", str(error), error.detail) from error
    steps = memory.zeroing(position) + steps
    if len(steps) == 1:
        return steps[0]

    def run():
        for step in steps:
            step()

    return run


def _cpp(candidate, memory, position):
    kernels = {kernel["name"]: compiler.load_kernel(kernel["source"]) for kernel in candidate["kernels"]}
    steps = []
    for launch, args in zip(candidate["launches"], launches(candidate)):
        pointers = [ctypes.c_void_p(memory.address(position, arg)) for arg, _ in args]
        steps.append(functools.partial(kernels[launch["kernel"]], *pointers))
    return steps


def _triton(candidate, memory, position):
    from kernelopt.worker import triton_compiler

    kernels = {kernel["name"]: kernel for kernel in candidate["kernels"]}
    steps = []
    for launch, args in zip(candidate["launches"], launches(candidate)):
        triton_compiler.check_launch(launch)
        if triton_compiler.interpreting():
            tensors = [memory.tensor(position, arg) for arg, _ in args]
            steps.append(_interpreted(kernels[launch["kernel"]], launch, tensors))
        else:
            addresses = [memory.address(position, arg) for arg, _ in args]
            steps.append(triton_launch(kernels[launch["kernel"]], launch, addresses))
    return steps


def triton_launch(kernel, launch, addresses):
    """Queues one kernel with pointers as plain numbers: Triton's own C launcher without the Python around it."""
    from kernelopt.worker import triton_compiler

    aligned = [address % 16 == 0 for address in addresses]
    compiled = triton_compiler.load(kernel, launch, aligned)
    try:
        run = compiled.run  # loads the binary
    except Exception as error:  # OutOfResources and what the driver says
        raise CompileError(f"{kernel['name']} cannot be loaded: {error}") from error
    stream = torch.cuda.current_stream().cuda_stream
    return functools.partial(
        run, launch["programs"], 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, *addresses
    )


def _interpreted(kernel, launch, tensors):
    from kernelopt.worker import triton_build, triton_compiler

    if launch.get("cooperative") and launch["programs"] > 1:
        raise CompileError("programs that wait for one another cannot run one after another")
    function = getattr(triton_build.module_of(triton_compiler.prepare(kernel)), kernel["name"])
    return functools.partial(function[(launch["programs"],)], *tensors, num_warps=launch["warps"], num_stages=launch["stages"])


@functools.lru_cache(maxsize=256)
def _inductor_kernel(name, source):
    from torch._inductor.async_compile import AsyncCompile

    kernel = AsyncCompile().triton(name, source, device_str="cuda")
    return kernel.result() if hasattr(kernel, "result") else kernel


def load_inductor_kernels(candidate):
    """The compiler's own kernels, compiled. Raises CompileError."""
    try:
        return {kernel["name"]: _inductor_kernel(kernel["name"], kernel["source"]) for kernel in candidate["kernels"]
                if "call" not in kernel}
    except Exception as error:
        raise CompileError(f"the compiler's kernel does not compile: {error}") from error


def _inductor(candidate, memory, position):
    kernels = load_inductor_kernels(candidate)
    calls = {kernel["name"]: kernel for kernel in candidate["kernels"] if "call" in kernel}
    stream = torch.cuda.current_stream().cuda_stream
    steps = []
    for launch, args in zip(candidate["launches"], launches(candidate)):
        if launch["kernel"] in calls:
            steps.append(library_calls.bind(calls[launch["kernel"]], [memory.tensor(position, arg) for arg, _ in args]))
            continue
        values = [arg if isinstance(arg, int) else memory.tensor(position, arg) for arg, _ in args]
        steps.append(functools.partial(kernels[launch["kernel"]].run, *values, stream=stream))
    return steps
