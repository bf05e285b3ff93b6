"""Model references of the judge and its process (DESIGN sections 2 and 6; docs/protocol.md)."""

import contextlib
import copy
import json
import os
import pathlib
import struct
import subprocess
import sys
import textwrap

import pytest
import torch

from kernelopt import exchange, model_loader
from kernelopt.judge.compare import compare_trees
from kernelopt.judge.float64 import Float64Mode, widen_state
from kernelopt.judge.reference import References

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCES = [{"rtol": 1e-4, "atol": 1e-4, "rms_scaled": True, "error_factor": 4}]


def case(number):
    folder = next((place for place in (ROOT / "shared" / "cases", ROOT.parent / "shared" / "cases") if place.is_dir()), None)
    if folder is None:
        pytest.skip("no shared/cases folder beside the checkout")
    return str(next(folder.glob(f"{number}_*.py")))


def references(path):
    loaded = model_loader.LoadedModel(str(path))
    _, needs = model_loader.observe(loaded)
    return References(loaded, needs)


def model_file(tmp_path, text):
    path = tmp_path / f"model_{abs(hash(text))}.py"
    path.write_text("import random\nimport torch\nimport torch.nn as nn\n\n" + textwrap.dedent(text))
    return path


def compare_all(got, refs, seed, calls):
    eager, ideal, _ = refs.get(seed, calls)
    leaves = []
    for section in ("outputs", "inputs", "buffers"):
        equal, why, found = compare_trees(section, got[section], eager.trees[section], ideal and ideal[section], TOLERANCES)
        assert equal, why
        leaves += found
    return {leaf["path"]: leaf for leaf in leaves}


def test_mutated_inputs_are_part_of_what_is_compared():
    refs = references(case(13))
    summary = refs.summary(0, 1)
    assert summary["deterministic"] and summary["float64"]
    good = refs.runner.run(0, 1).trees
    assert all(leaf["equal"] for leaf in compare_all(good, refs, 0, 1).values())
    # The right output, but the mutation left out.
    lazy = {**good, "inputs": refs.loaded.inputs(0)}
    wrong = {path for path, leaf in compare_all(lazy, refs, 0, 1).items() if leaf["violations"] != [0]}
    assert wrong == {"inputs/0", "inputs/1"}
    # Two calls are another state than one.
    assert not all(leaf["equal"] for leaf in compare_all(good, refs, 0, 2).values())


def test_buffers_after_the_calls_are_part_of_what_is_compared():
    refs = references(case(17))
    good = refs.runner.run(0, 3).trees
    leaves = compare_all(good, refs, 0, 3)
    assert all(leaf["equal"] for leaf in leaves.values()) and "buffers/bn.num_batches_tracked" in leaves
    polluted = refs.runner.run(0, 4).trees
    wrong = {path for path, leaf in compare_all(polluted, refs, 0, 3).items() if leaf["violations"] != [0]}
    assert {"buffers/bn.running_mean", "buffers/bn.num_batches_tracked"} <= wrong
    assert not any(path.startswith("outputs") for path in wrong)


def test_a_wrong_tensor_deep_in_the_tree_is_found_across_the_exchange():
    refs = references(case(15))
    outputs = exchange.read_tree(exchange.write_tree(refs.runner.run(0, 1).trees["outputs"]))
    eager, ideal, _ = refs.get(0, 1)
    equal, why, leaves = compare_trees("outputs", outputs, eager.trees["outputs"], ideal["outputs"], TOLERANCES)
    assert equal, why
    assert all(leaf["equal"] for leaf in leaves) and {"value", "tensor"} == {leaf["kind"] for leaf in leaves}
    outputs[7][1][0][0][5] += 1
    _, _, leaves = compare_trees("outputs", outputs, eager.trees["outputs"], ideal["outputs"], TOLERANCES)
    assert [leaf["path"] for leaf in leaves if not leaf["equal"]] == ["outputs/7/1/0/0"]


def test_python_randomness_and_hidden_counters_are_not_a_function_of_the_inputs():
    summary = references(case(35)).summary(0, 1)
    assert not summary["deterministic"] and summary["random"]
    assert any("random generator" in reason for reason in summary["reasons"])
    assert any("call to call" in reason for reason in summary["reasons"])


def test_seeded_torch_randomness_is_a_reference_and_float64_draws_the_same(tmp_path):
    path = model_file(tmp_path, """
        class Model(nn.Module):
            def forward(self, x):
                dropped = nn.functional.dropout(x, 0.5, training=True)
                return dropped, x + torch.randn_like(x), torch.rand(3) * 2, torch.empty(4).normal_()
        def get_inputs():
            return [torch.randn(64, 64)]
    """)
    refs = references(path)
    summary = refs.summary(0, 1)
    assert summary["deterministic"] and summary["random"] and summary["float64"]
    eager, ideal, _ = refs.get(0, 1)
    for a, b in zip(eager.trees["outputs"], ideal["outputs"]):
        assert b.dtype == torch.float64
        torch.testing.assert_close(a.double(), b, rtol=1e-6, atol=1e-6)


def test_eager_that_disagrees_with_itself_is_seen(tmp_path):
    path = model_file(tmp_path, """
        COUNTER = [0]
        class Model(nn.Module):
            def forward(self, x):
                COUNTER[0] += 1
                return x * COUNTER[0]
        def get_inputs():
            return [torch.randn(8, 8)]
    """)
    summary = references(path).summary(0, 1)
    assert not summary["deterministic"] and any("disagrees with itself" in reason for reason in summary["reasons"])


def test_a_counter_buffer_is_state_and_no_secret(tmp_path):
    path = model_file(tmp_path, """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            def forward(self, x):
                self.calls += 1
                return x * self.calls
        def get_inputs():
            return [torch.randn(8, 8)]
    """)
    refs = references(path)
    assert refs.summary(0, 2)["deterministic"]
    eager, _, _ = refs.get(0, 2)
    assert int(eager.trees["buffers"]["calls"]) == 2


def test_degenerate_outputs_are_flagged():
    summary = references(case(27)).summary(0, 1)
    assert summary["constant_output"] and summary["independent_of_inputs"] and summary["deterministic"]


def test_ordinary_outputs_are_not_flagged(tmp_path):
    path = model_file(tmp_path, """
        class Model(nn.Module):
            def forward(self, x):
                return torch.softmax(x, 1), x.mean(), x * 0
        def get_inputs():
            return [torch.randn(4, 50000)]
    """)
    summary = references(path).summary(0, 1)
    assert not summary["constant_output"] and not summary["independent_of_inputs"]
    flags = {leaf["path"]: (leaf.get("constant"), leaf.get("independent")) for leaf in summary["leaves"]}
    assert flags["outputs/0"] == (False, False) and flags["outputs/1"] == (False, False)
    assert flags["outputs/2"] == (True, True)


def test_float64_reads_every_named_type_as_float64():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(32, 32)
            self.table = torch.linspace(0, 1, 32)

        def forward(self, x):
            y = self.lin(x).float() + torch.full((32,), 0.1, dtype=torch.float32) + self.table
            z = torch.zeros(32).add_(y.bfloat16().sum(0)) / 3
            return torch.softmax(y.half(), -1).to(torch.float32) * z

    model, x = Model(), torch.randn(8, 32)
    exact = copy.deepcopy(model)
    with torch.no_grad(), Float64Mode():
        got = widen_state(exact)(x.double())
    w, b = model.lin.weight.double(), model.lin.bias.double()
    y = x.double() @ w.t() + b + 0.1 + model.table.double()
    want = torch.softmax(y, -1) * (y.sum(0) / 3)
    assert got.dtype == torch.float64 and (got - want).norm() / want.norm() < 1e-14
    assert model.lin.weight.dtype == torch.float32


def test_a_model_without_float64_says_so(tmp_path):
    path = model_file(tmp_path, """
        class Model(nn.Module):
            def forward(self, x):
                assert x.dtype == torch.float32, "only float32"
                return x + 1
        def get_inputs():
            return [torch.randn(3)]
    """)
    refs = references(path)
    summary = refs.summary(0, 1)
    assert not summary["float64"] and "only float32" in summary["float64_reason"] and summary["deterministic"]
    leaf = compare_all(refs.runner.run(0, 1).trees, refs, 0, 1)["outputs"]
    assert leaf["equal"] and leaf["d_opt"] is None


class JudgeProcess:
    """The judge as the engine starts it."""

    def __init__(self, folder):
        request, reply = os.pipe(), os.pipe()
        environment = {**os.environ, "KERNELOPT_FD_IN": str(request[0]), "KERNELOPT_FD_OUT": str(reply[1]),
                       "KERNELOPT_EXCHANGE": str(folder), "PYTHONPATH": str(ROOT / "python")}
        self.process = subprocess.Popen([sys.executable, "-m", "kernelopt.judge"], env=environment,
                                        pass_fds=(request[0], reply[1]))
        os.close(request[0])
        os.close(reply[1])
        self._out, self._in = os.fdopen(request[1], "wb"), os.fdopen(reply[0], "rb")
        self._number = 0

    def call(self, method, **params):
        self._number += 1
        payload = json.dumps({"id": self._number, "method": method, "params": params}).encode()
        self._out.write(struct.pack("<I", len(payload)) + payload)
        self._out.flush()
        while True:
            (length,) = struct.unpack("<I", self._in.read(4))
            message = json.loads(self._in.read(length))
            if "event" not in message:
                assert message["id"] == self._number
                return message

    def result(self, method, **params):
        reply = self.call(method, **params)
        assert "error" not in reply, reply
        return reply["result"]

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self._out.close()
        assert self.process.wait(timeout=60) == 0
        self._in.close()


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exchange")
    before = os.environ.get("KERNELOPT_EXCHANGE")
    os.environ["KERNELOPT_EXCHANGE"] = str(folder)
    process = JudgeProcess(folder)
    yield process
    process.close()
    if before is None:
        del os.environ["KERNELOPT_EXCHANGE"]
    else:
        os.environ["KERNELOPT_EXCHANGE"] = before


def test_process_judges_a_model(judge, tmp_path):
    hello = judge.result("hello")
    assert hello["protocol"] == 1 and hello["role"] == "judge" and hello["torch"] == torch.__version__
    path = model_file(tmp_path, """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(16, 16)
            def forward(self, x):
                x.add_(1)
                return {"y": torch.log(self.lin(x)), "rows": x.shape[0]}
        def get_inputs():
            return [torch.randn(8, 16)]
    """)
    loaded = judge.result("load_model", path=str(path), device="cpu", dtype=None, seed=3, inputs=None, state_dict=None)
    assert loaded["parameters"] == 272 and loaded["needs"] == ["mutates_inputs"]
    assert judge.result("reference_model", seed=3, calls=1)["deterministic"]
    own = model_loader.LoadedModel(str(path), seed=3)
    arguments = own.inputs(5)
    outputs = model_loader.run_calls(own.fresh(), arguments, 5)
    assert outputs["y"].isnan().any()

    def request():
        return {"outputs": exchange.write_tree(outputs), "inputs": exchange.write_tree(arguments),
                "buffers": exchange.write_tree({}), "seed": 5, "calls": 1, "tolerances": TOLERANCES}

    reply = judge.result("compare_model", **request())
    assert reply["structure_equal"] and {leaf["path"] for leaf in reply["leaves"]} == {"outputs/y", "outputs/rows", "inputs/0"}
    assert all(leaf["equal"] for leaf in reply["leaves"])
    outputs["y"][0] = 0
    reply = judge.result("compare_model", **request())
    leaf = next(leaf for leaf in reply["leaves"] if leaf["path"] == "outputs/y")
    assert leaf["violations"][0] > 0 and not leaf["nonfinite_equal"]
    assert judge.call("compare_model", seed=5, calls=1)["error"]["kind"] == "internal"
    assert judge.call("load_model", path="absent.py")["error"]["kind"] == "user"


def group_program(tmp_path):
    """y = softmax-like normalisation over a lookup: x[i] / sum(x[i]), with an internal buffer."""
    def buffer(dtype, size, stride, **more):
        return {"kind": "input", "dtype": dtype, "size": size, "stride": stride, "offset": 0, "device": "cpu", "layout": "fixed",
                "base": None, "mutates": None, "is_output": False, "removable": False, "value": None, **more}

    rows = [{"name": "p0", "extent": 9, "kind": "iter"}, {"name": "p1", "extent": 32, "kind": "reduce"}]
    lookup = [{"id": 0, "op": "load", "buffer": "ids", "index": "p0"},
              {"id": -1, "op": "indirect", "args": [0], "size": 20, "check": True, "wrap_neg": True, "symbol": "i0"},
              {"id": 1, "op": "load", "buffer": "x", "index": {"add": [{"mul": ["i0", 32]}, "p1"]}},
              {"id": 2, "op": "exp", "args": [1]}]
    total = lookup + [{"id": 3, "op": "reduction", "type": "sum", "dtype": "float32", "src_dtype": "float32", "args": [2]},
                      {"id": -1, "op": "store_reduction", "buffer": "t", "index": "p0", "args": [3]}]
    divide = lookup + [{"id": 3, "op": "load", "buffer": "t", "index": "p0"}, {"id": 4, "op": "truediv", "args": [2, 3]},
                       {"id": -1, "op": "store", "buffer": "y", "index": {"add": [{"mul": ["p0", 32]}, "p1"]}, "args": [4], "mode": None}]
    flat = [{**var, "kind": "iter"} for var in rows]

    def step(name, variables, ops, reads, writes):
        return {"name": name, "kind": "generated", "refused": None, "reads": reads, "writes": writes, "last_use": [], "origins": [],
                "bodies": [{"name": name, "vars": variables, "ops": ops}]}

    program = {
        "format": "kernelopt.program", "version": 1, "torch": "2.13.0", "adapter": "2.13", "device": "cpu", "graph": 0,
        "inputs": ["x", "ids"], "outputs": ["y"],
        "buffers": {"x": buffer("float32", [20, 32], [32, 1]), "ids": buffer("int64", [9], [1]),
                    "t": buffer("float32", [9], [1], kind="computed", removable=True),
                    "y": buffer("float32", [9, 32], [32, 1], kind="computed", is_output=True)},
        "steps": [step("op0", rows, total, ["x", "ids"], ["t"]), step("op1", flat, divide, ["x", "ids", "t"], ["y"])],
        "wrapper": "", "kernels": [],
    }
    path = tmp_path / "program.json"
    path.write_text(json.dumps(program))
    return str(path)


def test_process_judges_a_group(judge, tmp_path):
    path, group, names = group_program(tmp_path), ["op0", "op1"], ["ids", "x", "t", "y"]
    request = {"program": path, "group": group, "seed": 11, "input_case": "ordinary"}
    leaves = judge.result("group_inputs", **request)["inputs"]
    assert set(leaves) == {"x", "ids"}
    x, ids = exchange.read_tensor(leaves["x"]), exchange.read_tensor(leaves["ids"])
    y = torch.softmax(x[ids], 1)
    good = judge.result("compare_group", **request, names=names, outputs={"b3": exchange.write_tensor(y)}, tolerances=TOLERANCES)
    (leaf,) = good["leaves"]
    assert good["structure_equal"] and leaf["path"] == "b3" and leaf["violations"] == [0]
    assert 0 < leaf["d_opt"] < 1e-6 and 0 < leaf["d_ref"] < 1e-6
    shifted = y.roll(1, 0).contiguous()
    bad = judge.result("compare_group", **request, names=names, outputs={"b3": exchange.write_tensor(shifted)}, tolerances=TOLERANCES)
    assert bad["leaves"][0]["violations"][0] > 0
    absent = judge.result("compare_group", **request, names=names, outputs={}, tolerances=TOLERANCES)
    assert not absent["structure_equal"] and absent["missing"] == ["b3"]
    # The internal buffer alone survives when only the first step is the group.
    alone = judge.result("compare_group", **{**request, "group": ["op0"]}, names=names, outputs={}, tolerances=TOLERANCES)
    assert alone["missing"] == ["b2"]
    second = judge.result("group_inputs", **{**request, "group": ["op1"]})["inputs"]
    assert set(second) == {"x", "ids", "t"} and bool((exchange.read_tensor(second["t"]) > 0).all())
    assert judge.result("drop_files", tree=[leaves, second])["removed"] == 5
    wrong = judge.call("group_inputs", **{**request, "input_case": "odd"})
    assert wrong["error"]["kind"] == "internal" and "odd" in wrong["error"]["message"]
    (tmp_path / "other.json").write_text('{"format": "kernelopt.program", "version": 2}')
    refused = judge.call("group_inputs", **{**request, "program": str(tmp_path / "other.json")})
    assert refused["error"]["kind"] == "user" and "version 1" in refused["error"]["message"]
