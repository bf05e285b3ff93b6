"""Canonical form and digests as pure functions of documents; finding groups; order around a group."""

import copy
import json

import pytest

from kernelopt.bridge.digest import GroupError, GroupView
from kernelopt.bridge.printers import StitchError, cpp_binding_text
from kernelopt.bridge.regroup import KernelPlan, find_groups, order_around

MACHINE = {"torch": "2.13.0", "threads": 2}


def buffer(size, **fields):
    return {"kind": "computed", "dtype": "float32", "size": size, "stride": [1], "offset": 0, "device": "cpu", "layout": "fixed",
            "base": None, "mutates": None, "is_output": False, "removable": True, "value": None, **fields}


def step(name, reads, writes, op="exp", kind="generated"):
    body = {"name": name, "vars": [{"name": "p0", "extent": 8, "kind": "iter"}],
            "ops": [{"id": n, "op": "load", "buffer": read, "index": "p0"} for n, read in enumerate(reads)]
            + [{"id": 7, "op": op, "args": list(range(len(reads)))}]
            + [{"id": -1, "op": "store", "buffer": write, "index": "p0", "args": [7], "mode": None} for write in writes]}
    document = {"name": name, "kind": kind, "reads": reads, "writes": writes, "last_use": [], "origins": [], "refused": None}
    return {**document, "bodies": [body]} if kind == "generated" else document


@pytest.fixture
def program():
    """in -> a -> b -> c (output); a and b are removable, an extern call reads nothing of them."""
    return {"buffers": {"in": buffer([8], kind="input", removable=False), "a": buffer([8]), "b": buffer([8]),
                        "x": buffer([8], removable=False), "c": buffer([8], is_output=True, removable=False)},
            "steps": [step("op0", ["in"], ["a"]), step("op1", ["a"], ["b"], "neg"), step("ext", ["in"], ["x"], kind="extern"),
                      step("op2", ["b", "in"], ["c"], "add")]}


def renamed(program, names):
    text = json.dumps(program)
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    return json.loads(text)


def digest(program, steps):
    return GroupView(program, steps).digest(MACHINE)


def test_names_reads_writes_and_internals(program):
    view = GroupView(program, ["op2", "op0", "op1"])
    assert [item["name"] for item in view.steps] == ["op0", "op1", "op2"]
    assert (view.names, view.reads, view.writes, view.internals) == (["in", "a", "b", "c"], ["in"], ["c"], ["a", "b"])
    assert [view.role(name) for name in view.names] == ["in", "out", "out", "out"]


def test_digest_ignores_names_of_buffers_vars_and_ids(program):
    other = renamed(program, {"in": "arg9", "a": "buf3", "p0": "q5", "op0": "op7"})
    for body in (item["bodies"][0] for item in other["steps"] if "bodies" in item):
        for op in body["ops"]:
            op["id"] += 20 if op["id"] >= 0 else 0
            op["args"] = [value + 20 for value in op.get("args", [])]
        if any(op["op"] == "load" for op in body["ops"]):
            for op in body["ops"]:
                if op["op"] == "load":
                    del op["args"]
    assert digest(program, ["op0", "op1"]) == digest(other, ["op7", "op1"])
    assert GroupView(other, ["op7", "op1"]).names == ["arg9", "buf3", "b"]


@pytest.mark.parametrize("change", [
    lambda p: p["buffers"]["in"].update(dtype="float16"),
    lambda p: p["buffers"]["in"].update(stride=[2]),
    lambda p: p["buffers"]["a"].update(removable=False),
    lambda p: p["buffers"]["b"].update(base="x", layout="non_owning", offset=4),
    lambda p: p["steps"][2]["reads"].append("a"),
    lambda p: p["steps"][0]["bodies"][0]["vars"][0].update(extent=9),
    lambda p: p["steps"][1]["bodies"][0]["ops"][0].update(index={"add": ["p0", 1]}),
    lambda p: p["steps"][1]["bodies"][0]["ops"][1].update(op="abs"),
])
def test_digest_changes_with_what_a_kernel_depends_on(program, change):
    before = digest(program, ["op0", "op1"])
    change(program)
    assert digest(program, ["op0", "op1"]) != before


def test_digest_depends_on_the_machine_and_not_on_the_rest_of_the_program(program):
    view = GroupView(program, ["op0", "op1"])
    assert view.digest(MACHINE) != view.digest({**MACHINE, "threads": 3})
    program["steps"].insert(0, step("op9", ["in"], ["x"], "sqrt"))
    assert digest(program, ["op0", "op1"]) == view.digest(MACHINE)


@pytest.mark.parametrize("steps, reason", [
    ([], "empty"), (["op0", "nope"], "nope"), (["ext"], "extern"), (["op0", "op0"], "twice")])
def test_what_is_no_group_is_refused(program, steps, reason):
    with pytest.raises(GroupError, match=reason):
        GroupView(program, steps)


def test_find_groups_takes_every_disjoint_occurrence(program):
    twin = renamed(program, {"a": "a2", "b": "b2", "x": "x2", "c": "c2", "op0": "op3", "op1": "op4", "op2": "op5", "ext": "ext2"})
    program["steps"] += twin["steps"]
    program["buffers"] |= twin["buffers"]
    digests = {item["name"]: digest(program, [item["name"]]) for item in program["steps"] if item["kind"] == "generated"}

    def entry(names):
        return {"digest": digest(program, names), "steps": [digests[name] for name in names]}

    single, triple = entry(["op0"]), entry(["op0", "op1", "op2"])
    found = find_groups(program, digests, lambda names: digest(program, names), [single, triple])
    assert [(names, item is triple) for names, item in found] == [(["op0", "op1", "op2"], True), (["op3", "op4", "op5"], True)]
    wrong = {**triple, "digest": "0" * 64}
    assert find_groups(program, digests, lambda names: digest(program, names), [wrong]) == []


class Node:
    """As much of a scheduler node as ordering looks at."""

    class Dep:
        def __init__(self, name):
            self.name = name

    def __init__(self, name, reads, extern=False):
        self.name, self.extern = name, extern
        self.read_writes = self
        self.reads = [Node.Dep(read) for read in reads]
        self.unmet_dependencies = self.reads

    def get_name(self):
        return self.name

    def get_buffer_names(self):
        return {self.name}

    def is_extern(self):
        return self.extern

    def is_template(self):
        return False


def names(nodes):
    return [node.name for node in nodes]


def test_order_moves_users_of_the_group_behind_it():
    a, user, free, b = Node("a", ["in"]), Node("user", ["a"]), Node("free", ["in"]), Node("b", ["a"])
    before, after = order_around([a, user, free, b], [a, b])
    assert (names(before), names(after)) == (["free"], ["user"])


def test_order_refuses_what_leaves_and_comes_back():
    a, outside, b = Node("a", ["in"]), Node("outside", ["a"]), Node("b", ["outside"])
    with pytest.raises(StitchError, match="not convex"):
        order_around([a, outside, b], [a, b])


def test_order_keeps_library_calls_in_order():
    a, first, second, b = Node("a", []), Node("first", ["a"], extern=True), Node("second", [], extern=True), Node("b", ["a"])
    with pytest.raises(StitchError, match="change places"):
        order_around([a, first, second, b], [a, b])


def candidate(roles=("in", "out"), args=("b0", "b3"), source="void kernel();"):
    params = [{"name": f"p{n}", "dtype": "float32", "role": role} for n, role in enumerate(roles)]
    return {"format": "kernelopt.candidate", "version": 1, "language": "cpp", "group": "", "digest": "", "scratch": [],
            "kernels": [{"name": "k", "source": source, "params": params}], "launches": [{"kernel": "k", "args": list(args)}]}


@pytest.mark.parametrize("broken, reason", [
    (candidate(args=("b0", "b9")), "neither a buffer nor scratch"),
    (candidate(args=("b0",)), "does not fit"),
    (candidate(args=("b0", "b1")), "does not write c"),
    (candidate(roles=("inout", "out")), "writes its input in"),
    (candidate(source="'''"), "cannot be quoted"),
    ({**candidate(), "language": "fortran"}, "fortran"),
    ({**candidate(), "version": 2}, "version 1"),
])
def test_candidates_that_do_not_fit_are_refused(program, broken, reason):
    view = GroupView(program, ["op0", "op1", "op2"])
    KernelPlan(view, candidate())
    with pytest.raises(StitchError, match=reason):
        KernelPlan(view, broken)


def test_binding_names_types_as_inductor_does():
    kernel = copy.deepcopy(candidate()["kernels"][0])
    assert "['const float*', 'float*']" in cpp_binding_text(kernel)
