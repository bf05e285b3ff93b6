"""Candidates compiled and run in guarded memory: right ones pass, and each way of being wrong is seen."""

import json
from pathlib import Path

import pytest
import torch

from kernelopt import exchange
from kernelopt.protocol import ProtocolError
from kernelopt.worker import compiler, groups

ROWS, COLUMNS = 6, 40


def buffer(kind, size, stride, **more):
    fields = {"dtype": "float32", "offset": 0, "device": "cpu", "layout": "fixed", "base": None, "mutates": None,
              "is_output": False, "removable": False, "value": None}
    return {"kind": kind, "size": size, "stride": stride, **fields, **more}


def body(ops):
    extents = [("p0", ROWS), ("p1", COLUMNS)]
    return {"name": "op0", "vars": [{"name": name, "extent": extent, "kind": "iter"} for name, extent in extents], "ops": ops}


INDEX = {"add": [{"mul": [COLUMNS, "p0"]}, "p1"]}


def program(target="buf1", target_buffer=None, inputs=("arg0_1", "arg1_1")):
    """One step: buf1 = arg0_1 + arg1_1."""
    ops = [{"id": i, "op": "load", "buffer": name, "index": INDEX} for i, name in enumerate(inputs)]
    ops.append({"id": 9, "op": "add", "args": [0, 1]})
    ops.append({"id": -1, "op": "store", "buffer": target, "index": INDEX, "args": [9], "mode": None})
    buffers = {name: buffer("input", [ROWS, COLUMNS], [COLUMNS, 1]) for name in inputs}
    if target not in buffers:
        buffers[target] = target_buffer or buffer("computed", [ROWS, COLUMNS], [COLUMNS, 1], is_output=True)
    step = {"name": "op0", "kind": "generated", "reads": list(inputs), "writes": [target], "last_use": [], "origins": [],
            "refused": None, "bodies": [body(ops)]}
    return {"format": "kernelopt.program", "version": 1, "torch": "2.13.0", "adapter": "2.13", "device": "cpu", "graph": 0,
            "inputs": list(inputs), "outputs": [target], "buffers": buffers, "steps": [step], "wrapper": "", "kernels": []}


def candidate(text, roles=("in", "in", "out"), args=("b0", "b1", "b2"), scratch=(), dtypes=None):
    types = ["const float*" if role == "in" else "float*" for role in roles]
    params = ", ".join(f"{kind} p{i}" for i, kind in enumerate(types))
    source = f'extern "C" void kernel({params}) {{\n{text}\n}}\n'
    names = [{"name": arg, "dtype": "float32", "role": role} for arg, role in zip(args, roles)]
    return {"format": "kernelopt.candidate", "version": 1, "language": "cpp", "group": "", "digest": "", "threads": 1, "plan": {},
            "formats": [], "kernels": [{"name": "kernel0", "source": source, "params": names}],
            "launches": [{"kernel": "kernel0", "args": list(args)}], "scratch": list(scratch)}


N = ROWS * COLUMNS
ADD = f"for (long i = 0; i < {N}; ++i) p2[i] = p0[i] + p1[i];"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("KERNELOPT_EXCHANGE", str(tmp_path / "exchange"))
    monkeypatch.setenv("KERNELOPT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def run(tmp_path):
    def run_candidate(item, document=None, **more):
        path = tmp_path / "program.json"
        path.write_text(json.dumps(document or program()))
        names = (document or program())["inputs"]
        torch.manual_seed(0)
        inputs = {name: torch.randn(ROWS, COLUMNS) for name in names}
        params = {"graph": 0, "program": str(path), "group": ["op0"], "candidate": item, "guard_bytes": 256,
                  "inputs": {name: exchange.write_tensor(tensor) for name, tensor in inputs.items()}, **more}
        return groups.run_group(params, None), inputs

    return run_candidate


def faults(reply):
    """What run_group saw wrong, by name."""
    found = [name for name in ("inputs_unchanged", "guards_intact", "deterministic") if not reply[name]]
    return found + (["unwritten"] if reply["unwritten"] else [])


def test_a_right_candidate_passes_and_its_output_comes_back(run):
    reply, inputs = run(candidate(ADD))
    assert faults(reply) == []
    assert list(reply["outputs"]) == ["b2"]
    assert torch.equal(exchange.read_tree(reply["outputs"]["b2"]), inputs["arg0_1"] + inputs["arg1_1"])


WRONG = {
    "an unwritten tail": (f"for (long i = 0; i < {N - 3}; ++i) p2[i] = p0[i] + p1[i];", ["deterministic", "unwritten"]),
    "nothing written": ("", ["deterministic", "unwritten"]),
    "one element past the end": (ADD + f" p2[{N}] = 1;", ["guards_intact"]),
    "one element before the start": (ADD + " p2[-1] = 1;", ["guards_intact"]),
    "an input written": (ADD + " const_cast<float*>(p0)[5] = 0;", ["inputs_unchanged"]),
    "past an input's end": (ADD + f" const_cast<float*>(p1)[{N}] = 0;", ["guards_intact"]),
    "a result that depends on what was there": (f"for (long i = 0; i < {N}; ++i) p2[i] += p0[i];", ["deterministic"]),
    "a counter": ("static float calls = 0; ++calls; " + ADD + " p2[7] = calls;", ["deterministic"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_candidates_are_seen(run, name):
    text, expected = WRONG[name]
    reply, _ = run(candidate(text))
    assert faults(reply) == expected
    if name == "an unwritten tail":
        assert reply["unwritten"] == 3 and reply["unwritten_by_output"] == {"b2": 3}


def test_an_output_that_is_never_mentioned_counts_as_unwritten(run):
    reply, _ = run(candidate("", roles=("in",), args=("b0",)))
    assert reply["unwritten"] == N and reply["missing_outputs"] == ["b2"]


def test_gaps_of_a_strided_output_are_guarded(run):
    document = program(target_buffer=buffer("computed", [ROWS, COLUMNS], [COLUMNS + 8, 1], is_output=True))
    rows = (
        f"for (long i = 0; i < {ROWS}; ++i) for (long j = 0; j < {{}}; ++j) "
        f"p2[i * {COLUMNS + 8} + j] = p0[i * {COLUMNS} + j % {COLUMNS}];"
    )
    assert faults(run(candidate(rows.format(COLUMNS)), document)[0]) == []
    assert faults(run(candidate(rows.format(COLUMNS + 1)), document)[0]) == ["guards_intact"]


def test_a_piece_of_another_buffer_leaves_the_rest_alone(run):
    piece = buffer("computed", [ROWS, COLUMNS], [2 * COLUMNS, 1], layout="non_owning", base="buf2", offset=COLUMNS)
    document = program(target_buffer=piece)
    document["buffers"]["buf2"] = buffer("computed", [ROWS, 2 * COLUMNS], [2 * COLUMNS, 1], is_output=True)
    rows = (
        f"for (long i = 0; i < {ROWS}; ++i) for (long j = {{}}; j < {COLUMNS}; ++j) "
        f"p2[i * {2 * COLUMNS} + j] = p0[i * {COLUMNS} + (j + {COLUMNS}) % {COLUMNS}];"
    )
    reply, inputs = run(candidate(rows.format(0)), document)
    assert faults(reply) == []
    assert torch.equal(exchange.read_tree(reply["outputs"]["b2"]), inputs["arg0_1"])
    assert faults(run(candidate(rows.format(-1)), document)[0]) == ["guards_intact"]


def test_mutation_of_an_input_where_that_is_the_contract(run):
    document = program(target="arg1_1")
    item = candidate(f"for (long i = 0; i < {N}; ++i) p1[i] += p0[i];", roles=("in", "inout"), args=("b0", "b1"))
    reply, inputs = run(item, document)
    assert faults(reply) == []
    assert torch.equal(exchange.read_tree(reply["outputs"]["b1"]), inputs["arg0_1"] + inputs["arg1_1"])


@pytest.mark.parametrize("zeroed, expected", [(True, []), (False, ["deterministic"])])
def test_scratch_is_zeroed_only_where_asked_for(run, zeroed, expected):
    scratch = [{"name": "s0", "dtype": "float32", "elements": 16, "zeroed": zeroed}]
    text = f"for (int i = 0; i < 16; ++i) p3[i] += 1; for (long i = 0; i < {N}; ++i) p2[i] = p0[i] + p3[i % 16];"
    item = candidate(text, ("in", "in", "out", "scratch"), ("b0", "b1", "b2", "s0"), scratch)
    reply, inputs = run(item)
    assert faults(reply) == expected
    if zeroed:
        assert torch.equal(exchange.read_tree(reply["outputs"]["b2"]), inputs["arg0_1"] + 1)


def test_scratch_is_guarded(run):
    scratch = [{"name": "s0", "dtype": "float32", "elements": 16, "zeroed": True}]
    item = candidate(ADD + " p3[16] = 1;", ("in", "in", "out", "scratch"), ("b0", "b1", "b2", "s0"), scratch)
    assert faults(run(item)[0]) == ["guards_intact"]


def test_constants_come_from_the_program(run):
    document = program(inputs=("arg0_1", "arg1_1"))
    document["buffers"]["arg1_1"] = buffer("constant", [], [], value=2.5)
    document["inputs"] = ["arg0_1"]
    document["steps"][0]["bodies"][0]["ops"][1]["index"] = 0
    reply, inputs = run(candidate(f"for (long i = 0; i < {N}; ++i) p2[i] = p0[i] * p1[0];"), document)
    assert faults(reply) == []
    assert torch.equal(exchange.read_tree(reply["outputs"]["b2"]), inputs["arg0_1"] * 2.5)


def test_missing_inputs_are_refused(run):
    document = program()
    document["inputs"] = ["arg0_1"]
    with pytest.raises(ProtocolError, match="lack arg1_1"):
        run(candidate(ADD), document)


def test_several_launches_run_in_order(run):
    item = candidate(ADD)
    second = candidate(f"for (long i = 0; i < {N}; ++i) p0[i] *= 2;", roles=("inout",), args=("b2",))["kernels"][0]
    item["kernels"].append({**second, "name": "kernel1"})
    item["launches"].append({"kernel": "kernel1", "args": ["b2"]})
    reply, inputs = run(item)
    assert faults(reply) == []
    assert torch.equal(exchange.read_tree(reply["outputs"]["b2"]), (inputs["arg0_1"] + inputs["arg1_1"]) * 2)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda item: item["launches"][0].update(kernel="other"), "is no kernel"),
        (lambda item: item["launches"][0]["args"].pop(), "takes 3 arguments, not 2"),
        (lambda item: item["launches"][0].update(args=["b0", "b1", "b7"]), "names b7"),
        (lambda item: item["launches"][0].update(args=["b0", "b1", "s7"]), "names s7"),
        (lambda item: item["kernels"][0].update(source="int kernel;;}"), "error"),
    ],
)
def test_a_broken_launch_list_is_the_candidates_fault(run, change, message):
    item = candidate(ADD)
    change(item)
    with pytest.raises(ProtocolError, match=message) as error:
        run(item)
    assert error.value.kind == "candidate"


def test_names_that_are_not_the_groups_are_refused(run):
    with pytest.raises(ProtocolError, match="canonical form"):
        run(candidate(ADD), names=["arg1_1", "arg0_1", "buf1"])


def test_the_files_of_a_reply_live_until_the_next_one(run):
    first, _ = run(candidate(ADD))
    leaf = first["outputs"]["b2"]
    exchange.read_tree(leaf)
    run(candidate(ADD))
    with pytest.raises(FileNotFoundError):
        exchange.read_tree(leaf)


def test_time_group_samples_both_sides_and_restores_what_is_written_in_place(run, tmp_path):
    document = program(target="arg1_1")
    item = candidate(f"for (long i = 0; i < {N}; ++i) p1[i] = p1[i] * 1e30f + p0[i];", roles=("in", "inout"), args=("b0", "b1"))
    run(item, document)
    inputs = {name: exchange.write_tensor(torch.ones(ROWS, COLUMNS)) for name in document["inputs"]}
    params = {"program": str(tmp_path / "program.json"), "group": ["op0"], "candidates": [item, item], "inputs": inputs,
              "warmup_ms": 1, "rep_ms": 1}
    reply = groups.time_group(params, None)
    assert len(reply["samples"]) == 2 and len(reply["samples"][0]) == len(reply["samples"][1]) >= 5
    assert all(sample > 0 for side in reply["samples"] for sample in side)
    assert reply["batch"] == [1, 1]


def test_compile_reports_symbols_caches_and_rejects():
    good, bad, nameless = candidate(ADD), candidate("nonsense"), candidate(ADD)
    good["kernels"][0]["source"] += 'extern "C" int extra = 3; static int hidden() { return 1; } int use() { return hidden(); }\n'
    nameless["kernels"][0]["source"] = "void other() {}\n"
    triton = {**candidate(ADD), "language": "triton"}
    first, failed, missing, foreign = compiler.compile_candidates([good, bad, nameless, triton])
    assert first["symbols"] == ["_Z3usev", "extra", "kernel"] and not first["cached"]
    again = compiler.compile_candidate(good)
    assert again["cached"] and again["library"] == first["library"]
    assert failed["error"]["kind"] == "candidate" and "nonsense" in failed["error"]["message"]
    assert "/" not in failed["error"]["message"].split(":")[0]
    assert "defines no" in missing["error"]["message"] and "language triton" in foreign["error"]["message"]


def test_a_compiler_that_takes_too_long_is_stopped():
    item = candidate(ADD)
    item["kernels"][0]["source"] = (
        "template <int N> struct Slow { static constexpr long value = Slow<N - 1>::value + Slow<N - 2>::value; };\n"
        "constexpr long spin(long n) { long s = 0; for (long i = 0; i < n; ++i) s += i & 3; return s; }\n"
        + "".join(f"constexpr long v{i} = spin({200000 + i});\n" for i in range(2000))
        + item["kernels"][0]["source"]
    )
    reply = compiler.compile_candidate(item, timeout_seconds=1)
    assert reply["error"]["kind"] == "candidate" and "longer than 1 s" in reply["error"]["message"]


def test_a_source_that_starts_with_a_torch_header_gets_it_precompiled(run):
    loop = (
        f"using V = at::vec::Vectorized<float>; "
        f"for (long i = 0; i < {N}; i += V::size()) {{ int n = std::min<long>(V::size(), {N} - i);"
        " (V::loadu(p0 + i, n) + V::loadu(p1 + i, n)).store(p2 + i, n); }"
    )
    item = candidate(loop)
    item["kernels"][0]["source"] = "// a comment\n#define KO_LANES 16\n#include <ATen/cpu/vec/vec.h>\n" + item["kernels"][0]["source"]
    built = compiler.compile_candidate(item, 120)
    assert built["symbols"] == ["kernel"]
    if "g++" in compiler.device.find_compiler():
        assert list(Path(compiler.cache_folder("pch")).glob("*/ATen/cpu/vec/vec.h.gch"))
    reply, inputs = run(item)
    assert faults(reply) == []
    assert torch.equal(exchange.read_tree(reply["outputs"]["b2"]), inputs["arg0_1"] + inputs["arg1_1"])
