"""Capture, groups, stitching and baselines of a small model through the worker process. Minutes on a cold compiler cache."""

import json

import pytest
import torch
from test_worker_process import conforms, sample_of
from worker_process import WorkerProcess

from kernelopt import exchange

MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        self.seen += 1
        return torch.softmax(x * 2 + 1, dim=-1).to(torch.float32)
def get_inputs():
    return [torch.randn(24, 70)]
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "model.py").write_text(MODEL)
    with WorkerProcess(folder, KERNELOPT_CACHE=str(folder / "cache")) as process:
        process.call("load_model", path=str(folder / "model.py"), device="cpu", dtype=None, seed=0)
        process.folder = folder
        yield process


@pytest.fixture(scope="module")
def captured(worker):
    return worker.call("capture", mode="default", out=str(worker.folder / "programs"))


def test_capture_writes_programs(captured):
    conforms(captured, {**sample_of("capture"), "refused": []})
    (path,) = captured["programs"]
    with open(path) as file:
        program = json.load(file)
    assert (program["format"], program["graph"]) == ("kernelopt.program", 0)


def test_the_compilers_own_group_runs_as_a_candidate(worker, captured):
    (path,) = captured["programs"]
    with open(path) as file:
        program = json.load(file)
    steps = [step["name"] for step in program["steps"] if step["kind"] == "generated"]
    reply = worker.call("describe_groups", graph=0, groups=[steps, ["nothing"]])
    conforms(reply["groups"][0], sample_of("describe_groups")["groups"][0])
    assert reply["groups"][1]["refused"]
    group = reply["groups"][0]
    inputs, values = {}, {}
    for name in group["reads"]:
        real = group["names"][int(name[1:])]
        fields = program["buffers"][real]
        dtype = exchange.dtype_of(fields["dtype"])
        values[real] = torch.randn(fields["size"]) if dtype.is_floating_point else torch.zeros(fields["size"], dtype=dtype)
        inputs[real] = exchange.write_tensor(values[real])
    (compiled,) = worker.call("compile", candidates=[group["baseline"]])["candidates"]
    conforms(compiled, sample_of("compile")["candidates"][0])
    common = {"graph": 0, "program": path, "group": steps, "names": group["names"], "inputs": inputs}
    run = worker.call("run_group", candidate=group["baseline"], guard_bytes=4096, runs=2, **common)
    assert (run["inputs_unchanged"], run["guards_intact"], run["deterministic"], run["unwritten"]) == (True, True, True, 0)
    floats = [exchange.read_tree(leaf) for leaf in run["outputs"].values() if leaf["size"] == [24, 70]]
    (x,) = [value for value in values.values() if list(value.shape) == [24, 70]]
    assert any(torch.allclose(result, torch.softmax(x * 2 + 1, -1), atol=1e-6) for result in floats)
    timed = worker.call("time_group", candidates=[group["baseline"]] * 2, warmup_ms=1, rep_ms=2, **common)
    conforms(timed, sample_of("time_group"))
    exchange.remove_files(inputs)


def test_the_compilers_own_program_equals_eager_state_included(worker, captured):
    stitched = worker.call("stitch", mode="default", kernels=None)
    conforms(stitched, {**sample_of("stitch"), "replaced": [], "problems": []})
    assert stitched["replaced"] == []
    runs = []
    for handle in ("eager", stitched["handle"]):
        reply = worker.call("run_model", handle=handle, seed=4, calls=3)
        runs.append((exchange.read_tree(reply["outputs"]), exchange.read_tree(reply["buffers"])))
    (eager, eager_buffers), (compiled, buffers) = runs
    assert torch.allclose(eager, compiled, atol=1e-6)
    assert int(eager_buffers["seen"]) == int(buffers["seen"]) == 3
    timed = worker.call("time_model", handles=["eager", stitched["handle"]], warmup_ms=1, rep_ms=2, seed=0)
    conforms(timed, sample_of("time_model"))
    assert worker.call("drop", handle=stitched["handle"]) == {}
    assert worker.call("run_model", handle=stitched["handle"], seed=0, calls=1)["kind"] == "internal"


def test_baseline_modes_are_sampled_together(worker):
    reply = worker.call("baseline_modes", modes=["eager", "default"], warmup_ms=1, rep_ms=2)
    for mode in ("eager", "default"):
        conforms(reply["modes"][mode], sample_of("baseline_modes")["modes"]["eager"])
    lengths = {len(entry["samples"]) for entry in reply["modes"].values()}
    assert len(lengths) == 1 and reply["modes"]["default"]["first_call_seconds"] > 0


BROKEN = """
@torch.library.custom_op("kernelopt_test::lies", mutates_args=())
def lies(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
@lies.register_fake
def _(x):
    return x.new_empty(x.shape[0] + 1, x.shape[1])
"""


def test_a_model_that_does_not_compile_is_one_line_per_mode(worker):
    path = worker.folder / "broken.py"
    path.write_text(MODEL.replace("import torch", "import torch" + BROKEN).replace("x * 2 + 1", "lies(x * 2)"))
    worker.call("load_model", path=str(path), device="cpu", dtype=None, seed=0)
    reply = worker.call("baseline_modes", modes=["eager", "default"], warmup_ms=1, rep_ms=2)
    assert reply["modes"]["eager"]["samples"]
    assert reply["modes"]["default"]["error"] and "\n" not in reply["modes"]["default"]["error"]
    error = worker.call("capture", mode="default", out=str(worker.folder / "other"))
    assert error["kind"] == "unsupported" and "torch.compile failed" in error["message"]
