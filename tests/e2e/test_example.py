"""One real example through every command: what the user sees, the run folder, and what the engine itself costs."""
import json
import os
import re
import subprocess
import sys

import jsonschema
import pytest

from harness import ROOT, check_optimized, run

MODEL = ROOT / "examples" / "softmax_strided.py"  # of the fixture `finished`


def test_last_line_is_the_verdict(finished):
    report = finished.report
    last = finished.stdout.strip().splitlines()[-1]
    assert last.startswith(report["outcome"] + ":"), last
    assert "format" in last and re.search(r"\d\.\d\dx", last), last


def test_progress_is_plain_lines(finished):
    assert "\r" not in finished.stderr and "\x1b" not in finished.stderr
    for word in ("search", "left", "best"):
        assert word in finished.stderr
    assert finished.left_behind == []


def test_report_follows_its_schema(finished):
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    jsonschema.validate(finished.report, schema)


def test_every_candidate_has_its_verdicts(finished):
    report = finished.report
    assert report["candidates"]
    for candidate in report["candidates"]:
        assert candidate["gates"] or candidate["state"] in ("duplicate", "rejected", "error"), candidate
        if candidate["state"] == "passed":
            assert {"1", "2"} <= set(candidate["gates"])
    if report["outcome"] == "optimized":
        shipped = {kernel["digest"] for kernel in report["kernels"]}
        for candidate in report["candidates"]:
            if candidate["digest"] in shipped:
                assert {"1", "2", "3", "4"} <= set(candidate["gates"])
        assert report["speedup"]["value"] >= 1.03 and report["speedup"]["interval"][0] > 1


def test_the_search_that_was_asked_for(finished):
    """T x N distinct plans a group, or the recorded reason for stopping early."""
    report = finished.report
    for group in report["decomposition"]["groups"]:
        if "search" not in group:
            assert group["kept"] or group["equal_to"] is not None, group
        elif group["search"]["attempts"] < 2 * 3:
            assert group["search"]["stop"] != "rounds done" and group["search"]["reason"], group["search"]
    digests = [c["digest"] for c in report["candidates"] if c["state"] == "passed"]
    assert len(digests) == len(set(digests))


def test_optimized_equals_eager(finished):
    assert check_optimized(MODEL, finished.out)["failures"] == []


def test_optimized_needs_torch_alone(finished):
    """Imported in a process that cannot see this repository's package."""
    code = ("import importlib.util, sys; spec = importlib.util.spec_from_file_location('o', sys.argv[1]); "
            "m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m); "
            "assert not any(n.split('.')[0] == 'kernelopt' for n in sys.modules), 'imports kernelopt'; print(m.ModelNew)")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code, str(finished.out / "optimized.py")], env=env, cwd=finished.out,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


MISFIT = '''
import importlib.util, json, sys, warnings
spec = importlib.util.spec_from_file_location("o", sys.argv[1])
m = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)
import torch
model, x = m.ModelNew(), torch.randn(2, 8, 5, 7)
with warnings.catch_warnings(record=True) as seen, torch.no_grad():
    warnings.simplefilter("always")
    try:
        y = [model(x) for _ in range(2)][1]
        error = None
    except Exception as caught:
        error = repr(caught)
ours = [str(w.message) for w in seen if "kernelopt" in str(w.message).lower()]
print(json.dumps({"error": error, "warnings": ours,
                  "equal": error is None and torch.allclose(y, torch.softmax(x, dim=1), atol=1e-6)}))
'''


def misfit(out, **extra):
    env = dict(os.environ, **extra)
    done = subprocess.run([sys.executable, "-c", MISFIT, str(out / "optimized.py")], env=env, cwd=out, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_other_shapes_fall_back_with_one_warning(finished):
    seen = misfit(finished.out)
    assert seen["error"] is None and seen["equal"]
    assert len(seen["warnings"]) == (1 if finished.report["outcome"] == "optimized" else 0)


def test_strict_raises(finished):
    if finished.report["outcome"] != "optimized":
        pytest.skip("nothing was replaced, so nothing can fail to fit")
    assert misfit(finished.out, KERNELOPT_STRICT="1")["error"]


def test_engine_itself_is_small(finished):
    assert 0 < finished.own_peak_bytes < 200e6
    assert finished.own_cpu_seconds < 0.05 * finished.seconds


def test_verify_and_report(finished):
    verified = run(["verify", finished.out], timeout=600)
    assert verified.status == 0, verified.explain()
    shown = run(["report", finished.out], timeout=60)
    assert shown.status == 0 and shown.stdout.strip().splitlines()[-1] == finished.stdout.strip().splitlines()[-1]
    as_json = run(["report", finished.out, "--json"], timeout=60)
    assert json.loads(as_json.stdout)["outcome"] == finished.report["outcome"]


def test_verify_notices_a_changed_kernel(finished, tmp_path):
    if finished.report["outcome"] != "optimized":
        pytest.skip("no kernel to damage")
    damaged = tmp_path / "damaged"
    subprocess.run(["cp", "-r", str(finished.out), str(damaged)], check=True)
    source = (damaged / "optimized.py").read_text()
    assert "ModelNew" in source
    # Whatever the file computes, it now returns a little more.
    (damaged / "optimized.py").write_text(source + (
        "\n_forward = ModelNew.forward\n\n\ndef _off(self, *args, **kwargs):\n"
        "    return _forward(self, *args, **kwargs) + 1e-2\n\n\nModelNew.forward = _off\n"))
    assert run(["verify", damaged], timeout=600).status == 1


def test_inspect():
    shown = run(["inspect", MODEL, "--json"], timeout=600)
    assert shown.status == 0, shown.explain()
    steps = [s for g in json.loads(shown.stdout)["graphs"] for s in g["steps"]]
    assert any(s["kind"] == "generated" for s in steps)
    generated = [s for s in steps if s["kind"] == "generated"]
    assert sum(s["refused"] is None for s in generated) >= 0.95 * len(generated)
