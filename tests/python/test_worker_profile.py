"""What runs under Nsight Compute: each candidate once behind its mark, a failing one named and passed over."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from kernelopt import exchange
from kernelopt.worker import building, profile
from test_worker_groups import ADD, COLUMNS, N, ROWS, candidate, program


@pytest.fixture
def request_of(tmp_path, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("KERNELOPT_EXCHANGE", str(tmp_path / "exchange"))
    monkeypatch.setenv("KERNELOPT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))

    def make(*groups):
        path = tmp_path / "program.json"
        path.write_text(json.dumps(program()))
        inputs = {name: exchange.write_tensor(torch.randn(ROWS, COLUMNS)) for name in program()["inputs"]}
        return {"groups": [{"program": str(path), "group": ["op0"], "candidates": list(items), "inputs": inputs} for items in groups]}

    return make


def watched(request, monkeypatch):
    """(events in order, failures): marks, start, stop, and runs of candidates by position."""
    events = []
    bind = profile_bind()

    def watching(item, memory, position):
        call = bind(item, memory, position)

        def run():
            events.append(position)
            call()

        return run

    from kernelopt.worker import launching

    monkeypatch.setattr(launching, "bind", watching)
    failures = profile.observe(request, lambda: events.append("mark"), lambda: events.append("start"), lambda: events.append("stop"))
    return events, failures


def profile_bind():
    from kernelopt.worker import launching

    return launching.bind


def test_every_candidate_runs_warm_and_once_behind_its_mark(request_of, monkeypatch):
    other = f"for (long i = {N} - 1; i >= 0; --i) p2[i] = p0[i] + p1[i];"
    events, failures = watched(request_of([candidate(ADD), candidate(other)], [candidate(ADD)]), monkeypatch)
    assert failures == []
    assert events == [0, 1, "start", "mark", 0, "mark", 1, "stop", 0, "start", "mark", 0, "stop"]


def test_a_candidate_that_does_not_compile_keeps_its_mark(request_of, monkeypatch):
    events, failures = watched(request_of([candidate("not C++;"), candidate(ADD)]), monkeypatch)
    assert events == [1, "start", "mark", "mark", 1, "stop"]
    assert len(failures) == 1 and failures[0].startswith("group 0, candidate 0: ")


def test_a_group_without_memory_keeps_its_marks(request_of, monkeypatch):
    from kernelopt.worker import group_memory

    whole = group_memory.GroupMemory

    def small(group, candidates, *rest):
        if len(candidates) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 80 GiB")
        return whole(group, candidates, *rest)

    monkeypatch.setattr(group_memory, "GroupMemory", small)
    events, failures = watched(request_of([candidate(ADD), candidate(ADD)], [candidate(ADD)]), monkeypatch)
    assert events == ["start", "mark", "mark", "stop", 0, "start", "mark", 0, "stop"]
    assert len(failures) == 1 and failures[0].startswith("group 0: CUDA out of memory.") and "\n" not in failures[0]


def test_bad_requests_end_with_one_line(tmp_path):
    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "kernelopt.worker.profile", *arguments], capture_output=True, text=True)

    assert run().returncode == 2
    missing = run(str(tmp_path / "none.json"))
    assert missing.returncode == 2 and "none.json" in missing.stderr and "Traceback" not in missing.stderr
    if not torch.cuda.is_available():
        request = tmp_path / "request.json"
        request.write_text(json.dumps({"groups": []}))
        refused = run(str(request))
        assert refused.returncode == 3 and refused.stderr.strip().splitlines()[-1].endswith("no CUDA device that torch can use")


def test_the_compilers_tuned_kernel_says_what_it_takes():
    config = SimpleNamespace(num_warps=4, num_stages=2)
    tuned = SimpleNamespace(launchers=[SimpleNamespace(config=config, n_regs=32, n_spills=3, shared=1024)])
    assert building.inductor_resources("triton_poi_0", tuned) == [
        {"name": "triton_poi_0", "warps": 4, "stages": 2, "registers": 32, "stack_bytes": 12, "shared_bytes": 1024}
    ]
    # A launcher of a binary that was not loaded does not know.
    silent = SimpleNamespace(launchers=[SimpleNamespace(config=config, n_regs=None, n_spills=None, shared=0)])
    assert building.inductor_resources("k", silent)[0]["stack_bytes"] is None
    # Before tuning it is not known which configuration will run.
    assert building.inductor_resources("k", SimpleNamespace(launchers=[])) == []
    assert building.inductor_resources("k", SimpleNamespace(launchers=[tuned, tuned])) == []
