"""`measure_peaks`: what the CPU can do at best, for floors (DESIGN sections 4 and 8). Best of a few repetitions."""

import functools
import time

import torch

from kernelopt.worker import cuda, device

_EMPTY = 'extern "C" void kernel(float* data) {}\n'
_PARALLEL = (
    'extern "C" void kernel(float* data) {\n#pragma omp parallel num_threads(%d)\n{ asm volatile("" ::: "memory"); }\n}\n'
)


def measure_peaks(_params, _progress):
    """{copy_bytes_per_second (read + write), flops_per_second, launch_seconds, parallel_seconds}."""
    if cuda.default_device() == "cuda":
        return cuda.measure_peaks()
    return {
        "copy_bytes_per_second": _copy_bandwidth(),
        "flops_per_second": _flops(),
        "launch_seconds": _call_seconds(_EMPTY),
        "parallel_seconds": _call_seconds(_PARALLEL % torch.get_num_threads()),
    }


def _best(call, work, budget_seconds, least=3):
    best, started, count = float("inf"), time.perf_counter(), 0
    call()
    while count < least or time.perf_counter() - started < budget_seconds:
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
        count += 1
    return work / best


def _copy_bandwidth():
    # Well past the last cache, so that the number is memory's.
    last_cache = max(device.cpu_facts()["l3_bytes"], 8 << 20)
    count = min(max(4 * last_cache, 64 << 20), 512 << 20) // 4
    source, target = torch.ones(count), torch.empty(count)
    return _best(lambda: target.copy_(source), 2 * 4 * count, 0.25)


def _flops():
    side = 1024
    a, b, out = torch.randn(side, side), torch.randn(side, side), torch.empty(side, side)
    return _best(lambda: torch.mm(a, b, out=out), 2 * side**3, 0.2)


@functools.cache
def _binding(source):
    """A kernel behind the binding that stitched programs call."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    return CppPythonBindingsCodeCache.load_pybinding(["float*"], source)


def _call_seconds(source):
    kernel, data = _binding(source), torch.zeros(16)
    count = 200

    def batch():
        for _ in range(count):
            kernel(data)

    return 1.0 / _best(batch, count, 0.02)
