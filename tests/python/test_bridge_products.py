"""Matrix products of the library as groups: recorded as loops, evaluated by the judge, replaced by a candidate."""

import pytest
import torch

from kernelopt import bridge
from kernelopt.bridge.convolutions import output_padding
from kernelopt.judge import inputs as judge_inputs, loop_ir


class Products(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(24, 20)
        self.second = torch.nn.Linear(20, 12, bias=False)

    def forward(self, x, y, z):
        a = self.second(torch.relu(self.first(x)))
        b = torch.baddbmm(torch.bmm(y, z.transpose(1, 2)), y, z.transpose(1, 2))
        c = torch.addmm(x.t() @ x, x.t(), x, alpha=2.0, beta=0.5)
        return a, b, c


def inputs():
    torch.manual_seed(1)
    return [torch.randn(18, 24), torch.randn(3, 6, 8), torch.randn(3, 5, 8)]


@pytest.fixture(scope="module")
def captured():
    return bridge.capture(Products().eval(), inputs())


def products(program):
    return [step for step in program["steps"] if step["kind"] == "extern"]


def test_every_product_is_recorded_as_loops(captured):
    steps = products(captured.programs[0])
    assert len(steps) == 6
    assert all(bridge.has_loops(step) for step in steps)
    extents = sorted([var["extent"] for var in step["bodies"][0]["vars"]] for step in steps)
    assert extents == sorted([[18, 20, 24], [18, 12, 20], [3, 6, 5, 8], [3, 6, 5, 8], [24, 24, 18], [24, 24, 18]])
    for step in steps:
        assert [op["op"] for op in step["bodies"][0]["ops"][:4]] == ["load", "load", "mul", "reduction"]


def test_the_loops_mean_what_the_call_computes(captured):
    program = captured.programs[0]
    model, arguments = Products().eval(), inputs()
    names = [name for name in program["inputs"]]
    values = {}
    for name in names:
        entry = program["buffers"][name]
        for tensor in [*model.parameters(), *arguments]:
            if list(tensor.shape) == entry["size"]:
                values[name] = tensor.detach()
    steps = [step["name"] for step in program["steps"] if bridge.has_loops(step)]
    memory = loop_ir.evaluate(program, steps, values, "float64")
    with torch.no_grad():
        expected = model.double()(*[argument.double() for argument in arguments])
    for name, value in zip(program["outputs"], expected):
        torch.testing.assert_close(memory.tensor(name), value, rtol=1e-12, atol=1e-12)


def test_wide_inputs_are_ordinary_ones_times_powers_of_two(captured):
    program = captured.programs[0]
    step = next(step for step in products(program) if len(step["bodies"][0]["vars"]) == 3)
    drawn = {case: judge_inputs.group_inputs(program, [step["name"]], 5, case) for case in ("ordinary", "wide")}
    again = judge_inputs.group_inputs(program, [step["name"]], 5, "wide")
    assert drawn["wide"].keys() == drawn["ordinary"].keys() and drawn["wide"]
    for name, wide in drawn["wide"].items():
        assert torch.equal(wide, again[name]) and torch.isfinite(wide).all()
        if wide.numel() < 100:
            continue
        # Standard normals spread over a few powers of two, these over forty.
        spread = [torch.log2(values.abs()).std() for values in (drawn["ordinary"][name], wide)]
        assert spread[0] < 4 and 8 < spread[1] < 16
        assert wide.abs().max() < 8 * 2**20


def test_no_loops_below_full_precision():
    torch.set_float32_matmul_precision("high")
    try:
        program = bridge.capture(Products().eval(), inputs()).programs[0]
    finally:
        torch.set_float32_matmul_precision("highest")
    assert products(program) and not any(bridge.has_loops(step) for step in products(program))


def test_a_candidate_replaces_a_library_call(captured):
    program = captured.programs[0]
    step = next(step for step in products(program) if len(step["bodies"][0]["vars"]) == 3
                and [var["extent"] for var in step["bodies"][0]["vars"]] == [18, 20, 24])
    described = bridge.describe_groups(captured, [[step["name"]]])[0]
    view = bridge.GroupView(program, [step["name"]])
    assert described["digest"] == view.digest(captured.fingerprints[0])
    loads = [op["buffer"] for op in step["bodies"][0]["ops"] if op["op"] == "load"]
    a, b, bias = (f"b{view.names.index(name)}" for name in loads)
    out = f"b{view.names.index(step['writes'][0])}"
    # Twice the true product: what comes out shows who computed it.
    source = """extern "C" void kernel(const float* a, const float* b, const float* bias, float* out) {
  for (int m = 0; m < 18; ++m)
    for (int n = 0; n < 20; ++n) {
      float sum = 0;
      for (int k = 0; k < 24; ++k) sum += a[m * 24 + k] * b[n * 24 + k];
      out[m * 20 + n] = 2 * (sum + bias[n]);
    }
}
"""
    params = [{"name": name, "dtype": "float32", "role": role} for name, role in ((a, "in"), (b, "in"), (bias, "in"), (out, "out"))]
    candidate = {"format": "kernelopt.candidate", "version": 1, "language": "cpp", "group": view.digest(captured.fingerprints[0]),
                 "kernels": [{"name": "kernel0", "source": source, "params": params}],
                 "launches": [{"kernel": "kernel0", "args": [a, b, bias, out]}], "scratch": [], "threads": 1, "plan": {},
                 "formats": [], "digest": "x"}
    kernels = {"format": "kernelopt.kernels", "version": 1, "torch": program["torch"], "fingerprint": captured.fingerprints[0],
               "groups": [{"digest": candidate["group"], "steps": described["step_digests"], "candidate": candidate}]}
    model, arguments = Products().eval(), inputs()
    call, replaced, result = bridge.stitch(model, arguments, kernel_set=kernels)
    assert [entry["steps"] for entry in replaced] == [[step["name"]]] and not result.problems
    with torch.no_grad():
        got = call(*arguments)
        expected = model.second(torch.relu(2 * model.first(arguments[0])))
        rest = model(*arguments)
    torch.testing.assert_close(got[0], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got[1], rest[1])
    torch.testing.assert_close(got[2], rest[2])


class Convolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(5, 7, 3, stride=2, padding=1, bias=False)
        self.second = torch.nn.Conv1d(4, 6, 3, dilation=2, bias=False)
        self.third = torch.nn.ConvTranspose3d(4, 3, (3, 2, 1), stride=(2, 3, 1), padding=(1, 0, 0), output_padding=(1, 0, 0), dilation=(2, 1, 1), bias=False)
        self.fourth = torch.nn.Conv2d(5, 10, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), groups=5, bias=False)
        self.grouped = torch.nn.Conv1d(4, 6, 3, groups=2, bias=False)

    def forward(self, x, y, z):
        return torch.relu(self.first(x)), self.second(y), self.third(z), self.fourth(x), self.grouped(y)


@pytest.fixture(scope="module")
def convolved():
    arguments = [torch.randn(2, 5, 9, 11), torch.randn(3, 4, 15), torch.randn(2, 4, 3, 4, 2)]
    with torch.backends.mkldnn.flags(enabled=False):
        return bridge.capture(Convolutions().eval(), arguments), arguments


def test_a_convolution_is_recorded_with_its_numbers(convolved):
    steps = [step for step in convolved[0].programs[0]["steps"] if step["kind"] == "extern" and "convolution" in step["extern"]]
    assert len(steps) == 4 and all(bridge.has_loops(step) for step in steps)
    numbers = sorted((step["extern"]["convolution"] for step in steps), key=lambda entry: len(entry["stride"]))
    assert (numbers[0]["stride"], numbers[0]["padding"], numbers[0]["dilation"]) == ([1], [0], [2])
    assert (numbers[1]["stride"], numbers[1]["padding"], numbers[1]["dilation"]) == ([2, 2], [1, 1], [1, 1])
    assert [entry.get("transposed", False) for entry in numbers] == [False, False, False, True]
    assert [entry.get("groups", 1) for entry in numbers] == [1, 1, 5, 1]  # in two groups of two channels: not recorded
    assert output_padding(numbers[1]) == [0, 0] and output_padding(numbers[3]) == [1, 0, 0]


def test_the_loops_of_a_convolution_are_its_value(convolved):
    """The body, interpreted as any other, against torch's convolution: digests and regions rest on it."""
    captured, _ = convolved
    program = captured.programs[0]
    for step in program["steps"]:
        if step["kind"] != "extern" or "convolution" not in step["extern"]:
            continue
        numbers = step["extern"]["convolution"]
        torch.manual_seed(2)
        values = {numbers[key]["name"]: torch.empty_strided(numbers[key]["size"], numbers[key]["stride"]).normal_()
                  for key in ("x", "w")}
        by_call = loop_ir.evaluate(program, [step["name"]], values, "float64").tensor(numbers["out"]["name"]).clone()
        memory = loop_ir.Memory(program["buffers"], "float64", "cpu")
        for name, value in values.items():
            memory.write(name, value)
        loop_ir.BodyRun(step["bodies"][0], memory, "float64").run()
        torch.testing.assert_close(memory.tensor(numbers["out"]["name"]), by_call, rtol=1e-12, atol=1e-12)
