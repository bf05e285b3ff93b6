"""Facts about the CPU and the compiler, for `hello` (docs/protocol.md), and the flags of Inductor's own C++ command line."""

import functools
import os
import platform
import shlex
import shutil
import subprocess

import torch

from kernelopt.protocol import ProtocolError


def cpu_facts():
    """The `device` object of `hello`. Raises ProtocolError (environment) without a C++ compiler."""
    compiler = find_compiler()
    isa, bits = vector_isa()
    caches = _cache_sizes()
    return {
        "kind": "cpu",
        "name": _cpu_name(),
        "isa": isa,
        "threads": torch.get_num_threads(),
        "vector_bits": bits,
        "l1_bytes": caches.get(1, 32 << 10),
        "l2_bytes": caches.get(2, 1 << 20),
        "l3_bytes": caches.get(3, 0),
        "compiler": os.path.basename(compiler),
        "compiler_version": compiler_version(compiler),
    }


def find_compiler():
    """The compiler that Inductor would use. Raises ProtocolError (environment) where there is none."""
    from torch._inductor import config

    choices = config.cpp.cxx if isinstance(config.cpp.cxx, (list, tuple)) else (config.cpp.cxx,)
    for choice in choices:
        if choice and shutil.which(choice):
            return shutil.which(choice)
    raise ProtocolError("environment", "no C++ compiler on this machine: install g++ (torch.compile needs it as well)")


@functools.cache
def compiler_version(compiler):
    """The first line of `--version`."""
    run = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60)
    return run.stdout.splitlines()[0] if run.stdout else "unknown"


@functools.cache
def vector_isa():
    """(name, bits) of the vector unit that Inductor generates for; ("default", 128) where it uses none."""
    from torch._inductor import cpu_vec_isa

    isa = cpu_vec_isa.pick_vec_isa()
    if not isa:
        return "default", 128
    return str(isa).split()[0], isa.bit_width()


@functools.cache
def compile_command(source="KERNELOPT_SOURCE.cpp", output="KERNELOPT_OUTPUT"):
    """The command, as a list, by which Inductor builds a kernel with a Python binding: what ships is built this way."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    find_compiler()
    options = cpp_builder.CppTorchDeviceOptions(
        include_pytorch=False,
        shared=True,
        device_type="cpu",
        extra_flags=(),
        use_relative_path=False,
        vec_isa=cpu_vec_isa.pick_vec_isa(),
    )
    line = cpp_builder.CppBuilder(name=output, sources=source, BuildOption=options).get_command_line()
    return tuple(shlex.split(line))


def _cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith(("model name", "Model")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cache_sizes():
    """Level -> bytes of one data or unified cache, from sysfs; empty where it is not mounted."""
    sizes = {}
    base = "/sys/devices/system/cpu/cpu0/cache"
    for index in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        try:
            kind, level, size = (_read(f"{base}/{index}/{name}") for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 1)
            sizes[int(level)] = int(size.rstrip("KMG")) * scale
    return sizes


def _read(path):
    with open(path) as file:
        return file.read().strip()
