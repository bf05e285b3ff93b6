"""The worker as a process: what the engine sees over the pipes, and that nothing is left behind."""

import json
import os
import signal

import pytest
from worker_process import SAMPLES, WorkerProcess

MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = torch.nn.Linear(width, width)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        print("chatter on standard output")
        self.calls += 1
        x.mul_(2)
        return {"y": torch.softmax(self.lin(x), -1), "n": None}
def get_inputs():
    return [torch.randn(16, 32)]
def get_init_inputs():
    return [32]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("worker")
    (path / "model.py").write_text(MODEL)
    return path


@pytest.fixture(scope="module")
def worker(folder):
    with WorkerProcess(folder, KERNELOPT_CACHE=str(folder / "cache"), KERNELOPT_THREADS="1") as process:
        assert process.call("load_model", path=str(folder / "model.py"), device="cpu", dtype=None, seed=0)["needs"] == [
            "mutates_inputs", "mutates_state"]
        yield process


def conforms(value, sample, where=""):
    """Everything in the sample is in the value, with the same JSON type; a list's first element stands for all."""
    if isinstance(sample, dict):
        assert isinstance(value, dict), where
        for key in sample:
            assert key in value, f"{where}/{key} is missing"
            conforms(value[key], sample[key], f"{where}/{key}")
    elif isinstance(sample, list):
        assert isinstance(value, list), where
        for item in value if sample else []:
            conforms(item, sample[0], where + "/[]")
    elif isinstance(sample, float):
        assert isinstance(value, (int, float)) and not isinstance(value, bool), where
    elif sample is not None:
        assert type(value) is type(sample), f"{where}: {value!r}"


def sample_of(method):
    return json.loads((SAMPLES / f"{method}.json").read_text())["reply"]["result"]


def test_hello_says_what_the_sample_says(worker):
    reply = worker.call("hello")
    conforms(reply, sample_of("hello"))
    assert reply["role"] == "worker" and reply["protocol"] == 1
    assert reply["device"]["threads"] == 1 and reply["device"]["vector_bits"] in (128, 256, 512)


def test_peaks_are_plausible_numbers(worker):
    reply = worker.call("measure_peaks")
    conforms(reply, sample_of("measure_peaks"))
    assert all(value > 0 for value in reply.values())


def read(tree):
    from kernelopt import exchange

    return exchange.read_tree(tree)


def test_runs_start_from_the_initial_state_and_report_mutation(worker):
    import torch

    first = worker.call("run_model", handle="eager", seed=3, calls=2)
    conforms(first, {"outputs": {}, "inputs": {}, "buffers": {}})
    kept = {key: read(first[key]) for key in first}
    second = worker.call("run_model", handle="eager", seed=3, calls=2)
    assert torch.equal(kept["outputs"]["y"], read(second["outputs"])["y"]) and kept["outputs"]["n"] is None
    assert int(kept["buffers"]["calls"]) == int(read(second["buffers"])["calls"]) == 2
    once = worker.call("run_model", handle="eager", seed=3, calls=1)
    assert torch.equal(read(once["inputs"])[0] * 2, kept["inputs"][0])


def test_time_model_gives_pairs(worker):
    reply = worker.call("time_model", handles=["eager", "eager"], warmup_ms=1, rep_ms=2, seed=0)
    conforms(reply, sample_of("time_model"))
    assert len(reply["samples"][0]) == len(reply["samples"][1]) >= 5 and reply["batch"] == [1, 1]


@pytest.mark.parametrize(
    "method, params, kind",
    [
        ("load_model", {"path": "no/model.py"}, "user"),
        ("run_model", {"handle": "m77", "seed": 0}, "internal"),
        ("describe_groups", {"groups": []}, "internal"),
        ("nothing", {}, "unsupported"),
        ("run_model", {"seed": 0}, "internal"),
    ],
)
def test_errors_have_a_kind_and_one_line(worker, method, params, kind):
    reply = worker.call(method, **params)
    assert reply["kind"] == kind and reply["message"] and "\n" not in reply["message"]


def test_what_is_printed_stays_off_the_channel(worker, folder):
    worker.call("load_model", path=str(folder / "model.py"), device="cpu", dtype=None, seed=0)
    assert worker.call("run_model", handle="eager", seed=1, calls=1)["outputs"]["kind"] == "dict"


def test_ctrl_c_is_the_engines(worker):
    worker.process.send_signal(signal.SIGINT)
    assert worker.call("drop_files", tree={}) == {"removed": 0}


OPTIMIZED = """
import importlib.util, os
spec = importlib.util.spec_from_file_location("user_model", os.path.join(os.path.dirname(__file__), "model.py"))
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
class ModelNew(module.Model):
    kernelopt_status = {"state": "optimized"}
    def forward(self, x):
        DAMAGE
        return super().forward(x)
"""


def test_optimized_files_are_loaded_with_the_models_weights_and_fresh_state(worker, folder):
    import torch

    (folder / "optimized.py").write_text(OPTIMIZED.replace("DAMAGE", "pass"))
    reply = worker.call("load_optimized", path=str(folder / "optimized.py"))
    conforms(reply, sample_of("load_optimized"))
    results = []
    for handle in ("eager", reply["handle"]):
        run = worker.call("run_model", handle=handle, seed=5, calls=2)
        results.append((read(run["outputs"])["y"], int(read(run["buffers"])["calls"]), read(run["inputs"])[0]))
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][2], results[1][2])
    assert results[0][1] == results[1][1] == 2
    (folder / "optimized.py").write_text(OPTIMIZED.replace("DAMAGE", "raise ValueError('broken')"))
    reply = worker.call("load_optimized", path=str(folder / "optimized.py"))
    assert reply["kind"] == "candidate" and "ValueError: broken" in reply["message"]


def test_without_a_compiler_hello_says_so(folder):
    environment = {"PATH": "/nonexistent", "CXX": "g++"}
    with WorkerProcess(folder, **environment) as process:
        reply = process.call("hello")
    assert reply["kind"] == "environment" and "no C++ compiler" in reply["message"]


def test_end_of_requests_and_exit_leave_no_files(folder, tmp_path):
    for way in ("exit", "end of file"):
        with WorkerProcess(tmp_path) as process:
            process.call("load_model", path=str(folder / "model.py"), device="cpu", dtype=None, seed=0)
            process.call("run_model", handle="eager", seed=0, calls=1)
            assert list(process.exchange.iterdir())
            if way == "exit":
                assert process.call("exit") == {}
            else:
                process.close_requests()
            assert process.process.wait(timeout=20) == 0
            assert not list(process.exchange.iterdir())
            assert "chatter" in process.log()


def test_a_crash_ends_the_process_and_the_channel(folder):
    text = 'extern "C" void kernel(float* p) { *(volatile int*)8 = 1; }'
    document = {
        "format": "kernelopt.program", "version": 1, "inputs": [], "outputs": ["buf0"],
        "buffers": {"buf0": {"kind": "computed", "dtype": "float32", "size": [4], "stride": [1], "offset": 0, "base": None,
                             "mutates": None, "is_output": True, "removable": False, "value": None, "layout": "fixed"}},
        "steps": [{"name": "op0", "kind": "generated", "reads": [], "writes": ["buf0"], "refused": None, "origins": [],
                   "bodies": [{"name": "op0", "vars": [{"name": "p0", "extent": 4, "kind": "iter"}],
                               "ops": [{"id": 0, "op": "constant", "value": 1.0, "dtype": "float32"},
                                       {"id": -1, "op": "store", "buffer": "buf0", "index": "p0", "args": [0], "mode": None}]}]}],
    }
    (folder / "program.json").write_text(json.dumps(document))
    candidate = {"language": "cpp", "launches": [{"kernel": "k", "args": ["b0"]}], "scratch": [],
                 "kernels": [{"name": "k", "source": text, "params": [{"name": "b0", "dtype": "float32", "role": "out"}]}]}
    with WorkerProcess(folder, KERNELOPT_CACHE=str(folder / "cache")) as process:
        process.send("run_group", program=str(folder / "program.json"), group=["op0"], candidate=candidate, inputs={})
        with pytest.raises(EOFError):
            process.receive()
        assert process.process.wait(timeout=20) == -signal.SIGSEGV


def test_a_broken_frame_ends_the_process(folder):
    with WorkerProcess(folder) as process:
        process.send_bytes(b"\xff\xff\xff\xff")
        assert process.process.wait(timeout=60) != 0


def test_without_descriptors_it_says_so(folder):
    import subprocess
    import sys

    from worker_process import ROOT

    environment = {key: value for key, value in os.environ.items() if not key.startswith("KERNELOPT_")}
    environment["PYTHONPATH"] = str(ROOT / "python")
    run = subprocess.run([sys.executable, "-m", "kernelopt.worker"], env=environment, capture_output=True, text=True)
    assert run.returncode == 3 and "start kernelopt instead" in run.stderr and "Traceback" not in run.stderr


def test_shared_parameters_that_a_run_changed_are_noticed_and_put_right(tmp_path):
    import torch

    from kernelopt.protocol import ProtocolError
    from kernelopt.worker.models import Models

    (tmp_path / "model.py").write_text(MODEL)
    models = Models()
    models.load_model({"path": str(tmp_path / "model.py")}, None)
    victim = models._copy()

    def damage(x):
        with torch.no_grad():
            victim.lin.bias.zero_()
        return x

    name = models._add(models._new_handle("stitched", victim, damage))
    with pytest.raises(ProtocolError, match="changed the model's parameters") as error:
        models.run_model({"handle": name, "seed": 0}, None)
    assert error.value.kind == "candidate"
    assert torch.equal(victim.lin.bias, models.loaded.pristine.lin.bias)
    eager = models._handle("eager").module
    assert eager.lin.bias is victim.lin.bias and eager.calls is not victim.calls
