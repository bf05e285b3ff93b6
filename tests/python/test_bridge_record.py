"""Recorder: index trees, single ops under the handler, and whole programs (no kernels are built)."""

import json

import pytest
import sympy
import torch
from torch._inductor import virtualized
from torch._inductor.utils import sympy_index_symbol
from torch._inductor.virtualized import OpsValue
from torch.utils._sympy.functions import FloorDiv, Identity, ModularIndexing, Where

from kernelopt.bridge import UnsupportedTorch, adapter_for, capture
from kernelopt.bridge.record import BodyRecorder, Refusal, body_ops, index_tree, json_number

X, Y = sympy_index_symbol("p0"), sympy_index_symbol("p1")


def evaluate(tree, values):
    """The meaning of an index tree, as docs/formats.md gives it."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return values[tree]
    (key, args), = tree.items()
    args = [evaluate(arg, values) for arg in args]
    if key == "add":
        return sum(args)
    if key == "mul":
        product = 1
        for arg in args:
            product *= arg
        return product
    return {"min": min, "max": max, "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b}[key](*args)


@pytest.mark.parametrize("expression, meaning", [
    (64 * X + Y, lambda x, y: 64 * x + y),
    (ModularIndexing(X + 3 * Y, 4, 7), lambda x, y: (x + 3 * y) // 4 % 7),
    (ModularIndexing(X, 1, 5) - 2, lambda x, y: x % 5 - 2),
    (FloorDiv(X + Y, 3) * X**2, lambda x, y: (x + y) // 3 * x * x),
    (Identity(X) + sympy.Abs(Y - 4), lambda x, y: x + abs(y - 4)),
    (sympy.Integer(7), lambda x, y: 7),
])
def test_index_tree_keeps_the_value(expression, meaning):
    tree = index_tree(expression, {"p0", "p1"})
    for x in range(11):
        for y in range(9):
            assert evaluate(tree, {"p0": x, "p1": y}) == meaning(x, y)


@pytest.mark.parametrize("expression, reason", [
    (sympy.Symbol("s0", integer=True) + X, "symbolic size"),
    (Where(X < 3, X, Y), "index function Where"),
    (FloorDiv(X, Y), "not a positive constant"),
    (X * sympy.Rational(1, 2), "index function"),
])
def test_index_tree_refuses_by_name(expression, reason):
    with pytest.raises(Refusal, match=reason):
        index_tree(expression, {"p0", "p1"})


def test_numbers_without_json_form_are_strings():
    assert [json_number(value) for value in (float("inf"), -float("inf"), float("nan"), True, 3, 0.5)] == [
        "inf", "-inf", "nan", True, 3, 0.5]
    with pytest.raises(Refusal):
        json_number(1j)


@pytest.fixture
def recorder():
    recorder = BodyRecorder({"alias": "real"}.get, adapter_for().index_ops)
    recorder.symbols |= {"p0", "p1"}
    return recorder


def test_scan_records_its_combine_function(recorder):
    from torch._inductor.virtualized import V

    value = recorder.load("alias", X)
    with V.set_ops_handler(recorder):
        results = recorder.scan((torch.float32, torch.int64), lambda a, b: (virtualized.ops.add(a[0], b[0]), virtualized.ops.maximum(a[1], b[1])),
                                (value, value))
        recorder.store("alias", X, results[1])
    load, scan, get, store = recorder.ops
    assert load["buffer"] == "real"
    assert (scan["op"], scan["dtypes"], scan["args"], scan["block"]["params"]) == ("scan", ["float32", "int64"], [0, 0], [1, 2, 3, 4])
    assert [(op["op"], op["args"]) for op in scan["block"]["ops"]] == [("add", [1, 3]), ("maximum", [2, 4])]
    assert scan["block"]["results"] == [5, 6]
    assert (get["op"], get["which"], get["args"], store["args"]) == ("get", 1, [scan["id"]], [get["id"]])


def test_masked_indirect_sort_and_checks(recorder):
    value = recorder.load("alias", X)
    masked = recorder.masked(OpsValue(value), lambda: recorder.load("alias", Y), float("-inf"))
    symbol = recorder.indirect_indexing(masked, 10, True, False)
    recorder.check_bounds(symbol, 10, True, False)
    sorted_ = recorder.sort((torch.float32,), (value,), True, False)
    recorder.store("alias", symbol + X, sorted_[0], mode="atomic_add")
    by_name = {op["op"]: op for op in recorder.ops}
    assert by_name["masked"]["value"] == "-inf" and by_name["masked"]["block"]["results"] == [1]
    assert by_name["indirect"] == {"id": -1, "op": "indirect", "args": [2], "size": 10, "check": True, "wrap_neg": False, "symbol": "i0"}
    assert by_name["check_bounds"]["lower"] is True and by_name["check_bounds"]["upper"] is False
    assert by_name["sort"]["stable"] is True
    assert by_name["store"]["mode"] == "atomic_add"
    assert evaluate(by_name["store"]["index"], {"i0": 5, "p0": 2}) == 7


def test_results_of_a_reduction_are_taken_one_by_one(recorder):
    mean, square, weight = recorder.reduction(torch.float32, torch.float32, "welford_reduce", recorder.load("alias", X))
    recorder.store_reduction("alias", Y, recorder.mul(square, weight))
    assert [op["which"] for op in recorder.ops if op["op"] == "get"] == [0, 1, 2]
    product = next(op for op in recorder.ops if op["op"] == "mul")
    assert product["args"] == [square.id, weight.id] and mean.id not in product["args"]


@pytest.mark.parametrize("make, reason", [
    (lambda r, v: r.frexp(v), "op frexp"),
    (lambda r, v: r.bucketize(v, (), v, torch.int64, False), "op bucketize"),
    (lambda r, v: r.add(v, 1.5), "operand that is not a value"),
    (lambda r, v: r.store("alias", X, v, mode="tma"), "store mode tma"),
    (lambda r, v: r.reduction(torch.int64, torch.float32, "argmax_with_value", v), "reduction argmax_with_value"),
    (lambda r, v: r.to_dtype(v, torch.complex64), "dtype complex64"),
])
def test_unknown_ops_are_refused_by_name(recorder, make, reason):
    with pytest.raises(Refusal, match=reason):
        make(recorder, recorder.load("alias", X))


def test_other_torch_minors_are_refused_and_told_what_works():
    with pytest.raises(UnsupportedTorch, match=r"2\.14.*2\.11, 2\.13"):
        adapter_for("2.14.0+cu130")


class Everything(torch.nn.Module):
    """A body of each kind, a mutated input, a concatenation without a kernel, a buffer updated in training mode."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
        self.proj = torch.nn.Linear(16, 16)

    def forward(self, x, image, ids, state):
        pooled = torch.nn.functional.max_pool2d(image, 3, 2, 1)
        hidden = torch.relu(self.proj(torch.softmax(x * 2, -1)))
        both = torch.cat([hidden + 1, x * 3], dim=1)
        state.mul_(2)
        picked = x[ids] + state.sum()
        summed = torch.zeros(4, 16).index_add(0, ids, x[:6])
        return pooled, torch.mm(both, both.t()), picked, self.norm(x[:, :8]), summed, x.var(1), x.argmax(1), (x + 1).double()


def everything():
    torch.manual_seed(0)
    return Everything(), [torch.randn(12, 16), torch.randn(1, 2, 9, 9), torch.tensor([0, 3, 1, 1, 2, 0]), torch.randn(12)]


@pytest.fixture(scope="module")
def captured():
    model, inputs = everything()
    saved = {name: value.clone() for name, value in model.state_dict().items()}, [value.clone() for value in inputs]
    return model, inputs, saved, capture(model, inputs, text_only=True)


def check_block(block, known, symbols, program):
    for op in block["ops"]:
        assert set(op.get("args", [])) <= known, op
        inner = op.get("block")
        if inner is not None:
            check_block(inner, known | set(inner.get("params", [])), symbols, program)
        if op["op"] == "indirect":
            symbols.add(op["symbol"])
        for key in ("index", "size"):
            if key in op:
                evaluate(op[key], {name: 1 for name in symbols})  # KeyError for an undeclared name
        if "buffer" in op:
            assert program["buffers"][op["buffer"]]["layout"] in ("fixed", "non_owning")
        if op["id"] >= 0:
            assert op["id"] not in known
            known.add(op["id"])
    assert set(block.get("results", [])) <= known


def test_program_is_well_formed(captured):
    program = captured[3].programs[0]
    json.dumps(program, allow_nan=False)
    written = set(program["inputs"]) | {name for name, entry in program["buffers"].items() if entry["kind"] == "constant"}
    for step in program["steps"]:
        assert step["kind"] != "generated" or step["refused"] is None, step["refused"]
        assert set(step["reads"]) <= written, step["name"]
        written |= set(step["writes"])
        assert set(step["reads"]) | set(step["writes"]) | set(step["last_use"]) <= program["buffers"].keys()
        for body in step.get("bodies", []):
            check_block({"ops": body["ops"]}, set(), {var["name"] for var in body["vars"]}, program)
    assert set(program["outputs"]) <= written
    assert program["kernels"] and all('extern "C"' in kernel["source"] for kernel in program["kernels"])


def test_program_covers_every_kind_of_body(captured):
    program = captured[3].programs[0]
    ops_seen = {op["op"] for step in program["steps"] for body in step.get("bodies", []) for op in body_ops(body["ops"])}
    assert {"load", "store", "store_reduction", "reduction", "masked", "indirect", "constant", "to_dtype"} <= ops_seen
    stores = [op for step in program["steps"] for body in step.get("bodies", []) for op in body_ops(body["ops"]) if op["op"] == "store"]
    assert any(op["mode"] == "atomic_add" for op in stores)
    extern = [step["extern"] for step in program["steps"] if step["kind"] == "extern"]
    assert any("addmm" in call["call"] for call in extern)


def test_concatenation_shares_its_owner_and_mutation_writes_the_input(captured):
    program = captured[3].programs[0]
    pieces = [entry for entry in program["buffers"].values() if entry["layout"] == "non_owning"]
    assert len(pieces) == 2 and len({entry["base"] for entry in pieces}) == 1
    assert sorted(entry["offset"] for entry in pieces) == [0, 16]
    assert not any(entry["removable"] for entry in pieces) and not program["buffers"][pieces[0]["base"]]["removable"]
    state = next(name for name in program["inputs"] if program["buffers"][name]["size"] == [12])
    assert any(state in step["writes"] for step in program["steps"] if step["kind"] == "generated")


def test_capture_leaves_inputs_and_buffers_alone(captured):
    model, inputs, (state, values), _ = captured
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, saved) for value, saved in zip(inputs, values))


class Broken(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        torch._dynamo.graph_break()
        return torch.relu(y) + 1


def test_graph_breaks_give_programs_in_order_with_the_reason():
    result = capture(Broken(), [torch.randn(4, 8)], text_only=True)
    assert [program["graph"] for program in result.programs] == [0, 1]
    first, second = ({op["op"] for step in program["steps"] for body in step["bodies"] for op in body["ops"]}
                     for program in result.programs)
    assert "relu" not in first and second & {"relu", "maximum"}
    assert len(result.graph_breaks) == 1 and "graph_break" in result.graph_breaks[0]["reason"]


@pytest.mark.parametrize("hooked", [False, True])
def test_a_module_of_torch_itself_and_one_with_hooks_are_captured(hooked):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    if hooked:
        model.register_forward_hook(lambda module, args, output: torch.sin(output))
    result = capture(model, [torch.randn(4, 8)], text_only=True)
    ops_seen = {op["op"] for step in result.programs[0]["steps"] for body in step.get("bodies", []) for op in body["ops"]}
    assert ("sin" in ops_seen) == hooked and result.graph_breaks == []


def test_a_plain_function_is_captured():
    result = capture(lambda x: torch.exp(x) + 1, [torch.randn(4, 8)], text_only=True)
    assert [step["kind"] for step in result.programs[0]["steps"]] == ["generated"]


def test_unknown_mode_is_named():
    with pytest.raises(ValueError, match="max-autotune-no-cudagraphs"):
        capture(Broken(), [torch.randn(4, 8)], mode="fastest")
