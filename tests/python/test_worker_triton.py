"""Gate 1 for Triton without a device: what the source check lets through, and what the compiler reports."""

import importlib.util
import io
import json

import pytest

from kernelopt.worker import building, triton_compiler, triton_source
from kernelopt.worker.errors import CompileError

HEAD = "import triton\nimport triton.language as tl\n\n"
GOOD = HEAD + """@triton.jit
def ko_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)

@triton.jit
def kernel0(b0, b1):
    x = tl.program_id(0) * 128 + tl.arange(0, 128)
    total = tl.zeros([128], tl.float32)
    for start in range(0, 512, 128):
        total += tl.load(b0 + x + start, mask=x < 500, other=0.0).to(tl.float32)
    tl.store(b1 + x, tl.where(x < 3, float('-inf'), ko_max(total, 0.0)))
"""


def body(line):
    return HEAD + f"@triton.jit\ndef kernel0(b0, b1):\n    {line}\n"


def test_a_kernel_passes():
    triton_source.check(GOOD, "kernel0")
    triton_source.check(GOOD.replace("import triton.language as tl", "import triton.language as tl\n"
                                     "from triton.language.extra import libdevice"), "kernel0")


@pytest.mark.parametrize("source, part", [
    (GOOD + "print(1)\n", "a statement beside imports and functions"),
    (GOOD + "X = 1\n", "a statement beside imports and functions"),
    ("import os\n" + GOOD, "the import `import os`"),
    ("from triton.language import *\n" + GOOD, "the import"),
    ("import triton.language as tl, os\n" + GOOD, "the import"),
    (GOOD.replace("@triton.jit\ndef ko_max", "def ko_max"), "not decorated"),
    (GOOD.replace("@triton.jit\ndef ko_max", "@triton.jit(do_not_specialize=[])\ndef ko_max"), "not decorated"),
    (GOOD.replace("kernel0(b0, b1)", "kernel0(b0, b1=print(1))"), "not plain"),
    (GOOD.replace("kernel0(b0, b1)", "kernel0(b0, b1: print(1))"), "the annotation"),
    (GOOD.replace("kernel0(b0, b1)", "kernel0(b0, tl)"), "the name tl"),
    (body("tl.store(b1, open('x'))"), "a call of open"),
    (body("tl.store(b1, b0.__class__)"), "`b0.__class__`"),
    (body("tl.store(b1, tl.core.builtins)"), "`tl.core.builtins`"),
    (body("tl.inline_asm_elementwise('trap;', '', [b0], tl.int32, True, 1)"), "a call of tl.inline_asm_elementwise"),
    (body("tl.device_print('x', b0)"), "a call of tl.device_print"),
    (body("import os"), "Import"),
    (body("x = [y for y in b0]"), "ListComp"),
    (body("x = lambda: 1"), "Lambda"),
    (body("x = f'{b0}'"), "JoinedStr"),
    (body("global b0"), "Global"),
    (body("x = unknown + 1"), "the name unknown"),
    (body("x = triton"), "the name triton"),
    (body("tl = 3"), "the name tl"),
    (body("x = float(b0)"), "a call of float"),
    (body("x = (lambda: 1)()"), "a call of"),
    (body("x = tl.load"), "`tl.load`"),
    (body("for x in b0:\n        pass"), "a loop over"),
    ("def kernel0(:", "the source is no Python"),
    (HEAD, "defines no function kernel0"),
])
def test_what_is_refused(source, part):
    with pytest.raises(CompileError) as caught:
        triton_source.check(source, "kernel0")
    assert part in str(caught.value)


def candidate(source=GOOD, **launch):
    params = [{"name": "b0", "dtype": "float32", "role": "in"}, {"name": "b1", "dtype": "float32", "role": "out"}]
    launch = {"kernel": "kernel0", "args": ["b0", "b1"], "programs": 4, "warps": 4, "stages": 1, **launch}
    return {"format": "kernelopt.candidate", "version": 1, "language": "triton", "group": "", "digest": "", "plan": {},
            "kernels": [{"name": "kernel0", "source": source, "params": params}], "launches": [launch], "scratch": []}


needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="this Python has no triton")


@needs_triton
def test_compiles_without_a_device(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELOPT_CACHE", str(tmp_path))
    steps = []
    wrong_type = candidate(GOOD.replace("tl.arange(0, 128)", "tl.arange(0, 100)"))
    items = [candidate(), wrong_type, candidate(warps=3), candidate(GOOD + "import os\n"), {"language": "ptx", "kernels": []}]
    good, *bad = building.compile_candidates(items, 120, lambda *step: steps.append(step), "sm_90")
    assert good["symbols"] == ["kernel0"] and good["arch"] == "sm_90" and not good["cached"]
    (kernel,) = good["kernels"]
    assert kernel["registers"] > 0 and kernel["stack_bytes"] == 0 and kernel["shared_bytes"] == 0
    assert "arange's range must be a power of 2" in bad[0]["error"]["message"]
    assert "3" in bad[1]["error"]["message"] and "import os" in bad[2]["error"]["message"]
    assert "no compiler for the language ptx" in bad[3]["error"]["message"]
    assert all(reply["error"]["kind"] == "candidate" for reply in bad) and len(steps) == 4
    (again,) = building.compile_candidates([candidate()], 120, arch="sm_90")
    assert again["cached"] and again["kernels"] == good["kernels"]


# Three rows of 8192 held by 64 threads: 384 values a thread, more than it has registers; gate 1 admits 1024 bytes of local memory.
SPILLING = HEAD + """@triton.jit
def kernel0(b0, b1):
    x = tl.arange(0, 8192)
    a = tl.load(b0 + x)
    s = tl.sum(a, 0)
    b = tl.load(b0 + 8192 + x) * s
    c = tl.load(b0 + 16384 + x) * s
    t = tl.sum(b * c, 0)
    tl.store(b1 + x, a * t)
    tl.store(b1 + x + 8192, b * t)
    tl.store(b1 + x + 16384, c * t)
"""
SUMMING = HEAD + """@triton.jit
def kernel0(b0, b1):
    x = tl.arange(0, 1024)
    tl.store(b1 + x, tl.load(b0 + x) / tl.sum(tl.load(b0 + x), 0))
"""


@needs_triton
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_what_a_launch_takes(tmp_path, monkeypatch, arch):
    monkeypatch.setenv("KERNELOPT_CACHE", str(tmp_path))
    twice = candidate(SUMMING)
    twice["launches"].append({**twice["launches"][0], "programs": 7, "cooperative": True})
    spilling, summing = building.compile_candidates([candidate(SPILLING, warps=2), twice], 120, arch=arch)
    (spills,) = spilling["kernels"]
    assert spills["stack_bytes"] > 1024 and spills["registers"] <= 255, spills
    assert spills["shared_bytes"] == 8  # a sum over two warps: one float each
    # One entry a launch, in their order.
    assert [(item["name"], item["programs"], item["warps"], item["cooperative"]) for item in summing["kernels"]] == [
        ("kernel0", 4, 4, False), ("kernel0", 7, 4, True)]
    assert all(item["shared_bytes"] == 16 and item["stack_bytes"] == 0 and 8 < item["registers"] < 64 for item in summing["kernels"])


@needs_triton
def test_the_assemblers_own_log_says_the_same(tmp_path, monkeypatch):
    import re
    import subprocess

    from triton import knobs

    from kernelopt.worker import triton_build, triton_compiler

    monkeypatch.setenv("KERNELOPT_CACHE", str(tmp_path))
    for source in (SPILLING, SUMMING):
        item = candidate(source, warps=2)
        kernel, (launch,) = item["kernels"][0], item["launches"]
        compiled = triton_build.build(triton_compiler.prepare(kernel), 90, triton_build.job(kernel, launch), str(tmp_path))
        (tmp_path / "kernel.ptx").write_text(compiled.asm["ptx"])
        run = subprocess.run([knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", str(tmp_path / "kernel.ptx"), "-o", "/dev/null"],
                             capture_output=True, text=True, timeout=120)
        log = run.stdout + run.stderr
        found = triton_build.resources(compiled)
        assert found["registers"] == int(re.search(r"Used (\d+) registers", log).group(1)), log
        assert found["stack_bytes"] == int(re.search(r"(\d+) bytes stack frame", log).group(1)), log


@needs_triton
def test_a_binary_that_does_not_say_is_not_the_candidates_fault(tmp_path, monkeypatch):
    from kernelopt.worker import cubin, triton_build, triton_compiler

    monkeypatch.setenv("KERNELOPT_CACHE", str(tmp_path))
    item = candidate()
    kernel, (launch,) = item["kernels"][0], item["launches"]
    binary = triton_build.build(triton_compiler.prepare(kernel), 90, triton_build.job(kernel, launch), str(tmp_path)).asm["cubin"]
    assert cubin.read_resources(binary)["registers"] > 0
    for broken in (b"", b"\x7fELF", binary[:4000], binary.replace(b".nv.info\0", b".nv.else\0"), b"\0" * len(binary)):
        with pytest.raises(cubin.ResourcesUnknown, match="cannot be read from the binary"):
            cubin.read_resources(broken)
    # A request to a helper: one line, of the environment's kind.
    out = io.StringIO()
    monkeypatch.setattr(triton_build, "read_resources", lambda _: cubin.read_resources(b""))
    request = {"path": triton_compiler.prepare(kernel), "arch": 90, "folder": str(tmp_path), "jobs": [triton_build.job(kernel, launch)]}
    triton_build.serve([json.dumps(request)], out)
    assert json.loads(out.getvalue())["error"]["kind"] == "environment"


@needs_triton
def test_programs_that_wait_for_one_another(tmp_path, monkeypatch):
    from kernelopt.worker import triton_build, triton_compiler

    monkeypatch.setenv("KERNELOPT_CACHE", str(tmp_path))
    source = HEAD + """@triton.jit
def kernel0(b0, b1):
    tl.debug_barrier()
    tl.atomic_add(b0, 1, sem='release')
    while tl.atomic_add(b0, 0, sem='acquire') < 4:
        pass
    tl.store(b1 + tl.program_id(0), tl.load(b0, volatile=True))
"""
    params = [{"name": name, "dtype": "int32", "role": "out"} for name in ("b0", "b1")]
    for cooperative in (True, False):
        item = candidate(source, **({"cooperative": True} if cooperative else {}))
        kernel, (launch,) = {**item["kernels"][0], "params": params}, item["launches"]
        triton_compiler.check_launch(launch)
        path = triton_compiler.prepare(kernel)
        compiled = triton_build.build(path, 90, triton_build.job(kernel, launch), str(tmp_path))
        assert compiled.metadata.launch_cooperative_grid is cooperative
        assert "ld.global.gpu.acquire" in compiled.asm["ptx"] and "atom.global.gpu.release" in compiled.asm["ptx"]
    with pytest.raises(CompileError, match="cooperative"):
        triton_compiler.check_launch({**launch, "cooperative": "yes"})


@needs_triton
def test_a_compiler_that_hangs_costs_its_candidate_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELOPT_CACHE", str(tmp_path))
    (late,) = building.compile_candidates([candidate()], 0.01, arch="sm_90")
    assert "took longer than" in late["error"]["message"]
    (good,) = building.compile_candidates([candidate()], 120, arch="sm_90")
    assert good["symbols"] == ["kernel0"]
