"""Compiles C++ candidates as Inductor compiles its own kernels, in parallel, into a cache addressed by content.

The cache is `KERNELOPT_CACHE` (default ~/.cache/kernelopt): `cpp/<key>.so`, the key covering source, command line and
compiler version; `pch/<key>/` holds precompiled headers. A source's first `#include <...>` is what gets precompiled if it is one of torch's
headers or the intrinsics: GCC finds `<header>.gch` in the first include folder by itself, so that the source stays complete
and what ships is compiled from the same text.
"""

import concurrent.futures
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time

from kernelopt.protocol import one_line
from kernelopt.worker import device
from kernelopt.worker.errors import CompileError

_HEADER = re.compile(r"^\s*#\s*include\s*<((?:torch|ATen|c10)/[^>]+|immintrin\.h)>")
_BEFORE_HEADER = re.compile(r"^\s*(//.*|#\s*define\s.*[^\\])?$")  # what may stand in front of it
_LINKERS_OWN = ("_init", "_fini", "_edata", "_end", "__bss_start", "edata", "end")
_locks = {}
_locks_guard = threading.Lock()


def cache_folder(*parts):
    """A folder inside the cache, made on demand."""
    base = os.environ.get("KERNELOPT_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "kernelopt")
    path = os.path.join(base, *parts)
    os.makedirs(path, exist_ok=True)
    return path


def compile_source(source, timeout_seconds):
    """(library path, cached). Raises CompileError."""
    command = _command()
    key = _digest(source, *command, device.compiler_version(command[0]))
    library = os.path.join(cache_folder("cpp"), key + ".so")
    if os.path.exists(library):
        return library, True
    precompiled = _precompiled_header(source, timeout_seconds)
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache_folder("cpp")) as build:
        text, output = os.path.join(build, "kernel.cpp"), os.path.join(build, "kernel.so")
        with open(text, "w") as file:
            file.write(source)
        _run(_command(text, output, precompiled), timeout_seconds)
        os.replace(text, os.path.join(cache_folder("cpp"), key + ".cpp"))
        os.replace(output, library)
    return library, False


def _digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _command(source="@source", output="@output", first_include=None):
    words = list(device.compile_command())
    words[words.index("KERNELOPT_SOURCE.cpp")] = source
    at = words.index("-o") + 1
    words[at] = output
    words[0] = device.find_compiler()
    if first_include is not None:
        words.insert(1, "-I" + first_include)
    return words


def _run(command, timeout_seconds):
    """Runs the compiler; what it starts ends by itself after `timeout_seconds` of CPU, even if we are killed meanwhile."""
    limited = ["/bin/sh", "-c", f'ulimit -t {int(timeout_seconds) + 1}; exec "$@"', "sh", *command]
    try:
        run = subprocess.run(
            limited, capture_output=True, text=True, errors="replace", timeout=timeout_seconds, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise CompileError(f"the compiler took longer than {timeout_seconds:g} s") from error
    if run.returncode != 0:
        lines = [line for line in run.stderr.splitlines() if "error" in line.lower()] or run.stderr.splitlines() or [""]
        # The path in front of the message is a temporary folder of ours.
        first = re.sub(r"^\S*/(?=[^/\s]+:)", "", lines[0])
        raise CompileError(one_line(first) or f"the compiler ended with status {run.returncode}", run.stderr[-20000:])


def _precompiled_header(source, timeout_seconds):
    """The include folder with the precompiled header that this source can use, or None. Only GCC finds them like this."""
    first = next((line for line in source.splitlines() if not _BEFORE_HEADER.match(line)), "")
    match = _HEADER.match(first)
    if match is None or "g++" not in os.path.basename(device.find_compiler()):
        return None
    header = match.group(1)
    command = [word for word in _command() if word != "-shared"]
    # The headers belong to torch, so its version (in the include paths' contents) is part of the key.
    key = _digest(header, *command, device.compiler_version(command[0]), _torch_version())
    folder = os.path.join(cache_folder("pch"), key)
    target = os.path.join(folder, header + ".gch")
    with _lock_for(key):
        if os.path.exists(target):
            return folder
        with tempfile.TemporaryDirectory(prefix="build-", dir=cache_folder("pch")) as build:
            text, output = os.path.join(build, "prefix.h"), os.path.join(build, "prefix.gch")
            with open(text, "w") as file:
                file.write(f"#include <{header}>\n")
            words = _command(text, output)
            at = words.index(text)
            words[at : at + 1] = ["-x", "c++-header", text]
            words = [word for word in words if word != "-shared" and not word.startswith(("-l", "-L"))]
            try:
                _run(words, max(timeout_seconds, 120))
            except CompileError:
                return None  # the candidate compiles without it, and says what is wrong where it does not
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(output, target)
    return folder


def _lock_for(key):
    with _locks_guard:
        return _locks.setdefault(key, threading.Lock())


def _torch_version():
    import torch

    return torch.__version__


def symbols(library):
    """Names that the library defines for others (docs/protocol.md, `symbols`); None where `nm` is missing."""
    if shutil.which("nm") is None:
        return None
    run = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, timeout=60)
    found = []
    for line in run.stdout.splitlines():
        kind, name = line.split()[-2:]
        if kind in "TDB" and name not in _LINKERS_OWN and not name.startswith("PyInit_"):
            found.append(name)
    return found


def compile_candidate(candidate, timeout_seconds=60):
    """The result object of `compile` for one candidate."""
    started = time.perf_counter()
    try:
        if candidate.get("language") != "cpp":
            raise CompileError(f"language {candidate.get('language')} on a CPU")
        kernels = [kernel for kernel in candidate["kernels"] if "call" not in kernel]  # of the compiler's baseline
        built = [compile_source(kernel["source"], timeout_seconds) for kernel in kernels]
        for (library, _), kernel in zip(built, kernels):
            if not _defines_kernel(library):
                raise CompileError(f"the source of {kernel['name']} defines no extern \"C\" function named kernel")
    except CompileError as error:
        return {"error": {"kind": "candidate", "message": one_line(error), "detail": error.detail}}
    names = [symbols(library) for library, _ in built]
    return {
        "library": built[0][0] if built else None,
        "libraries": [library for library, _ in built],
        "seconds": time.perf_counter() - started,
        "cached": all(cached for _, cached in built),
        "symbols": None if None in names else sorted({name for group in names for name in group}),
    }


def _defines_kernel(library):
    with open(library, "rb") as file:
        if b"\0kernel\0" not in file.read():
            return False
    found = symbols(library)
    return found is None or "kernel" in found


def compile_candidates(candidates, timeout_seconds=60, progress=lambda *_: None):
    """Results in the order of `candidates`, compiled on all cores."""
    results = [None] * len(candidates)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        jobs = {pool.submit(compile_candidate, item, timeout_seconds): i for i, item in enumerate(candidates)}
        for done, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            results[jobs[job]] = job.result()
            progress("compile", done, len(candidates))
    return results


_loaded = {}


def load_kernel(source, timeout_seconds=60):
    """The kernel function of a source as a ctypes function, compiled on demand. Raises CompileError."""
    library, _ = compile_source(source, timeout_seconds)
    if library not in _loaded:
        try:
            _loaded[library] = ctypes.CDLL(library)
            _loaded[library].kernel.restype = None
        except (OSError, AttributeError) as error:
            raise CompileError(f"the library cannot be loaded: {one_line(error)}") from error
    return _loaded[library].kernel
