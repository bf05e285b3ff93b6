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
    calls = {kernel["name"]: kernel for kernel in candidate["kernels"] if "call" in kernel}
    kernels = {kernel["name"]: compiler.load_kernel(kernel["source"]) for kernel in candidate["kernels"] if "call" not in kernel}
    steps = []
    for launch, args in zip(candidate["launches"], launches(candidate)):
        if launch["kernel"] in calls:
            steps.append(library_calls.bind(calls[launch["kernel"]], [memory.tensor(position, arg) for arg, _ in args]))
            continue
        pointers = [ctypes.c_void_p(memory.address(position, arg)) for arg, _ in args]
        steps.append(functools.partial(kernels[launch["kernel"]], *pointers))
    return steps


def _triton(candidate, memory, position):
    from kernelopt.worker import triton_compiler

    kernels = {kernel["name"]: kernel for kernel in candidate["kernels"]}
    returned = {entry["name"]: library_calls.Returned() for entry in candidate.get("scratch", []) if entry.get("returned")}
    steps = []
    for launch, args in zip(candidate["launches"], launches(candidate)):
        kernel = kernels[launch["kernel"]]
        if "call" in kernel:
            steps.append(_library_call(kernel, [arg for arg, _ in args], memory, position, returned))
            continue
        triton_compiler.check_launch(launch)
        if triton_compiler.interpreting():
            tensors = [returned.get(arg) or memory.tensor(position, arg) for arg, _ in args]
            steps.append(_interpreted(kernel, launch, tensors))
        else:
            addresses = [returned.get(arg) or memory.address(position, arg) for arg, _ in args]
            steps.append(triton_launch(kernel, launch, addresses))
    return steps


def _library_call(kernel, args, memory, position, returned):
    if len(args) != 3 or args[2] not in returned or any(arg in returned for arg in args[:2]):
        raise CompileError(f"{kernel['name']} does not take two tensors and return one")
    x, w = (memory.tensor(position, arg) for arg in args[:2])
    return library_calls.bind_returning(kernel, x, w, returned[args[2]])


def triton_launch(kernel, launch, addresses):
    """Queues one kernel with pointers as plain numbers: Triton's own C launcher without the Python around it. An address that is
    a Returned is looked up at each launch."""
    from kernelopt.worker import triton_compiler

    late = [isinstance(address, library_calls.Returned) for address in addresses]
    aligned = [is_late or address % 16 == 0 for is_late, address in zip(late, addresses)]
    compiled = triton_compiler.load(kernel, launch, aligned)
    try:
        run = compiled.run  # loads the binary
    except Exception as error:  # OutOfResources and what the driver says
        raise CompileError(f"{kernel['name']} cannot be loaded: {error}") from error
    stream = torch.cuda.current_stream().cuda_stream
    queue = functools.partial(run, launch["programs"], 1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None)
    if not any(late):
        return functools.partial(queue, *addresses)
    return lambda: queue(*(address.data_ptr() if is_late else address for is_late, address in zip(late, addresses)))


def _interpreted(kernel, launch, tensors):
    from kernelopt.worker import triton_build, triton_compiler

    if launch.get("cooperative") and launch["programs"] > 1:
        raise CompileError("programs that wait for one another cannot run one after another")
    function = getattr(triton_build.module_of(triton_compiler.prepare(kernel)), kernel["name"])
    queue = functools.partial(function[(launch["programs"],)], num_warps=launch["warps"], num_stages=launch["stages"])
    # What a library call returns is flat memory to the kernel, as other scratch is.
    return lambda: queue(*(_flat(tensor.tensor) if isinstance(tensor, library_calls.Returned) else tensor for tensor in tensors))


def _flat(tensor):
    return tensor.as_strided([tensor.untyped_storage().nbytes() // tensor.element_size()], [1], 0)


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
