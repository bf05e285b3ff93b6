"""The CUDA device as worker and judge see it: facts, one lock a device, a context that died, launches (DESIGN sections 2, 8)."""

import contextlib
import fcntl
import functools
import os
import tempfile
import threading
import time

import torch

from kernelopt.protocol import ProtocolError, one_line

ALIGNMENT = 256  # bytes; at least what Triton and Inductor assume of a pointer, and what the allocator gives


def default_device():
    """`cpu` or `cuda`: what the engine asked this process to serve (KERNELOPT_DEVICE)."""
    return "cuda" if os.environ.get("KERNELOPT_DEVICE", "cpu").startswith("cuda") else "cpu"


def require():
    """Raises ProtocolError (environment) without a CUDA device."""
    if not torch.cuda.is_available():
        raise ProtocolError("environment", "this machine has no CUDA device that torch can use")


def facts():
    """The `device` object of `hello` for device 0."""
    require()
    properties = torch.cuda.get_device_properties(0)
    try:
        import triton

        version = triton.__version__
    except ImportError as error:
        raise ProtocolError("environment", f"this Python has no usable triton: {error}") from error
    return {
        "kind": "cuda",
        "name": properties.name,
        "isa": f"sm_{properties.major}{properties.minor}",
        "threads": properties.multi_processor_count,
        "vector_bits": 128,
        "l1_bytes": getattr(properties, "shared_memory_per_multiprocessor", 128 << 10),
        "l2_bytes": properties.L2_cache_size,
        "l3_bytes": 0,
        **_multiprocessor(properties),
        "memory_bytes": properties.total_memory,
        "uuid": device_uuid(),
        "compiler": "triton",
        "compiler_version": version,
        "driver": driver_version(),
        "cuda": torch.version.cuda,
    }


def _multiprocessor(properties):
    """What torch tells of a multiprocessor's resources; the engine's table has the rest."""
    names = {"registers_per_multiprocessor": "regs_per_multiprocessor", "threads_per_multiprocessor": "max_threads_per_multi_processor",
             "shared_per_multiprocessor": "shared_memory_per_multiprocessor", "shared_per_program": "shared_memory_per_block_optin"}
    return {name: getattr(properties, theirs) for name, theirs in names.items() if getattr(properties, theirs, None)}


def fingerprint(base):
    """`base`, the bridge's fingerprint, with what only a GPU has."""
    found = facts()
    return {**base, "gpu": found["name"], "gpu_arch": found["isa"], "triton": found["compiler_version"], "cuda": found["cuda"]}


@functools.cache
def device_uuid():
    return str(torch.cuda.get_device_properties(0).uuid)


@functools.cache
def driver_version():
    """`580.159.04`, or None where the driver does not say."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            words = file.readline().split()
        return next((word for word in words if word[:1].isdigit() and word.count(".") >= 1), None)
    except OSError:
        pass
    import ctypes

    try:  # containers may hide /proc/driver
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(96)
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, 96) == 0:
            return text.value.decode()
    except OSError:
        pass
    return None


_held = 0
_waited = 0.0
_lock_file = None


@contextlib.contextmanager
def device_lock():
    """Nobody else who takes this lock uses the device inside; whoever times holds it. Reentrant in one process."""
    global _held
    if not _held:
        _take()
    _held += 1
    try:
        yield
    finally:
        _held -= 1
        if not _held:
            _give()


def seconds_waited():
    """Seconds that this process has waited for `device_lock` so far: another process of ours had the device."""
    return _waited


def _take():
    global _lock_file, _waited
    path = os.path.join(tempfile.gettempdir(), f"kernelopt-{os.getuid()}-{device_uuid()}.lock")
    _lock_file = open(path, "a")
    try:
        fcntl.flock(_lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        pass
    started = time.monotonic()
    done = threading.Event()
    # The wait is not the request's: the engine starts its deadline anew with each of these.
    reporter = threading.Thread(target=_report_wait, args=(done,), daemon=True)
    reporter.start()
    try:
        fcntl.flock(_lock_file, fcntl.LOCK_EX)
    finally:
        done.set()
        reporter.join()
    _waited += time.monotonic() - started


on_wait = None  # called every few seconds, and at the end, while the lock is waited for
_WAIT_REPORT_SECONDS = 5.0


def _report_wait(done):
    last = False
    while not last:
        last = done.wait(_WAIT_REPORT_SECONDS)
        if on_wait is not None:
            on_wait()


def _give():
    _lock_file.close()


@contextlib.contextmanager
def device_unlocked():
    """Inside, `device_lock` is open even if this process holds it: for work on the host alone."""
    global _held
    depth, _held = _held, 0
    if depth:
        synchronize()
        _give()
    try:
        yield
    finally:
        if depth:
            _take()
        _held = depth


def unlock_while_compiling():
    """From now on Inductor compiles with the lock open, and takes it where it measures kernels on the device.

    What it runs there beside (folding constants of a few elements) is too short to show in a median."""
    from torch._inductor import compile_fx, select_algorithm
    from torch._inductor.runtime import benchmarking

    _wrap(compile_fx, "compile_fx", device_unlocked)
    for owner, name in ((select_algorithm.AlgorithmSelectorCache, "autotune"), (benchmarking.TritonBenchmarker, "benchmark_gpu"),
                        (benchmarking.InductorBenchmarker, "benchmark_gpu")):
        if name in vars(owner):
            _wrap(owner, name, device_lock)


def _wrap(owner, name, context):
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def wrapped(*args, **keywords):
        with context():
            return inner(*args, **keywords)

    setattr(owner, name, wrapped)


def lock_for(device):
    """`device_lock` on a GPU, nothing on a CPU."""
    return device_lock() if torch.device(device).type == "cuda" else contextlib.nullcontext()


def synchronize(device="cuda"):
    """Waits for the device; raises what its kernels raised."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def context_error():
    """None, or one line that says why the CUDA context of this process can no longer be used."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    try:
        torch.cuda.synchronize()
        return None
    except RuntimeError as error:
        return one_line(str(error).splitlines()[0])


@contextlib.contextmanager
def blamed_on_candidate():
    """CUDA errors inside are the candidate's, one line each."""
    try:
        yield
    except ProtocolError:
        raise
    except torch.OutOfMemoryError as error:
        raise ProtocolError("candidate", f"the candidate ran out of device memory: {one_line(str(error).splitlines()[0])}") from error
    except RuntimeError as error:
        raise ProtocolError("candidate", f"the candidate failed on the device: {one_line(str(error).splitlines()[0])}") from error


def empty_kernel(name="kernel0"):
    """A call of a kernel that does nothing, through the launcher that candidates use."""
    from kernelopt.worker import launching

    kernel = {
        "name": name, "params": [{"name": "b0", "dtype": "float32", "role": "in"}],
        "source": f"import triton\nimport triton.language as tl\n\n@triton.jit\ndef {name}(b0):\n    pass\n",
    }
    data = torch.zeros(64, device="cuda")
    launch = {"kernel": name, "args": ["b0"], "programs": 1, "warps": 4, "stages": 1}
    call = launching.triton_launch(kernel, launch, [data.data_ptr()])
    call.keeps_alive = data
    return call


def measure_peaks():
    """See docs/protocol.md. Medians of events, the lock held."""
    from kernelopt.worker import cuda_timing

    require()
    with device_lock():
        count = 1 << 28
        source, target = torch.ones(count, device="cuda"), torch.empty(count, device="cuda")
        copy = cuda_timing.median_seconds(lambda: target.copy_(source), 10)
        del source, target
        flops = {}
        for name, dtype, side in (("fp32", torch.float32, 4096), ("bf16", torch.bfloat16, 8192)):
            a, b = (torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(2))
            allowed = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = False
            try:
                flops[name] = 2 * side**3 / cuda_timing.median_seconds(lambda: torch.mm(a, b), 10)
            finally:
                torch.backends.cuda.matmul.allow_tf32 = allowed
        launch = cuda_timing.median_seconds(empty_kernel(), 50)
        torch.cuda.empty_cache()
    return {
        "copy_bytes_per_second": 2 * 4 * count / copy, "flops_per_second": flops["fp32"],
        "bf16_flops_per_second": flops["bf16"], "launch_seconds": launch, "parallel_seconds": launch,
    }
