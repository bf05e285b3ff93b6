"""Stitching on real compiles: a hand-written kernel, the compiler's own kernels put back, and the one-file runtime."""

import copy
import types
import warnings

import pytest
import torch

from kernelopt.bridge import capture, describe_groups, make_model_new, runtime_source, stitch
from kernelopt.bridge.adapters import torch_minor

ROWS, COLUMNS = 16, 24


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(COLUMNS, COLUMNS)

    def forward(self, x):
        return torch.tanh(self.fc(torch.softmax(x * 2 + 1, -1))) * 3


@pytest.fixture(scope="module")
def setting():
    """Model, inputs, eager result, capture, and the descriptions of all generated steps."""
    torch.manual_seed(0)
    model, inputs = Model(), [torch.randn(ROWS, COLUMNS)]
    with torch.no_grad():
        eager = model(*inputs)
    captured = capture(model, inputs)
    steps = [[step["name"]] for step in captured.programs[0]["steps"] if step["kind"] == "generated"]
    return model, inputs, eager, captured, describe_groups(captured, steps)


def kernel_set(captured, entries):
    return {"format": "kernelopt.kernels", "version": 1, "torch": torch_minor(), "fingerprint": captured.fingerprints[0],
            "groups": [{"digest": group["digest"], "steps": group["step_digests"], "candidate": candidate}
                       for group, candidate in entries]}


def softmax_candidate(group, sign=""):
    """Softmax in two kernels with scratch for the row sums; reads and writes what the group does, internals left out."""
    first = f"""#include <cmath>
extern "C" void kernel(const float* x, float* sums) {{
  for (long r = 0; r < {ROWS}; ++r)
    for (long c = 0; c < {COLUMNS}; ++c) sums[r] += std::exp(x[r * {COLUMNS} + c] * 2 + 1);
}}"""
    second = f"""#include <cmath>
extern "C" void kernel(const float* x, const float* sums, float* y) {{
  for (long r = 0; r < {ROWS}; ++r)
    for (long c = 0; c < {COLUMNS}; ++c) y[r * {COLUMNS} + c] = {sign}std::exp(x[r * {COLUMNS} + c] * 2 + 1) / sums[r];
}}"""
    (x,), (y,) = group["reads"], group["writes"]

    def param(name, role):
        return {"name": name, "dtype": "float32", "role": role}

    return {"format": "kernelopt.candidate", "version": 1, "language": "cpp", "group": group["digest"], "digest": "hand",
            "kernels": [{"name": "sums", "source": first, "params": [param("x", "in"), param("s", "scratch")]},
                        {"name": "scale", "source": second, "params": [param("x", "in"), param("s", "in"), param("y", "out")]}],
            "launches": [{"kernel": "sums", "args": [x, "s0"]}, {"kernel": "scale", "args": [x, "s0", y]}],
            "scratch": [{"name": "s0", "dtype": "float32", "elements": ROWS, "zeroed": True}], "threads": 1, "plan": {}, "formats": []}


def test_descriptions_hold_the_compilers_kernels(setting):
    _, _, _, captured, groups = setting
    assert len(groups) == 2 and all(group["refused"] is None for group in groups)
    softmax = groups[0]
    assert softmax["external"] == [name for name in (f"b{n}" for n in range(9)) if name in softmax["reads"] + softmax["writes"]]
    candidate = softmax["baseline"]
    assert candidate["group"] == softmax["digest"] and len(candidate["launches"]) == len(candidate["kernels"]) == 1
    kernel = candidate["kernels"][0]
    assert [param["name"] for param in kernel["params"]] == candidate["launches"][0]["args"]
    assert 'extern "C"' in kernel["source"] and "kernel(" in kernel["source"]
    roles = {param["name"]: param["role"] for param in kernel["params"]}
    assert all(roles[name] == "in" for name in softmax["reads"]) and all(roles[name] == "out" for name in softmax["writes"])
    repeated = describe_groups(captured, [[captured.programs[0]["steps"][0]["name"]], ["nope"]])
    assert repeated[0]["digest"] == softmax["digest"] and "nope" in repeated[1]["refused"]


def test_hand_written_kernel_replaces_the_group(setting):
    model, inputs, eager, captured, groups = setting
    candidate = softmax_candidate(groups[0])
    call, replaced, result = stitch(model, inputs, kernel_set=kernel_set(captured, [(groups[0], candidate)]))
    assert [entry["digest"] for entry in replaced] == [groups[0]["digest"]] and result.problems == []
    text = result.programs[0]["wrapper"]
    assert text.count("cpp_kernelopt_") >= 4 and text.count(".zero_()") == 1
    internals = set(groups[0]["names"]) - {groups[0]["names"][int(name[1:])] for name in groups[0]["external"]}
    assert internals and not any(f"{name} = empty_strided" in text for name in internals)
    with torch.no_grad():
        first, second = call(*inputs), call(*inputs)
        torch.testing.assert_close(first, eager, rtol=1e-5, atol=1e-6)
        assert torch.equal(first, second)  # the scratch is zeroed anew
        # Earlier compiles of the same model stay what they were, and ours does not leak into new ones.
        assert "kernelopt" not in captured.programs[0]["wrapper"]
        torch.testing.assert_close(captured.callable(*inputs), eager, rtol=1e-5, atol=1e-6)
        plain = torch.compile(model)(*inputs)
    torch.testing.assert_close(plain, eager, rtol=1e-5, atol=1e-6)


def test_large_fresh_results_get_huge_pages(setting, monkeypatch):
    model, inputs, eager, captured, groups = setting
    candidate = softmax_candidate(groups[0])
    # A type that is not the parameter's own but as wide, as the engine's printer has for bool.
    for kernel in candidate["kernels"]:
        kernel["source"] = kernel["source"].replace("(const float* x,", "(const unsigned* bits,").replace(
            "{\n  for", "{\n  const float* x = (const float*)bits;\n  for", 1)
    given = kernel_set(captured, [(groups[0], candidate)])
    for limit, expected in ((ROWS * COLUMNS * 4, 1), (ROWS * COLUMNS * 4 + 1, 0)):
        monkeypatch.setattr("kernelopt.bridge.printers._FRESH_BYTES", limit)
        call, replaced, result = stitch(model, inputs, kernel_set=given)
        text = result.programs[0]["wrapper"]
        # The result alone: neither the input nor the scratch buffer.
        assert text.count("  kernelopt_huge_pages(") == expected
        assert text.count(f"kernelopt_huge_pages(p2, {ROWS * COLUMNS * 4}ull)") == expected
        with torch.no_grad():
            torch.testing.assert_close(call(*inputs), eager, rtol=1e-5, atol=1e-6)
        assert len(replaced) == 1


def test_the_kernel_that_was_given_is_the_one_that_runs(setting):
    model, inputs, eager, captured, groups = setting
    wrong = softmax_candidate(groups[0], sign="-")
    call, replaced, _ = stitch(model, inputs, kernel_set=kernel_set(captured, [(groups[0], wrong)]))
    with torch.no_grad():
        assert len(replaced) == 1 and (call(*inputs) - eager).abs().max() > 1e-2


def test_the_compilers_own_kernels_put_back_give_its_own_bits(setting):
    model, inputs, _, captured, groups = setting
    entries = [(group, group["baseline"]) for group in groups]
    call, replaced, result = stitch(model, inputs, kernel_set=kernel_set(captured, entries))
    assert len(replaced) == 2 and result.problems == []
    with torch.no_grad():
        assert torch.equal(call(*inputs), captured.callable(*inputs))


def test_a_candidate_that_does_not_fit_leaves_the_compilers_step(setting):
    model, inputs, eager, captured, groups = setting
    broken = softmax_candidate(groups[0])
    broken["launches"].pop()
    call, replaced, result = stitch(model, inputs, kernel_set=kernel_set(captured, [(groups[0], broken)]))
    assert replaced == [] and "does not write" in result.problems[0]
    with torch.no_grad():
        torch.testing.assert_close(call(*inputs), eager, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def runtime():
    """The one-file runtime as a module of its own; it may not import this package."""
    source = runtime_source()
    assert "kernelopt.bridge" not in source.replace("kernelopt.bridge.kernels", "")
    module = types.ModuleType("kernelopt_runtime_under_test")
    exec(compile(source, "runtime.py", "exec"), module.__dict__)
    return module


def test_one_file_runtime(setting, runtime, monkeypatch):
    model, inputs, eager, captured, groups = setting
    new_class = runtime.kernelopt_model(Model, kernel_set(captured, [(groups[0], softmax_candidate(groups[0]))]))
    new = new_class()
    new.load_state_dict(model.state_dict())
    assert isinstance(new, Model) and new.kernelopt_status["state"] == "not run yet"
    with torch.no_grad():
        torch.testing.assert_close(new(*inputs), eager, rtol=1e-5, atol=1e-6)
        assert new.kernelopt_status["state"] == "optimized" and len(new.kernelopt_status["replaced"]) == 1
        twin = copy.deepcopy(new)
        with torch.no_grad():
            twin.fc.weight.zero_()
            twin.fc.bias.zero_()
        assert torch.equal(twin(*inputs), torch.zeros_like(eager))
        torch.testing.assert_close(new(*inputs), eager, rtol=1e-5, atol=1e-6)

        with pytest.warns(RuntimeWarning, match="plain torch.compile"):
            short = new(inputs[0][:5])
        torch.testing.assert_close(short, model(inputs[0][:5]), rtol=1e-5, atol=1e-6)
        assert new.kernelopt_status["state"] == "torch.compile" and new.kernelopt_status["reason"]
        new(*inputs)
        assert new.kernelopt_status["state"] == "optimized"

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning an instance
        new(*inputs).sum().backward()
    assert "autograd" in new.kernelopt_status["reason"] and new.fc.weight.grad is not None
    monkeypatch.setenv("KERNELOPT_STRICT", "1")
    with pytest.raises(runtime.KernelOptMismatch, match="autograd"):
        new(*inputs)


def test_another_torch_or_machine_runs_plain_torch_compile(setting, monkeypatch):
    model, inputs, eager, captured, groups = setting
    kernels = kernel_set(captured, [(groups[0], softmax_candidate(groups[0]))])
    monkeypatch.setenv("KERNELOPT_STRICT", "1")
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="verified with torch 2.99"):
            make_model_new(Model, {**kernels, "torch": "2.99"})()(*inputs)
        with pytest.raises(RuntimeError, match="threads was 640"):
            make_model_new(Model, {**kernels, "fingerprint": {**kernels["fingerprint"], "threads": 640}})()(*inputs)
    with pytest.raises(ValueError, match="version 1"):
        make_model_new(Model, {**kernels, "version": 2})


class Stateful(torch.nn.Module):
    """Mutates its input, updates running statistics and breaks the graph."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x, state):
        state.add_(x.sum())
        y = self.norm(x) * 2
        torch._dynamo.graph_break()
        return torch.relu(y) + state


def test_mutation_running_statistics_and_graph_breaks(runtime):
    # A second copy of the hooks in the process (an optimized.py) must not see, or print, anything twice.
    runtime.install_hooks()
    torch.manual_seed(0)
    model, inputs = Stateful(), [torch.randn(8, 6), torch.randn(6)]
    reference = copy.deepcopy(model)
    captured = capture(model, inputs)
    entries = []
    for program in captured.programs:
        steps = [[step["name"]] for step in program["steps"] if step["kind"] == "generated"]
        entries += [(group, group["baseline"]) for group in describe_groups(captured, steps, program["graph"])]
    assert len(captured.programs) == 2 and all(candidate for _, candidate in entries)
    call, replaced, result = stitch(model, inputs, kernel_set=kernel_set(captured, entries))
    assert {entry["graph"] for entry in replaced} == {0, 1} and len(replaced) == len(entries) and result.problems == []
    for _ in range(2):
        mine, theirs = copy.deepcopy(inputs), copy.deepcopy(inputs)
        with torch.no_grad():
            torch.testing.assert_close(call(*mine), reference(*theirs))
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(dict(model.state_dict()), dict(reference.state_dict()))
