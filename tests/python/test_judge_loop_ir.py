"""The interpreter of loop bodies against Inductor: recorded bodies, its own C++ kernels, and eager (DESIGN section 6)."""

import math

import pytest
import torch
import torch.nn.functional as F

from kernelopt.judge import compare, inputs, loop_ir

pytest.importorskip("kernelopt.bridge.capture")

FEATURES = ["softmax", "layer_norm", "max_pool", "avg", "cross_entropy", "embedding", "argmax", "argmin", "var", "flip_cat_a",
            "flip_cat_b", "where", "half_a", "half_b", "scatter", "logsumexp", "group_norm", "gather", "prod", "any"]


class Features(torch.nn.Module):
    """One graph with a step or more for every kind of body; one compile serves all checks."""

    def forward(self, x, image, labels, table, ids, ties, half, wide):
        softmax = torch.softmax(x, -1)
        layer = F.layer_norm(x, x.shape[-1:], wide[0, : x.shape[-1]], None)
        pool = F.max_pool2d(image, 3, 2, 1)
        avg = F.avg_pool2d(image, 3, 2, 1)
        loss = F.cross_entropy(x, labels, reduction="none", ignore_index=-100)
        embedded = F.embedding(ids, table) * 2
        flip = torch.cat([x.flip(-1), torch.roll(x, 3, 0)], 1)
        halves = F.layer_norm(half, half.shape[-1:]) + torch.tanh(half)
        scattered = torch.zeros_like(table).index_add(0, ids.reshape(-1), torch.tanh(embedded).reshape(-1, table.shape[1]))
        return (
            softmax, layer, pool, avg, loss, embedded, ties.argmax(1), ties.argmin(0), wide.var(1), flip, flip * 2, torch.where(x > 0, x, -x * 0.5), halves, halves.float().sum(1), scattered,
            torch.logsumexp(wide, 1), F.group_norm(image, 2), x.gather(1, labels.clamp(min=0)[:, None]),
            (1 + x * 0.01).prod(1), (x > 2.5).any(0),
        )


def feature_inputs():
    generator = torch.Generator().manual_seed(3)

    def randn(*size):
        return torch.randn(*size, generator=generator)

    labels = torch.randint(0, 24, (40,), generator=generator)
    labels[::5] = -100
    ties = torch.randint(0, 4, (30, 50), generator=generator).float()
    ties[3, 7] = ties[3, 9] = float("nan")
    x = randn(40, 24)
    x[2] = -float("inf")
    x[5, 4] = float("inf")
    return [x, randn(2, 6, 19, 17), labels, randn(60, 16), torch.randint(0, 60, (5, 7), generator=generator), ties,
            randn(12, 40).bfloat16(), randn(9, 3000) * 3 + 100]


def by_size(program, names_too=False):
    """The inputs under the program's names: Dynamo orders them by first use, and no two have one size."""
    labels = ["x", "image", "labels", "table", "ids", "ties", "half", "wide"]
    table = {tuple(tensor.shape): (label, tensor) for label, tensor in zip(labels, feature_inputs())}
    found = {name: table[tuple(program["buffers"][name]["size"])] for name in program["inputs"]}
    return {name: pair[0] if names_too else pair[1] for name, pair in found.items()}


@pytest.fixture(scope="module")
def captured():
    from kernelopt.bridge.capture import capture

    torch._dynamo.reset()
    values = feature_inputs()
    result = capture(Features(), values)
    assert len(result.programs) == 1 and not result.refused
    with torch.no_grad():
        compiled = result.callable(*feature_inputs())
        eager = Features()(*feature_inputs())
    return result.programs[0], compiled, eager


@pytest.fixture(scope="module")
def evaluated(captured):
    program, _, _ = captured
    group = [step["name"] for step in program["steps"] if step["kind"] == "generated"]
    assert all(step["kind"] in ("generated", "nop") for step in program["steps"]), "an extern step: evaluate in parts"
    given = by_size(program)
    return {mode: loop_ir.evaluate(program, group, given, mode) for mode in ("float32", "float64")}


@pytest.mark.parametrize("number", range(len(FEATURES)), ids=FEATURES)
def test_bodies_agree_with_the_compilers_kernels_and_eager(captured, evaluated, number):
    program, compiled, eager = captured
    name = program["outputs"][number]
    plain, exact = evaluated["float32"].tensor(name), evaluated["float64"].tensor(name)
    half = compiled[number].dtype in (torch.bfloat16, torch.float16)
    unit = 1e-2 if half else 1e-5
    tolerance = [{"rtol": unit, "atol": unit, "rms_scaled": True, "error_factor": 4}]
    assert plain.numel() == compiled[number].numel()
    for other in (compiled[number], eager[number]):
        other = other.reshape(plain.shape)
        leaf = compare.compare_tensor(name, other, plain, exact if exact.is_floating_point() else None, tolerance)
        assert leaf["nonfinite_equal"] and leaf["violations"] == [0], leaf
    if exact.is_floating_point():
        assert exact.dtype == torch.float64
        leaf = compare.compare_tensor(name, plain, plain, exact, tolerance)
        assert leaf["d_ref"] < (1e-2 if FEATURES[number].startswith("half") else 1e-5)
    else:
        assert torch.equal(exact, compiled[number])


def test_small_blocks_give_the_same(captured, evaluated):
    """Blocks that cut every var, reductions too, change nothing but rounding."""
    program, _, _ = captured
    group = [step["name"] for step in program["steps"] if step["kind"] == "generated"]
    given = by_size(program)
    again = loop_ir.evaluate(program, group, given, "float64", block_elements=37)
    for name in program["outputs"]:
        a, b = again.tensor(name), evaluated["float64"].tensor(name)
        if a.is_floating_point():
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)
        else:
            assert torch.equal(a, b)


def test_drawn_inputs_are_in_range_and_repeatable(captured):
    program, _, _ = captured
    group = [step["name"] for step in program["steps"] if step["kind"] == "generated"]
    by_name = by_size(program, names_too=True)
    for case in inputs.CASES:
        drawn = inputs.group_inputs(program, group, 1, case)
        again = inputs.group_inputs(program, group, 1, case)
        other = inputs.group_inputs(program, group, 2, case)
        assert drawn.keys() == again.keys() and set(drawn) <= set(program["buffers"])
        for name, tensor in drawn.items():
            meta = program["buffers"][name]
            assert list(tensor.shape) == meta["size"] and list(tensor.stride()) == meta["stride"]
            assert torch.equal(tensor.nan_to_num(), again[name].nan_to_num())
        assert any(not torch.equal(drawn[name], other[name]) for name in drawn)
        named = {by_name.get(name): tensor for name, tensor in drawn.items()}
        low = -60 if case == "special" else 0
        assert named["ids"].min() >= low and named["ids"].max() < 60 and named["ids"].unique().numel() > 5
        labels = named["labels"]
        assert ((labels >= (-24 if case == "special" else 0)) & (labels < 24) | (labels == -100)).all()
        assert (labels == -100).any() or case == "special"


def affine_program(ops, variables, buffers):
    table = {}
    for name, (dtype, size) in buffers.items():
        stride = [math.prod(size[number + 1 :]) for number in range(len(size))]
        table[name] = {"kind": "computed", "dtype": dtype, "size": size, "stride": stride, "offset": 0, "base": None,
                       "mutates": None, "value": None, "removable": False}
    body = {"name": "op0", "vars": variables, "ops": ops}
    step = {"name": "op0", "kind": "generated", "refused": None, "bodies": [body], "reads": ["x"], "writes": ["y"]}
    return {"buffers": table, "steps": [step], "outputs": ["y"]}


def reduction_program(kind, rows, columns, dtype, which=None):
    ops = [{"id": 0, "op": "load", "buffer": "x", "index": {"add": [{"mul": [columns, "p0"]}, "p1"]}},
           {"id": 1, "op": "reduction", "type": kind, "dtype": dtype, "src_dtype": "float32", "args": [0]}]
    if which is not None:
        ops.append({"id": 2, "op": "get", "args": [1], "which": which})
    ops.append({"id": -1, "op": "store_reduction", "buffer": "y", "index": "p0", "args": [ops[-1]["id"]]})
    variables = [{"name": "p0", "extent": rows, "kind": "iter"}, {"name": "p1", "extent": columns, "kind": "reduce"}]
    return affine_program(ops, variables, {"x": ("float32", [rows, columns]), "y": (dtype, [rows])})


REDUCTIONS = {
    ("sum", None): lambda x: x.sum(1),
    ("prod", None): lambda x: x.prod(1),
    ("max", None): lambda x: x.amax(1),
    ("min", None): lambda x: x.amin(1),
    ("argmax", None): lambda x: x.argmax(1),
    ("argmin", None): lambda x: x.argmin(1),
    ("welford_reduce", 0): lambda x: x.mean(1),
    ("welford_reduce", 1): lambda x: x.var(1, correction=0) * x.shape[1],
    ("welford_reduce", 2): lambda x: torch.full((x.shape[0],), float(x.shape[1])),
    ("online_softmax_reduce", 0): lambda x: x.amax(1),
    ("online_softmax_reduce", 1): lambda x: (x - x.amax(1, keepdim=True)).exp().sum(1),
}


@pytest.mark.parametrize("block", [1 << 20, 100])
@pytest.mark.parametrize("kind, which", REDUCTIONS, ids=lambda value: str(value))
def test_reductions_with_nonfinite_rows_and_ties(kind, which, block):
    x = (torch.randn(6, 257, generator=torch.Generator().manual_seed(0)) * 2).round() / 2 + 1
    x[1, 200] = x[1, 30] = float("nan")
    x[2] = -float("inf")
    x[3, :150] = -float("inf")
    x[4, 250] = float("inf")
    if kind == "prod":
        x = torch.where(x == 0, 1.0, x)
        x[2:5] = 1.5
    program = reduction_program(kind, *x.shape, "int64" if kind.startswith("arg") else "float32", which)
    got = loop_ir.evaluate(program, ["op0"], {"x": x}, "float64", block_elements=block).tensor("y")
    want = REDUCTIONS[kind, which](x.double() if not kind.startswith("arg") else x)
    if (kind, which) == ("welford_reduce", 0):
        want = torch.where(x.isfinite().all(1), want, math.nan)
    torch.testing.assert_close(got, want.to(got.dtype), rtol=1e-9, atol=1e-9, equal_nan=True)


def test_reads_outside_a_buffer_are_errors():
    program = reduction_program("sum", 4, 8, "float32")
    load = program["steps"][0]["bodies"][0]["ops"][0]
    load["index"] = {"add": [load["index"], 1]}
    with pytest.raises(loop_ir.LoopError, match="outside"):
        loop_ir.evaluate(program, ["op0"], {"x": torch.zeros(4, 8)}, "float32")


def indirect_program(check=True, wrap=True, shift=0):
    ops = [{"id": 0, "op": "load", "buffer": "i", "index": "p0"},
           {"id": 1, "op": "constant", "value": shift, "dtype": "int64"},
           {"id": 2, "op": "add", "args": [0, 1]},
           {"id": -1, "op": "indirect", "args": [2], "size": 10, "check": check, "wrap_neg": wrap, "symbol": "i0"},
           {"id": 3, "op": "load", "buffer": "x", "index": "i0"},
           {"id": -1, "op": "store", "buffer": "y", "index": "p0", "args": [3], "mode": None}]
    return affine_program(ops, [{"name": "p0", "extent": 300, "kind": "iter"}],
                          {"x": ("float32", [10]), "i": ("int64", [300]), "y": ("float32", [300])})


def test_indirect_loads_wrap_and_are_checked():
    x, index = torch.arange(10.0), torch.tensor([3, -1, 9, -10]).repeat(75)
    result = loop_ir.evaluate(indirect_program(), ["op0"], {"x": x, "i": index}, "float32").tensor("y")
    assert torch.equal(result, x[index])
    for wrap, wrong in ((True, -11), (True, 10), (False, -1)):
        bad = index.abs().clamp(max=9).index_fill(0, torch.tensor([5]), wrong)
        with pytest.raises(loop_ir.LoopError, match=r"index is (-1|10), outside"):
            loop_ir.evaluate(indirect_program(wrap=wrap), ["op0"], {"x": x, "i": bad}, "float32")


def test_index_inputs_follow_the_arithmetic_before_the_lookup():
    drawn = inputs.group_inputs(indirect_program(wrap=False, shift=-100), ["op0"], 0)["i"]
    assert drawn.min() >= 100 and drawn.max() <= 109 and drawn.unique().numel() == 10


def test_a_masked_block_may_point_outside_where_the_mask_is_false():
    ops = [{"id": 0, "op": "index_expr", "index": {"add": ["p0", -2]}, "dtype": "int64"},
           {"id": 1, "op": "constant", "value": 0, "dtype": "int64"},
           {"id": 2, "op": "ge", "args": [0, 1]},
           {"id": 4, "op": "masked", "args": [2], "value": 7.0,
            "block": {"ops": [{"id": 3, "op": "load", "buffer": "x", "index": {"add": ["p0", -2]}}], "results": [3]}},
           {"id": -1, "op": "store", "buffer": "y", "index": "p0", "args": [4], "mode": None}]
    program = affine_program(ops, [{"name": "p0", "extent": 6, "kind": "iter"}], {"x": ("float32", [4]), "y": ("float32", [6])})
    x = torch.arange(4.0)
    got = loop_ir.evaluate(program, ["op0"], {"x": x}, "float32").tensor("y")
    assert got.tolist() == [7.0, 7.0, 0.0, 1.0, 2.0, 3.0]


def test_scan_with_a_combine_block_of_two_values():
    """A running maximum with its first position, as cummax has it."""
    block = {"params": [10, 11, 12, 13], "results": [15, 16],
             "ops": [{"id": 14, "op": "ge", "args": [10, 12]},
                     {"id": 15, "op": "where", "args": [14, 10, 12]}, {"id": 16, "op": "where", "args": [14, 11, 13]}]}
    ops = [{"id": 0, "op": "load", "buffer": "x", "index": {"add": [{"mul": [101, "p0"]}, "p1"]}},
           {"id": 1, "op": "index_expr", "index": "p1", "dtype": "int64"},
           {"id": 2, "op": "scan", "dtypes": ["float32", "int64"], "args": [0, 1], "block": block},
           {"id": 3, "op": "get", "args": [2], "which": 1},
           {"id": -1, "op": "store", "buffer": "y", "index": {"add": [{"mul": [101, "p0"]}, "p1"]}, "args": [3], "mode": None}]
    variables = [{"name": "p0", "extent": 5, "kind": "iter"}, {"name": "p1", "extent": 101, "kind": "reduce"}]
    program = affine_program(ops, variables, {"x": ("float32", [5, 101]), "y": ("int64", [5, 101])})
    x = torch.randn(5, 101, generator=torch.Generator().manual_seed(1))
    got = loop_ir.evaluate(program, ["op0"], {"x": x}, "float32", block_elements=150).tensor("y")
    assert torch.equal(x.gather(1, got), x.cummax(1).values)


def test_welford_combine_ignores_lanes_without_weight():
    ops = [{"id": number, "op": "load", "buffer": name, "index": "p0"} for number, name in enumerate(["m", "s", "w"])]
    ops += [{"id": 3, "op": "reduction", "type": "welford_combine", "dtype": "float32", "src_dtype": "float32", "args": [0, 1, 2]},
            {"id": 4, "op": "get", "args": [3], "which": 1},
            {"id": -1, "op": "store_reduction", "buffer": "y", "index": 0, "args": [4]}]
    program = affine_program(ops, [{"name": "p0", "extent": 4, "kind": "reduce"}],
                             {"m": ("float32", [4]), "s": ("float32", [4]), "w": ("float32", [4]), "y": ("float32", [1])})
    x = torch.randn(30, generator=torch.Generator().manual_seed(2))
    parts = [x[:5], x[5:17], x[17:]]
    given = {"m": torch.tensor([part.mean() for part in parts] + [0.0]),
             "s": torch.tensor([((part - part.mean()) ** 2).sum() for part in parts] + [0.0]),
             "w": torch.tensor([5.0, 12.0, 13.0, 0.0])}
    for block in (100, 1):
        got = loop_ir.evaluate(program, ["op0"], given, "float64", block_elements=block).tensor("y")
        torch.testing.assert_close(got[0].float(), ((x - x.mean()) ** 2).sum(), rtol=1e-5, atol=1e-5)


def test_half_types_round_at_stores_and_casts_as_the_formats_say():
    def program(use_compute_types):
        ops = [{"id": 0, "op": "load", "buffer": "x", "index": "p0"},
               {"id": 1, "op": "mul", "args": [0, 0]},
               {"id": 2, "op": "to_dtype", "args": [1], "dtype": "bfloat16", "src_dtype": "float32",
                "use_compute_types": use_compute_types},
               {"id": 3, "op": "sub", "args": [2, 1]},
               {"id": -1, "op": "store", "buffer": "y", "index": "p0", "args": [3], "mode": None}]
        return affine_program(ops, [{"name": "p0", "extent": 64, "kind": "iter"}], {"x": ("bfloat16", [64]), "y": ("bfloat16", [64])})

    x = torch.randn(64, generator=torch.Generator().manual_seed(5)).bfloat16()
    kept = loop_ir.evaluate(program(True), ["op0"], {"x": x}, "float32").tensor("y")
    rounded = loop_ir.evaluate(program(False), ["op0"], {"x": x}, "float32").tensor("y")
    exact = loop_ir.evaluate(program(False), ["op0"], {"x": x}, "float64").tensor("y")
    square = x.float() * x.float()
    assert kept.dtype == torch.bfloat16 and not kept.any() and not exact.any()
    assert torch.equal(rounded, (square.bfloat16().float() - square).bfloat16()) and rounded.any()


def test_atomic_add_sums_into_what_is_there():
    program = indirect_program()
    ops = program["steps"][0]["bodies"][0]["ops"]
    ops[4] = {"id": 3, "op": "load", "buffer": "x", "index": "p0"}
    ops[5] = {"id": -1, "op": "store", "buffer": "y", "index": "i0", "args": [3], "mode": "atomic_add"}
    program["buffers"]["x"].update(size=[300], stride=[1])
    program["buffers"]["y"].update(size=[10], stride=[1], kind="input")
    x, start = torch.randn(300, generator=torch.Generator().manual_seed(6)).double(), torch.ones(10)
    index = torch.randint(0, 10, (300,), generator=torch.Generator().manual_seed(7))
    got = loop_ir.evaluate(program, ["op0"], {"x": x.float(), "i": index, "y": start}, "float64", block_elements=64).tensor("y")
    torch.testing.assert_close(got, start.double().index_add(0, index, x.float().double()))
    assert "y" in inputs.input_names(program, ["op0"])


def test_pieces_of_one_storage_do_not_overwrite_each_other():
    from kernelopt.judge.memory import Memory

    whole = {"dtype": "float32", "size": [3, 5], "stride": [5, 1], "offset": 0, "base": None, "mutates": None, "value": None}
    buffers = {"whole": whole,
               "left": {**whole, "size": [3, 2], "base": "whole"},
               "right": {**whole, "size": [3, 3], "base": "whole", "offset": 2},
               "wide": {**whole, "size": [3, 4], "stride": [1, 0]}}
    memory = Memory(buffers, "float32")
    memory.write("right", torch.full((3, 3), 2.0))
    memory.write("left", torch.full((3, 2), 1.0))
    assert memory.tensor("whole").tolist() == [[1.0, 1.0, 2.0, 2.0, 2.0]] * 3
    memory.write("wide", torch.arange(3.0)[:, None].expand(3, 4))
    assert memory.tensor("wide").stride() == (1, 0) and memory.tensor("wide")[:, 3].tolist() == [0.0, 1.0, 2.0]
