"""Pools that the compiler leaves to ATen: recorded as loops, made again by the worker, replaced by a candidate."""

import pytest
import torch
import torch.nn.functional as F

from kernelopt import bridge
from kernelopt.bridge.pooling import bind_pool
from kernelopt.judge import loop_ir

# Every pool with its input's number. Windows of more than 25 places whose stride differs, or adaptive ones.
POOLS = {
    "plain": (0, lambda x: F.avg_pool2d(x, 6, 2)),
    "padded": (0, lambda x: F.avg_pool2d(x, (7, 5), (2, 3), (3, 1))),
    "padding not counted": (0, lambda x: F.avg_pool2d(x, 6, 5, 3, count_include_pad=False)),
    "ceil": (0, lambda x: F.avg_pool2d(x, 6, 5, ceil_mode=True)),
    "ceil, padded": (0, lambda x: F.avg_pool2d(x, (6, 7), (5, 4), (2, 3), ceil_mode=True)),
    "ceil, padding not counted": (0, lambda x: F.avg_pool2d(x, (6, 7), (5, 4), (2, 3), ceil_mode=True, count_include_pad=False)),
    "divisor": (0, lambda x: F.avg_pool2d(x, 6, 4, 3, ceil_mode=True, divisor_override=7)),
    "one dim": (1, lambda x: F.avg_pool1d(x, 31, 3, 2)),
    "volume": (2, lambda x: F.avg_pool3d(x, 3, 2, 1)),
    "volume, ceil": (2, lambda x: F.avg_pool3d(x, (3, 4, 3), (2, 3, 1), (1, 2, 0), ceil_mode=True, count_include_pad=False)),
    "volume without images": (3, lambda x: F.avg_pool3d(x, 3, (1, 2, 2), 1)),
    "channels innermost": (4, lambda x: F.avg_pool2d(x, 6, 3, 1)),
    "part of a tensor": (0, lambda x: F.avg_pool2d(x[:, 1:3], 6, 2)),
    "adaptive": (0, lambda x: F.adaptive_avg_pool2d(x, (3, 4))),
    "adaptive, larger": (2, lambda x: F.adaptive_avg_pool3d(x, (12, 5, 3))),
    "adaptive, same and divided": (2, lambda x: F.adaptive_avg_pool3d(x, (9, 5, 11))),
    "adaptive maximum": (0, lambda x: F.adaptive_max_pool2d(x, (3, 4))),
    "adaptive maximum, volume": (2, lambda x: F.adaptive_max_pool3d(x, (5, 4, 3))),
}


class Pools(torch.nn.Module):
    def forward(self, *inputs):
        return tuple(function(inputs[number]) for number, function in POOLS.values())


def arguments():
    torch.manual_seed(0)
    return [torch.randn(2, 4, 19, 21), torch.randn(2, 4, 99), torch.randn(2, 3, 9, 10, 11), torch.randn(3, 9, 10, 11),
            torch.randn(2, 4, 19, 21).to(memory_format=torch.channels_last)]


@pytest.fixture(scope="module")
def captured():
    return bridge.capture(Pools(), arguments(), text_only=True)


def pools(program):
    return [step for step in program["steps"] if step["kind"] == "extern"]


def written(program, number):
    """The pool whose result is output `number` of the program, or a view of it or a copy."""
    target = program["outputs"][number]
    for step in reversed(program["steps"]):
        if target in step["writes"] and step["kind"] != "extern":
            target = step["reads"][0]
    return next(step for step in pools(program) if target in step["writes"])


def test_each_call_and_its_result_are_one_step(captured):
    program = captured.programs[0]
    assert len(pools(program)) == len(POOLS)
    for step in pools(program):
        assert bridge.has_loops(step) and step["extern"]["op"] == step["extern"]["pool"]["op"]
        assert step["reads"] == [step["extern"]["pool"]["x"]["name"]] and step["writes"] == [step["extern"]["pool"]["out"]["name"]]
    assert not any(entry["layout"] == "none" for entry in program["buffers"].values())


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", POOLS)
def test_the_loops_are_the_value_of_the_call(captured, name, special):
    program = captured.programs[0]
    step = written(program, list(POOLS).index(name))
    numbers = step["extern"]["pool"]
    torch.manual_seed(2)
    entry = program["buffers"][numbers["x"]["name"]]
    x = torch.empty_strided(entry["size"], entry["stride"]).normal_()
    if special:
        flat = x.as_strided((x.numel(),), (1,))
        flat[::97], flat[::131] = float("-inf"), float("nan")
    memory = loop_ir.evaluate(program, [step["name"]], {numbers["x"]["name"]: x}, "float64")
    got = memory.tensor(numbers["out"]["name"])
    wide = x.double()
    out = torch.full_like(torch.empty_strided(numbers["out"]["size"], numbers["out"]["stride"]), 7, dtype=torch.float64)
    view = wide.as_strided(numbers["x"]["size"], numbers["x"]["stride"], numbers["x"]["offset"])
    bind_pool(numbers, view, out)()
    torch.testing.assert_close(got, out, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_the_program_is_eager(captured):
    """The arguments too are what the model asked for: the whole program against eager."""
    program, inputs = captured.programs[0], arguments()
    memory = loop_ir.evaluate(program, [step["name"] for step in program["steps"] if step["kind"] != "nop"],
                              dict(zip(program["inputs"], [inputs[int(name[3:-2])] for name in program["inputs"]])), "float64")
    for (name, (number, function)), output in zip(POOLS.items(), program["outputs"]):
        expected = function(inputs[number].double())
        torch.testing.assert_close(memory.tensor(output).reshape(expected.shape), expected, rtol=1e-12, atol=1e-12, msg=lambda text: f"{name}: {text}")


def test_wanted_indices_leave_the_call_alone():
    program = bridge.capture(lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), arguments()[:1], text_only=True).programs[0]
    assert pools(program) and not any(bridge.has_loops(step) for step in pools(program))


class Between(torch.nn.Module):
    def forward(self, x):
        return F.avg_pool3d(torch.relu(x) + 1, 3, 2, 1) * 2


@pytest.fixture(scope="module")
def between():
    return bridge.capture(Between(), arguments()[2:3])


def test_the_baseline_makes_the_call_between_the_compilers_kernels(between):
    from kernelopt.worker import launching
    from kernelopt.worker.group_memory import Group, GroupMemory
    from kernelopt import exchange

    program = between.programs[0]
    assert [step["kind"] for step in program["steps"]] == ["generated", "extern", "generated"]
    assert program["buffers"][program["steps"][0]["writes"][0]]["removable"]
    steps = [step["name"] for step in program["steps"]]
    (described,) = bridge.describe_groups(between, [steps])
    assert described["refused"] is None
    assert [kernel.get("call") for kernel in described["baseline"]["kernels"]] == [None, "pool", None]
    x = arguments()[2]
    leaf = exchange.write_tensor(x)
    group = Group(program, steps, described["names"])
    memory = GroupMemory(group, [described["baseline"]], {group.reads[0]: leaf}, 4096)
    memory.poison(0)
    launching.bind(described["baseline"], memory, 0)()
    (out,) = group.outputs
    torch.testing.assert_close(memory.tensors[out], Between()(x))
    exchange.remove_files([leaf])


@pytest.mark.parametrize("members", [1, 3])
def test_a_candidate_replaces_the_call(between, members):
    """Alone, and with the steps around it, whose results then never reach memory."""
    program = between.programs[0]
    steps = [step["name"] for step in program["steps"]]
    chosen = steps if members == 3 else steps[1:2]
    (described,) = bridge.describe_groups(between, [chosen])
    view = bridge.GroupView(program, chosen)
    (x,), (out,) = view.reads, view.writes
    at = {name: f"b{number}" for number, name in enumerate(view.names)}
    # A number of its own: what comes out shows who computed it.
    source = 'extern "C" void kernel(const float* x, float* out) { for (int i = 0; i < 900; ++i) out[i] = x[0] * 0 + i; }'
    candidate = {"format": "kernelopt.candidate", "version": 1, "language": "cpp", "group": described["digest"], "digest": "x", "scratch": [],
                 "kernels": [{"name": "kernel0", "source": source, "params": [{"name": at[x], "dtype": "float32", "role": "in"},
                                                                             {"name": at[out], "dtype": "float32", "role": "out"}]}],
                 "launches": [{"kernel": "kernel0", "args": [at[x], at[out]]}], "threads": 1, "plan": {}, "formats": []}
    kernels = {"format": "kernelopt.kernels", "version": 1, "torch": program["torch"], "fingerprint": between.fingerprints[0],
               "groups": [{"digest": described["digest"], "steps": described["step_digests"], "candidate": candidate}]}
    call, replaced, result = bridge.stitch(Between(), arguments()[2:3], kernel_set=kernels)
    assert [entry["steps"] for entry in replaced] == [chosen] and not result.problems
    text = result.programs[0]["wrapper"]
    assert "avg_pool3d" not in text.split("def call")[1]
    with torch.no_grad():
        got = call(arguments()[2])
    assert torch.equal(got.flatten(), torch.arange(900.0) * (1 if members == 3 else 2))
