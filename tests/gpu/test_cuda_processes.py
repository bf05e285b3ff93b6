"""Worker and judge on a CUDA device, over their pipes as the engine runs them."""

import csv
import fcntl
import json
import os
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import pytest
from worker_process import ROOT, WorkerProcess

ROWS, COLUMNS = 512, 4096
N = ROWS * COLUMNS
INDEX = {"add": [{"mul": [COLUMNS, "p0"]}, "p1"]}
TOLERANCES = [{"rtol": 1e-4, "atol": 1e-4, "rms_scaled": True, "error_factor": 4}]


def program():
    """One step: buf1 = relu(arg0_1 + arg1_1)."""
    fields = {"dtype": "float32", "offset": 0, "device": "cuda:0", "layout": "fixed", "base": None, "mutates": None,
              "removable": False, "value": None, "size": [ROWS, COLUMNS], "stride": [COLUMNS, 1]}
    inputs = ("arg0_1", "arg1_1")
    ops = [{"id": i, "op": "load", "buffer": name, "index": INDEX} for i, name in enumerate(inputs)]
    ops += [{"id": 2, "op": "add", "args": [0, 1]}, {"id": 3, "op": "relu", "args": [2]},
            {"id": -1, "op": "store", "buffer": "buf1", "index": INDEX, "args": [3], "mode": None}]
    body = {"name": "op0", "ops": ops, "vars": [{"name": "p0", "extent": ROWS, "kind": "iter"},
                                                {"name": "p1", "extent": COLUMNS, "kind": "iter"}]}
    buffers = {name: {**fields, "kind": "input", "is_output": False} for name in inputs}
    buffers["buf1"] = {**fields, "kind": "computed", "is_output": True}
    step = {"name": "op0", "kind": "generated", "reads": list(inputs), "writes": ["buf1"], "last_use": [], "origins": [],
            "refused": None, "bodies": [body]}
    return {"format": "kernelopt.program", "version": 1, "torch": "2.11.0", "adapter": "2.11", "device": "cuda", "graph": 0,
            "inputs": list(inputs), "outputs": ["buf1"], "buffers": buffers, "steps": [step], "wrapper": "", "kernels": []}


BLOCK = 1024
HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef kernel0(b0, b1, b2):\n"
LOADS = f"    x = tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})\n    t = tl.load(b0 + x) + tl.load(b1 + x)\n"
GOOD = HEAD + LOADS + "    tl.store(b2 + x, tl.maximum(t, 0.0, propagate_nan=tl.PropagateNan.ALL))\n"


def candidate(source=GOOD, scratch=(), args=("b0", "b1", "b2"), **launch):
    roles = ("in", "in", "out")
    params = [{"name": arg, "dtype": "float32", "role": role} for arg, role in zip(args, roles)]
    launch = {"kernel": "kernel0", "args": list(args), "programs": N // BLOCK, "warps": 4, "stages": 1, **launch}
    return {"format": "kernelopt.candidate", "version": 1, "language": "triton", "group": "", "digest": "", "plan": {},
            "kernels": [{"name": "kernel0", "source": source, "params": params}], "launches": [launch], "scratch": list(scratch)}


MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1024, 1024)

    def forward(self, x):
        return torch.softmax(torch.relu(self.linear(x)) * 2, -1)

def get_inputs():
    return [torch.randn(2048, 1024)]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cuda")
    (path / "program.json").write_text(json.dumps(program()))
    (path / "model.py").write_text(MODEL)
    return path


@pytest.fixture(scope="module")
def judge(folder):
    with WorkerProcess(folder, "kernelopt.judge", KERNELOPT_DEVICE="cuda") as process:
        yield process


def new_worker(folder):
    return WorkerProcess(folder, KERNELOPT_DEVICE="cuda", KERNELOPT_CACHE=str(folder / "cache"))


@pytest.fixture(scope="module")
def worker(folder):
    with new_worker(folder) as process:
        yield process


@pytest.fixture(scope="module")
def inputs(judge, folder):
    reply = judge.call("group_inputs", program=str(folder / "program.json"), group=["op0"], seed=3, input_case="ordinary")
    assert "inputs" in reply, reply
    return reply["inputs"]


def run(worker, folder, inputs, item):
    return worker.call("run_group", graph=0, program=str(folder / "program.json"), group=["op0"], candidate=item, inputs=inputs)


def test_hello_and_peaks(worker, judge):
    for process in (worker, judge):
        device = process.call("hello")["device"]
        assert device["kind"] == "cuda" and device["isa"].startswith("sm_") and device["threads"] > 8
        assert device["registers_per_multiprocessor"] == 65536 and device["threads_per_multiprocessor"] >= 1024
        assert device["shared_per_multiprocessor"] == device["shared_per_program"] + 1024
        assert device["l2_bytes"] > 1 << 20 and device["driver"] and device["compiler"] == "triton"
    fingerprint = worker.call("hello")["fingerprint"]
    assert fingerprint["gpu"] and fingerprint["triton"]
    peaks = worker.call("measure_peaks")
    print(peaks)
    assert 1e11 < peaks["copy_bytes_per_second"] < 2e13 and peaks["flops_per_second"] > 1e12
    assert 5e-7 < peaks["launch_seconds"] < 3e-5


def test_a_right_candidate(worker, judge, folder, inputs):
    assert all("ipc" in leaf for leaf in inputs.values())
    (built,) = worker.call("compile", candidates=[candidate()])["candidates"]
    assert built["kernels"][0]["registers"] > 0, built
    reply = run(worker, folder, inputs, candidate())
    assert "outputs" in reply, reply
    assert (reply["guards_intact"], reply["inputs_unchanged"], reply["deterministic"], reply["unwritten"]) == (True, True, True, 0)
    assert all("ipc" in leaf for leaf in reply["outputs"].values())
    compared = judge.call("compare_group", program=str(folder / "program.json"), group=["op0"], seed=3, input_case="ordinary",
                          names=["arg0_1", "arg1_1", "buf1"], outputs=reply["outputs"], tolerances=TOLERANCES)
    (leaf,) = compared["leaves"]
    assert compared["structure_equal"] and leaf["violations"] == [0] and leaf["elements"] == N


@pytest.mark.parametrize("line, observed", [
    ("tl.store(b2 + x, t)", None),  # no relu
    (f"tl.store(b2 + x, tl.maximum(t, 0.0))\n    tl.store(b2 + {N} + x, t, mask=x < 8)", "guards_intact"),
    ("tl.store(b2 + x, tl.maximum(t, 0.0))\n    tl.store(b0 + x, t)", "inputs_unchanged"),
    ("tl.store(b2 + x, tl.maximum(t, 0.0), mask=x > 5)", "unwritten"),
])
def test_wrong_candidates(worker, judge, folder, inputs, line, observed):
    reply = run(worker, folder, inputs, candidate(HEAD + LOADS + f"    {line}\n"))
    assert "outputs" in reply, reply
    if observed == "unwritten":
        assert reply["unwritten"] == 6
    elif observed is not None:
        assert reply[observed] is False
    else:
        compared = judge.call("compare_group", program=str(folder / "program.json"), group=["op0"], seed=3, input_case="ordinary",
                              names=["arg0_1", "arg1_1", "buf1"], outputs=reply["outputs"], tolerances=TOLERANCES)
        assert compared["leaves"][0]["violations"][0] > N // 4


def test_layouts_cross_as_they_are(judge, folder):
    """Small, strided and empty tensors through shared device memory, read by the process that owns them and by another."""
    import torch
    from kernelopt import exchange

    tensors = [
        torch.randn(3, device="cuda"), torch.randn(4, 6, device="cuda").t(), torch.randn(5, 7, device="cuda")[:, 1:4],
        torch.randn(1, 5, device="cuda").expand(3, 5), torch.arange(9, device="cuda") > 4, torch.empty(0, 3, device="cuda"),
        torch.randn(33, device="cuda", dtype=torch.bfloat16), torch.tensor(2.5, device="cuda", dtype=torch.float64),
    ]
    leaves = [exchange.write_tensor(tensor) for tensor in tensors]
    assert all("ipc" in leaf for leaf in leaves)
    code = (
        "import json, sys; from kernelopt import exchange\n"
        "for leaf in json.load(sys.stdin):\n"
        "    t = exchange.read_tensor(leaf, 'cuda'); print(json.dumps([list(t.stride()), t.double().cpu().tolist()]))\n"
    )
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", code], input=json.dumps(leaves), capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    for tensor, leaf, line in zip(tensors, leaves, done.stdout.splitlines(), strict=True):
        assert json.loads(line) == [list(tensor.stride()), tensor.double().cpu().tolist()]
        here = exchange.read_tensor(leaf, "cuda")
        assert here.stride() == tensor.stride() and torch.equal(here, tensor)
    assert exchange.remove_files(leaves) == len(leaves)


def test_time_group(worker, folder, inputs):
    slow = candidate(GOOD.replace("    t = ", "    for again in range(0, 3):\n        tl.store(b2 + x, tl.load(b0 + x) + again)\n    t = "))
    reply = worker.call("time_group", graph=0, program=str(folder / "program.json"), group=["op0"], candidates=[candidate(), candidate()],
                        inputs=inputs, warmup_ms=5, rep_ms=20)
    assert "samples" in reply, reply
    a, b = map(statistics.median, reply["samples"])
    print("equal sides", a, b, len(reply["samples"][0]))
    assert 0.95 < a / b < 1.05 and 1e-6 < a < 1e-3
    assert 3 * 4 * N / a < 6e12  # the caches were flushed: no faster than the memory
    reply = worker.call("time_group", graph=0, program=str(folder / "program.json"), group=["op0"], candidates=[candidate(), slow],
                        inputs=inputs, warmup_ms=5, rep_ms=20)
    a, b = map(statistics.median, reply["samples"])
    print("slow side", a, b)
    assert b > 1.05 * a


def test_illegal_address_costs_one_worker(judge, folder, inputs):
    with new_worker(folder) as worker:
        bad = HEAD + LOADS + "    tl.store(b2 + x.to(tl.int64) * 1099511627776, t)\n"
        reply = run(worker, folder, inputs, candidate(bad))
        assert reply["kind"] == "candidate" and "failed on the device" in reply["message"], reply
        assert worker.process.wait(timeout=20) == 4
    with new_worker(folder) as worker:
        assert "outputs" in run(worker, folder, inputs, candidate())
    assert judge.call("hello")["role"] == "judge"


def test_out_of_memory_is_the_candidates_fault(folder, inputs):
    with new_worker(folder) as worker:
        huge = candidate(scratch=[{"name": "s0", "dtype": "float32", "elements": 50_000_000_000, "zeroed": False}])
        reply = run(worker, folder, inputs, huge)
        assert reply["kind"] == "candidate" and "s0" in reply["message"], reply
        assert "outputs" in run(worker, folder, inputs, candidate())


def test_an_endless_loop_is_killed(folder, inputs):
    with new_worker(folder) as worker:
        assert "outputs" in run(worker, folder, inputs, candidate())
        endless = HEAD + LOADS + (
            "    go = tl.sum(tl.load(b0 + x) * 0.0, 0)\n    while go < 1.0:\n        go = tl.sum(tl.load(b0 + x) * 0.0, 0)\n"
            "        tl.store(b2 + x, t + go)\n"
        )
        worker.send("run_group", graph=0, program=str(folder / "program.json"), group=["op0"], candidate=candidate(endless),
                    inputs=inputs)
        assert not select.select([worker._read], [], [], 6)[0], worker.receive()
        worker.process.kill()
        worker.process.wait(timeout=20)
    started = time.monotonic()
    with new_worker(folder) as worker:
        assert "outputs" in run(worker, folder, inputs, candidate())
    assert time.monotonic() - started < 60


def test_one_lock_a_device(worker, folder, inputs):
    import torch

    uuid = torch.cuda.get_device_properties(0).uuid
    path = os.path.join(tempfile.gettempdir(), f"kernelopt-{os.getuid()}-{uuid}.lock")
    assert "outputs" in run(worker, folder, inputs, candidate())
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        worker.send("measure_peaks")
        assert not select.select([worker._read], [], [], 1.0)[0]
    waited = worker.receive()
    assert (waited["event"], waited["stage"]) == ("progress", "waiting for the device")
    assert "copy_bytes_per_second" in worker.receive()["result"]


def compiler_kernel(folder):
    """The compiler's own kernel for the program's step, as docs/formats.md wants it."""
    import torch
    from torch._inductor.utils import run_and_get_code

    x, y = (torch.randn(ROWS, COLUMNS, device="cuda") for _ in range(2))
    with torch._inductor.config.patch(fx_graph_cache=False):
        _, (code,) = run_and_get_code(torch.compile(lambda a, b: torch.relu(a + b)), x, y)
    name, source = re.search(r"async_compile\.triton\('(\w+)', '''(.*?)'''", code, re.DOTALL).groups()
    params = [{"name": name, "dtype": "float32", "role": role} for name, role in (("b0", "in"), ("b1", "in"), ("b2", "out"))]
    params.append({"name": "xnumel", "dtype": "int64", "role": "size"})
    return {"format": "kernelopt.candidate", "version": 1, "language": "inductor_triton", "group": "", "digest": "", "plan": {},
            "kernels": [{"name": name, "source": source, "params": params}], "scratch": [],
            "launches": [{"kernel": name, "args": ["b0", "b1", "b2", N]}]}


def test_the_compilers_own_kernel(worker, judge, folder, inputs):
    baseline = compiler_kernel(folder)
    (built,) = worker.call("compile", candidates=[baseline])["candidates"]
    assert "error" not in built, built
    reply = run(worker, folder, inputs, baseline)
    assert "outputs" in reply, reply
    assert (reply["guards_intact"], reply["inputs_unchanged"], reply["deterministic"], reply["unwritten"]) == (True, True, True, 0)
    timed = worker.call("time_group", graph=0, program=str(folder / "program.json"), group=["op0"],
                        candidates=[baseline, candidate()], inputs=inputs, warmup_ms=5, rep_ms=20)
    assert "samples" in timed, timed
    a, b = map(statistics.median, timed["samples"])
    print("compiler", a, "candidate", b)
    assert 0.7 < a / b < 1.4
    # It has run, so its configuration is chosen and the resource report is there.
    (again,) = worker.call("compile", candidates=[baseline])["candidates"]
    (kernel,) = again["kernels"]
    assert kernel["registers"] > 0 and kernel["stack_bytes"] == 0 and kernel["warps"] >= 1, kernel


def profile_command(folder, inputs, candidates):
    """(command, environment) of what Nsight Compute starts, over one group."""
    group = {"program": str(folder / "program.json"), "group": ["op0"], "candidates": candidates, "inputs": inputs}
    (folder / "profile.json").write_text(json.dumps({"groups": [group]}))
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"), KERNELOPT_DEVICE="cuda", KERNELOPT_CACHE=str(folder / "cache"),
                       KERNELOPT_EXCHANGE=str(folder / "exchange"))
    return [sys.executable, "-m", "kernelopt.worker.profile", str(folder / "profile.json")], environment


def test_what_ncu_starts_names_the_candidate_that_fails(folder, inputs):
    command, environment = profile_command(folder, inputs, [compiler_kernel(folder), candidate("not Python"), candidate()])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("kernelopt.worker.profile: ")]
    assert len(said) == 1 and said[0].startswith("kernelopt.worker.profile: group 0, candidate 1: "), said


def test_ncu_counts_each_candidate_behind_its_mark(folder, inputs):
    if shutil.which("ncu") is None:
        pytest.skip("no ncu")
    command, environment = profile_command(folder, inputs, [compiler_kernel(folder), candidate()])
    done = subprocess.run(["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--target-processes",
                           "application-only", "--profile-from-start", "off", "--section", "SpeedOfLight", *command],
                          env=environment, capture_output=True, text=True, timeout=300)
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        pytest.skip("counters are not permitted")
    lines = done.stdout.splitlines()
    rows = list(csv.DictReader(lines[next(i for i, line in enumerate(lines) if line.startswith('"ID"')):]))[1:]
    names = [row["Kernel Name"].partition("(")[0] for row in rows]
    assert len(names) == 4 and names[0] == names[2] == "kernelopt_mark" and names[3] == "kernel0", names
    assert 0 < float(rows[3]["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"].replace(",", "")) <= 110


def test_models(worker, judge, folder):
    for process in (worker, judge):
        reply = process.call("load_model", path=str(folder / "model.py"), device="cuda", dtype=None, seed=0)
        assert reply.get("inputs", [{}])[0].get("device") == "cuda:0", reply
    assert judge.call("reference_model", seed=5, calls=1)["deterministic"]
    modes = worker.call("baseline_modes", modes=["eager", "default", "max-autotune"], warmup_ms=5, rep_ms=20)["modes"]
    for mode, found in modes.items():
        assert "samples" in found, (mode, found)
        print(mode, statistics.median(found["samples"]), found["compile_seconds"], found["peak_bytes"])
        assert 1e-6 < statistics.median(found["samples"]) < 1e-2
    reply = worker.call("run_model", handle="eager", seed=5, calls=1)
    compared = judge.call("compare_model", seed=5, calls=1, **reply, tolerances=TOLERANCES)
    assert compared["structure_equal"] and all(leaf["violations"] == [0] for leaf in compared["leaves"]), compared
