"""Prefix sums and products that a CPU program leaves to ATen: recorded as loops with a scan, evaluated by the judge, joined with their
neighbours and replaced."""

import pytest
import torch

from kernelopt import bridge
from kernelopt.judge import loop_ir
from kernelopt.worker import library_calls


class Scans(torch.nn.Module):
    def forward(self, x, n, h):
        return (torch.cumsum(x, 1), torch.cumsum(x, 0), torch.cumsum(x.transpose(1, 2), -1), torch.cumsum(x[:, 1:, ::2], 1),
                torch.cumprod(x, 2), torch.cumsum(x > 0, 1), torch.cumsum(n, 0), torch.cumsum(x, 2, dtype=torch.float64),
                torch.cumsum(n, 1, dtype=torch.int32), torch.cumprod(n, 1), torch.cumsum(x.double(), 0), torch.cumsum(n, 0, dtype=torch.float32),
                torch.cumsum(h, 0), torch.cumprod(x.double(), 0))


def inputs():
    torch.manual_seed(1)
    return [torch.randn(3, 5, 8), torch.randint(-9, 9, (6, 7)), torch.randn(4, 5, dtype=torch.bfloat16)]


@pytest.fixture(scope="module")
def captured():
    return bridge.capture(Scans(), inputs())


def scans(program):
    return [step for step in program["steps"] if step["kind"] == "extern" and "scan" in step["extern"]]


def test_every_scan_of_a_known_type_is_one_step_with_loops(captured):
    program = captured.programs[0]
    steps = scans(program)
    assert len(steps) == 12 and all(bridge.has_loops(step) for step in steps)
    # bfloat16, and products in float64, stay calls: the call and the taking of its result, two steps.
    assert sorted(step["extern"]["op"] for step in program["steps"] if step["kind"] == "extern" and "scan" not in step["extern"]) == [
        "", "", "aten.cumprod.default", "aten.cumsum.default"]
    for step in steps:
        numbers = step["extern"]["scan"]
        body = step["bodies"][0]
        assert [var["kind"] for var in body["vars"]].count("reduce") == 1 and body["vars"][-1]["kind"] == "reduce"
        assert body["vars"][-1]["extent"] == numbers["out"]["size"][numbers["dim"]]
        found = next(op for op in body["ops"] if op["op"] == "scan")
        assert found["dtypes"] == [{"float32": "float64"}.get(numbers["dtype"], numbers["dtype"])]
        assert found["block"]["ops"][0]["op"] == {"cumsum": "add", "cumprod": "mul"}[numbers["op"]]
        assert step["reads"] == [numbers["x"]["name"]] and step["writes"] == [numbers["out"]["name"]]


def test_the_loops_compute_what_eager_computes(captured):
    program, arguments = captured.programs[0], inputs()
    expected = Scans()(*arguments)
    given = dict(zip(program["inputs"], arguments))
    loops = [step["name"] for step in program["steps"] if bridge.has_loops(step)]
    memory = loop_ir.evaluate(program, loops, given, "float32")
    for number, (name, value) in enumerate(zip(program["outputs"], expected)):
        if number < 12:  # ATen's own way of adding up: the same bits
            assert torch.equal(memory.tensor(name), value), number


def test_infinities_and_nan_as_eager():
    x = torch.tensor([[1.0, float("inf"), 2.0, float("-inf"), 3.0], [-0.0, -0.0, float("nan"), 1.0, 2.0], [3e38, 3e38, -3e38, -3e38, 1.0]])
    program = bridge.capture(lambda y: torch.cumsum(y, 1), [x]).programs[0]
    memory = loop_ir.evaluate(program, [step["name"] for step in program["steps"]], {program["inputs"][0]: x}, "float32")
    assert torch.equal(memory.tensor(program["outputs"][0]).nan_to_num(9.5), torch.cumsum(x, 1).nan_to_num(9.5))


def test_a_call_that_is_read_in_place_keeps_its_order():
    """x is overwritten after the call: the loops read it before that."""
    def model(x):
        y = torch.cumsum(x, 0)
        x.mul_(2)
        return y + x

    x = torch.randn(6, 5)
    program = bridge.capture(model, [x]).programs[0]
    memory = loop_ir.evaluate(program, [step["name"] for step in program["steps"]], {program["inputs"][0]: x}, "float32")
    torch.testing.assert_close(memory.tensor(program["outputs"][0]), torch.cumsum(x, 0) + 2 * x)


def running_mean(x):
    return torch.cumsum(torch.exp(x), 1) / torch.arange(1, x.shape[1] + 1)


@pytest.fixture(scope="module")
def mean():
    x = torch.randn(9, 33)
    return bridge.capture(running_mean, [x]), x


def test_the_baseline_is_the_call_between_the_compilers_kernels(mean):
    captured, x = mean
    program = captured.programs[0]
    names = [step["name"] for step in program["steps"]]
    described = bridge.describe_groups(captured, [names, [scans(program)[0]["name"]]])
    whole, alone = (group["baseline"] for group in described)
    assert [group["refused"] for group in described] == [None, None]
    assert ["call" in kernel for kernel in whole["kernels"]] == [False, True, False]
    assert [launch["args"] for launch in whole["launches"]] == [["b0", "b1"], ["b1", "b2"], ["b2", "b3"]]
    call = alone["kernels"][0]
    assert len(alone["kernels"]) == 1 and call["call"] == "scan" and [param["role"] for param in call["params"]] == ["in", "out"]
    out = torch.full_like(x, float("nan"))
    library_calls.bind(call, [x, out])()
    assert torch.equal(out, torch.cumsum(x, 1))


def test_a_library_scan_over_a_view():
    x, out = torch.randn(100), torch.full((100,), -1.0, dtype=torch.float64)
    numbers = {"op": "cumprod", "dim": 0, "dtype": "float64", "x": {"size": [4, 3], "stride": [10, 2], "offset": 5},
               "out": {"size": [4, 3], "stride": [3, 1], "offset": 7}}
    library_calls.bind({"call": "scan", "numbers": numbers}, [x, out])()
    expected = torch.cumprod(x.as_strided((4, 3), (10, 2), 5).double(), 0)
    torch.testing.assert_close(out[7:19].reshape(4, 3), expected)
    assert bool((out[:7] == -1).all()) and bool((out[19:] == -1).all())


SOURCE = """#include <cmath>
extern "C" void kernel(const float* x, float* out) {
  for (int r = 0; r < 9; ++r) {
    double sum = 0;
    for (int j = 0; j < 33; ++j) {
      sum += std::exp(x[r * 33 + j]);
      out[r * 33 + j] = 2 * (float(sum) / (j + 1));  // twice the mean: what comes out shows who computed it
    }
  }
}
"""


def test_one_kernel_replaces_the_call_and_its_neighbours(mean):
    captured, x = mean
    program = captured.programs[0]
    names = [step["name"] for step in program["steps"]]
    described = bridge.describe_groups(captured, [names])[0]
    candidate = {"format": "kernelopt.candidate", "version": 1, "language": "cpp", "group": described["digest"],
                 "kernels": [{"name": "kernel0", "source": SOURCE, "params": [{"name": "b0", "dtype": "float32", "role": "in"},
                                                                             {"name": "b3", "dtype": "float32", "role": "out"}]}],
                 "launches": [{"kernel": "kernel0", "args": ["b0", "b3"]}], "scratch": [], "threads": 1, "plan": {}, "formats": [],
                 "digest": "x"}
    kernels = {"format": "kernelopt.kernels", "version": 1, "torch": program["torch"], "fingerprint": captured.fingerprints[0],
               "groups": [{"digest": described["digest"], "steps": described["step_digests"], "candidate": candidate}]}
    call, replaced, result = bridge.stitch(running_mean, [x], kernel_set=kernels)
    assert [entry["steps"] for entry in replaced] == [names] and not result.problems
    assert "cumsum" not in "".join(line for line in result.programs[0]["wrapper"].splitlines() if not line.strip().startswith("#"))
    torch.testing.assert_close(call(x), 2 * running_mean(x))


def test_a_kernel_in_place_of_the_call_alone(mean):
    """Its result is memory that another kernel reads: allocated here, since the call no longer returns it."""
    captured, x = mean
    program = captured.programs[0]
    step = scans(program)[0]["name"]
    described = bridge.describe_groups(captured, [[step]])[0]
    source = SOURCE.replace("std::exp(x[r * 33 + j])", "x[r * 33 + j]").replace("2 * (float(sum) / (j + 1))", "2 * float(sum)")
    candidate = {"format": "kernelopt.candidate", "version": 1, "language": "cpp", "group": described["digest"],
                 "kernels": [{"name": "kernel0", "source": source, "params": [{"name": "b0", "dtype": "float32", "role": "in"},
                                                                             {"name": "b1", "dtype": "float32", "role": "out"}]}],
                 "launches": [{"kernel": "kernel0", "args": ["b0", "b1"]}], "scratch": [], "threads": 1, "plan": {}, "formats": [],
                 "digest": "x"}
    kernels = {"format": "kernelopt.kernels", "version": 1, "torch": program["torch"], "fingerprint": captured.fingerprints[0],
               "groups": [{"digest": described["digest"], "steps": described["step_digests"], "candidate": candidate}]}
    call, replaced, result = bridge.stitch(running_mean, [x], kernel_set=kernels)
    assert [entry["steps"] for entry in replaced] == [[step]] and not result.problems
    torch.testing.assert_close(call(x), 2 * running_mean(x))
    torch.testing.assert_close(call(x + 1), 2 * running_mean(x + 1))
