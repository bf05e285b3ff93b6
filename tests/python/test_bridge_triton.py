"""Triton candidates in the text of CUDA programs, and the compiler's own Triton kernels apart. No GPU is needed, triton is."""

import ast
import importlib.util
import re

import pytest
import torch

pytest.importorskip("triton")

from kernelopt.bridge.adapters import torch_minor
from kernelopt.bridge.capture import _description
from kernelopt.bridge.digest import GroupView
from kernelopt.bridge.session import Session
from no_device import compile_text, h200

ROWS, COLUMNS = 128, 1000


def model(x, w):
    hidden = torch.softmax(x * 2, -1) @ w
    return torch.tanh(hidden), x.sum(0)


INPUTS = [torch.empty(ROWS, COLUMNS), torch.empty(COLUMNS, 16)]


@pytest.fixture(scope="module")
def plain():
    """The compiler's own program."""
    return compile_text(model, INPUTS, Session())


def generated(program):
    return [step["name"] for step in program["steps"] if step["kind"] == "generated"]


def describe(program, fingerprint, groups, function=model, inputs=INPUTS):
    session = Session(isolate={0: groups})
    record = compile_text(function, inputs, session)
    return [_description(GroupView(program, steps), fingerprint, plan) for steps, plan in record.described], record


SUMS = """import triton
import triton.language as tl

@triton.jit
def ko_add(a, b):
    return a + b

@triton.jit
def sums(x, s):
    row = tl.program_id(0)
    total = tl.zeros([1024], tl.float32)
    column = tl.arange(0, 1024)
    value = tl.load(x + row * 1000 + column, mask=column < 1000, other=float('-inf'))
    total += tl.exp(value * 2)
    tl.store(s + row, tl.reduce(total, 0, ko_add))
"""
SCALE = """import triton
import triton.language as tl

@triton.jit
def scale(x, s, y):
    row = tl.program_id(0)
    column = tl.arange(0, 1024)
    value = tl.load(x + row * 1000 + column, mask=column < 1000)
    tl.store(y + row * 1000 + column, tl.exp(value * 2) / tl.load(s + row), mask=column < 1000)
"""


def softmax_candidate(group, zeroed=True):
    (x,), (y,) = group["reads"], group["writes"]

    def param(name, role):
        return {"name": name, "dtype": "float32", "role": role}

    launch = {"programs": ROWS, "warps": 4, "stages": 2}
    return {"format": "kernelopt.candidate", "version": 1, "language": "triton", "group": group["digest"], "digest": "hand",
            "kernels": [{"name": "sums", "source": SUMS, "params": [param(x, "in"), param("s0", "scratch")]},
                        {"name": "scale", "source": SCALE, "params": [param(x, "in"), param("s0", "in"), param(y, "out")]}],
            "launches": [{"kernel": "sums", "args": [x, "s0"], **launch}, {"kernel": "scale", "args": [x, "s0", y], **launch}],
            "scratch": [{"name": "s0", "dtype": "float32", "elements": ROWS, "zeroed": zeroed}], "threads": 1, "plan": {},
            "formats": []}


def kernel_set(fingerprint, entries):
    return {"format": "kernelopt.kernels", "version": 1, "torch": torch_minor(), "fingerprint": fingerprint,
            "groups": [{"digest": group["digest"], "steps": group["step_digests"], "candidate": candidate}
                       for group, candidate in entries]}


def softmax_group(plain):
    """The description of the group that computes the softmax: the generated step that the product reads."""
    product = next(step for step in plain.program["steps"] if step["kind"] == "extern")
    steps = [step["name"] for step in plain.program["steps"] if step["kind"] == "generated"
             and set(step["writes"]) & set(product["reads"])]
    (group,), _ = describe(plain.program, plain.fingerprint, [steps])
    assert group["refused"] is None and len(group["reads"]) == len(group["writes"]) == 1
    return group


def test_the_compilers_kernels_apart(plain):
    steps = generated(plain.program)
    groups, record = describe(plain.program, plain.fingerprint, [[name] for name in steps])
    assert plain.program["device"] == plain.fingerprint["device"] == "cuda" and plain.fingerprint["gpu"] == "NVIDIA H200"
    assert len(groups) >= 3
    for group in groups:
        baseline = group["baseline"]
        assert group["refused"] is None and baseline["language"] == "inductor_triton" and baseline["scratch"] == []
        assert [launch["kernel"] for launch in baseline["launches"]] == [kernel["name"] for kernel in baseline["kernels"]]
        for kernel, launch in zip(baseline["kernels"], baseline["launches"]):
            function = next(node for node in ast.parse(kernel["source"]).body if isinstance(node, ast.FunctionDef))
            plain_params = [arg.arg for arg in function.args.args if arg.annotation is None]
            assert function.name == kernel["name"] and len(plain_params) == len(kernel["params"]) == len(launch["args"])
            sizes = [arg for arg in launch["args"] if isinstance(arg, int)]
            assert sizes and all(param["role"] == "size" for param, arg in zip(kernel["params"], launch["args"])
                                 if isinstance(arg, int))
            written = [param["name"] for param in kernel["params"] if param["role"] != "in" and param["role"] != "size"]
            assert set(written) == set(group["writes"])
    # The same text and name as in the program itself: the compiler's cache of tuned configurations then serves both.
    own = {kernel["name"]: kernel["source"] for kernel in plain.program["kernels"]}
    alone = {kernel["name"]: kernel["source"] for group in groups for kernel in group["baseline"]["kernels"]}
    assert alone.keys() == own.keys()
    assert sum(alone[name] == own[name] for name in own) >= len(own) - 1  # one reuses its input's memory in the program


def test_a_triton_candidate_takes_the_groups_place(plain):
    group = softmax_group(plain)
    session = Session(kernel_set=kernel_set(plain.fingerprint, [(group, softmax_candidate(group))]))
    record = compile_text(model, INPUTS, session)
    assert record.problems == [] and [entry["digest"] for entry in record.replaced] == [group["digest"]]
    text = record.program["wrapper"]
    x, y = (group["names"][int(name[1:])] for name in (*group["reads"], *group["writes"]))
    first, second = re.findall(r"triton_kernelopt_\d+\.run\((.*?)\)", text)
    assert re.fullmatch(rf"{x}, workspace_0, stream=(raw_)?stream0", first)
    assert re.fullmatch(rf"{x}, workspace_0, {y}, stream=(raw_)?stream0", second)
    order = [text.index(part) for part in (f"{y} = empty_strided_cuda", "workspace_0 = empty_strided_cuda(", "workspace_0.zero_()",
                                           f".run({first})", f".run({second})", "del workspace_0")]
    assert order == sorted(order)
    inside = set(group["names"]) - {x, y}
    assert inside and not any(f"{name} = " in text for name in inside)
    # Everything around the group is as it was.
    assert text.count("extern_kernels.mm(") == 1 and "kernelopt" not in plain.program["wrapper"]
    kept = [kernel for kernel in record.program["kernels"] if "kernelopt" not in kernel["name"]]
    assert len(kept) == len(generated(plain.program)) - len(group["step_digests"])

    sources = [kernel["source"] for kernel in record.program["kernels"] if "kernelopt" in kernel["name"]]
    assert all("'fixed_grid': [128, 1, 1]" in source and "coordinate_descent" not in source for source in sources)
    assert "{'x': '*fp32', 's': '*fp32', 'y': '*fp32'}" in sources[1]
    assert "{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]]}" in sources[1]
    assert re.search(r"async_compile\.triton\('kernelopt_\w{8}_sums', r'''", text)


def autotuner(source, path):
    """The kernel object that the wrapper's process would hold."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    name = next(node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
                and any("fixed_config" in ast.unparse(item) for item in node.decorator_list))
    return getattr(module, name)


def test_a_cooperative_launch_says_so_to_the_compilers_launcher(plain):
    group = softmax_group(plain)
    item = softmax_candidate(group)
    item["launches"][0]["cooperative"] = True
    record = compile_text(model, INPUTS, Session(kernel_set=kernel_set(plain.fingerprint, [(group, item)])))
    assert record.problems == []
    sources = [kernel["source"] for kernel in record.program["kernels"] if "kernelopt" in kernel["name"]]
    assert ["'launch_cooperative_grid': True" in source for source in sources] == [True, False]


def test_definitions_compile_and_launch_statically(plain, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    group = softmax_group(plain)
    session = Session(kernel_set=kernel_set(plain.fingerprint, [(group, softmax_candidate(group, zeroed=False))]))
    record = compile_text(model, INPUTS, session)
    assert ".zero_()" not in record.program["wrapper"]
    sources = [kernel["source"] for kernel in record.program["kernels"] if "kernelopt" in kernel["name"]]
    assert len(sources) == 2
    for number, source in enumerate(sources):
        with h200():
            kernel = autotuner(source, tmp_path / f"definition{number}.py")
            (configuration,) = kernel.configs
            result = kernel._precompile_config(configuration)
        assert configuration.num_warps == 4 and configuration.num_stages == 2 and configuration.kwargs == {}
        assert "Static" in type(result).__name__ and result.kernel.arg_tys.count("O") == (2, 3)[number]
        from torch._inductor.runtime.triton_heuristics import GridExpr

        grid = GridExpr.from_meta(kernel.inductor_meta, configuration)
        assert (grid.x_grid, grid.y_grid, grid.z_grid) == (ROWS, 1, 1)


@pytest.mark.parametrize("change, reason", [
    (lambda c: c["launches"][0].pop("programs"), "without programs"),
    (lambda c: c["kernels"][0].update(source=SUMS.replace("def sums", "def total")), "no function sums"),
    (lambda c: c["kernels"][0].update(source=SUMS.replace("(x, s)", "(x, s, n)")), "takes 3 parameters, not 2"),
    (lambda c: c["kernels"][0].update(source=SUMS + "'''"), "no Python"),
    (lambda c: c.update(language="cpp"), "is not on cpu"),
    (lambda c: c["launches"].pop(), "does not write"),
])
def test_candidates_that_do_not_fit_leave_the_compilers_step(plain, change, reason):
    group = softmax_group(plain)
    candidate = softmax_candidate(group)
    change(candidate)
    record = compile_text(model, INPUTS, Session(kernel_set=kernel_set(plain.fingerprint, [(group, candidate)])))
    assert record.replaced == [] and reason in record.problems[0]
    assert record.program["wrapper"].count("triton_") == plain.program["wrapper"].count("triton_")


def test_another_gpu_is_refused(plain):
    group = softmax_group(plain)
    other = {**plain.fingerprint, "gpu": "NVIDIA H100 PCIe"}
    record = compile_text(model, INPUTS, Session(kernel_set=kernel_set(other, [(group, softmax_candidate(group))])))
    assert record.replaced == [] and "gpu was NVIDIA H100 PCIe, is NVIDIA H200" in record.problems


def test_inside_a_partition_for_cuda_graphs(plain):
    group = softmax_group(plain)
    kernels = kernel_set(plain.fingerprint, [(group, softmax_candidate(group))])
    record = compile_text(model, INPUTS, Session(kernel_set=kernels), **{"triton.cudagraphs": True})
    assert record.problems == [] and len(record.replaced) == 1
    text = record.program["wrapper"]
    body = text[text.index("def partition_0(args):"):]
    body = body[:body.index("return (")]
    assert body.count("triton_kernelopt_") == 2 and body.count("workspace_0.zero_()") == 1


def accumulate(x, state, scale):
    """Writes its second input; its third may be a number on the host."""
    torch.ops.aten.add_(state, torch.ops.aten.mul(x, scale))
    return torch.tanh(state)


ACCUMULATE = """import triton
import triton.language as tl

@triton.jit
def accumulate(x, state, scale, y):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    value = tl.load(state + at) + tl.load(x + at) * tl.load(scale + at)
    tl.store(state + at, value)
    tl.store(y + at, value)
"""


def described(inputs, devices=None):
    program = compile_text(accumulate, inputs, Session(), devices)
    session = Session(isolate={0: [[name] for name in generated(program.program)]})
    record = compile_text(accumulate, inputs, session, devices)
    return program, [_description(GroupView(program.program, steps), program.fingerprint, plan) for steps, plan in record.described]


def test_an_input_that_is_written_stays_where_it_is():
    inputs = [torch.empty(4096), torch.empty(4096), torch.empty(4096)]
    program, groups = described(inputs)
    group = next(group for group in groups if "arg1_1" in group["names"] or "state_1" in group["names"])
    state = next(name for name in group["reads"] if name in group["writes"])
    out = next(name for name in group["writes"] if name != state)
    x, scale = (name for name in group["reads"] if name != state)
    params = [{"name": name, "dtype": "float32", "role": role}
              for name, role in ((x, "in"), (state, "inout"), (scale, "in"), (out, "out"))]
    candidate = {"format": "kernelopt.candidate", "version": 1, "language": "triton", "group": group["digest"], "digest": "hand",
                 "kernels": [{"name": "accumulate", "source": ACCUMULATE, "params": params}], "scratch": [],
                 "launches": [{"kernel": "accumulate", "args": [x, state, scale, out], "programs": 4, "warps": 4, "stages": 1}]}
    record = compile_text(accumulate, inputs, Session(kernel_set=kernel_set(program.fingerprint, [(group, candidate)])))
    assert record.problems == [] and len(record.replaced) == 1
    real = group["names"][int(state[1:])]
    assert record.program["buffers"][real]["kind"] == "input"
    (call,) = re.findall(r"triton_kernelopt_\d+\.run\((.*?)\)", record.program["wrapper"])
    assert call.split(", ")[1] == real
    source = next(kernel["source"] for kernel in record.program["kernels"] if "kernelopt" in kernel["name"])
    assert "'mutated_arg_names': ['state']" in source


def test_a_number_on_the_host_is_refused():
    inputs = [torch.empty(4096), torch.empty(4096), torch.empty(())]
    _, groups = described(inputs, ["cuda", "cuda", "cpu"])
    refused = [group["refused"] for group in groups if group["refused"]]
    assert refused and all("number on the host" in reason for reason in refused)


def pieces(x, w, y):
    """One piece is a library's result, so that the other is a step of its own."""
    return torch.cat([x @ w, torch.exp(y)])


PIECE = """import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def piece(y, z):
    at = tl.arange(0, 64)
    tl.store(z + at, libdevice.exp(tl.load(y + at, mask=at < 50)), mask=at < 50)
"""


def test_a_piece_of_a_concatenation_keeps_its_place_and_claims_no_alignment_that_it_lacks():
    inputs = [torch.empty(9, 5), torch.empty(5, 5), torch.empty(10, 5)]
    program = compile_text(pieces, inputs, Session())
    buffers = program.program["buffers"]
    step = next(step for step in program.program["steps"] if step["kind"] == "generated"
                and any(buffers[name]["layout"] == "non_owning" and buffers[name]["offset"] == 45 for name in step["writes"]))
    session = Session(isolate={0: [[step["name"]]]})
    record = compile_text(pieces, inputs, session)
    ((steps, plan),) = record.described
    group = _description(GroupView(program.program, steps), program.fingerprint, plan)
    (y,), (z,) = group["reads"], group["writes"]
    params = [{"name": y, "dtype": "float32", "role": "in"}, {"name": z, "dtype": "float32", "role": "out"}]
    candidate = {"format": "kernelopt.candidate", "version": 1, "language": "triton", "group": group["digest"], "digest": "hand",
                 "kernels": [{"name": "piece", "source": PIECE, "params": params}], "scratch": [],
                 "launches": [{"kernel": "piece", "args": [y, z], "programs": 1, "warps": 1, "stages": 1}]}
    kernels = kernel_set(program.fingerprint, [(group, candidate)])
    record = compile_text(pieces, inputs, Session(kernel_set=kernels))
    assert record.problems == [] and len(record.replaced) == 1
    text, real = record.program["wrapper"], group["names"][int(z[1:])]
    owner = buffers[real]["base"]
    assert f"{real} = reinterpret_tensor({owner}, (10, 5), (5, 1), 45)" in text
    run = re.search(r"triton_kernelopt_\d+\.run\(", text).start()
    assert text.index(f"{owner} = empty_strided_cuda") < text.index(f"{real} = reinterpret_tensor") < run
    source = next(kernel["source"] for kernel in record.program["kernels"] if "kernelopt" in kernel["name"])
    assert "(0,): [['tt.divisibility', 16]]" in source and "(1,):" not in source


def several(x, y):
    return torch._foreach_add([x, y], [x, y])


def test_bodies_that_the_compiler_prints_side_by_side():
    inputs = [torch.empty(64, 100), torch.empty(32, 100)]
    program = compile_text(several, inputs, Session())
    (step,) = (step for step in program.program["steps"] if step["kind"] == "generated")
    assert step["refused"] is None and [body["vars"][0]["extent"] for body in step["bodies"]] == [6400, 3200]
    ((steps, plan),) = compile_text(several, inputs, Session(isolate={0: [[step["name"]]]})).described
    group = _description(GroupView(program.program, steps), program.fingerprint, plan)
    assert group["refused"] is None and len(group["writes"]) == 2
    (launch,) = group["baseline"]["launches"]
    assert set(launch["args"]) >= {*group["reads"], *group["writes"]}


NARROW = """import triton
import triton.language as tl

@triton.jit
def narrow(x, w, x16, w16):
    tl.store(x16, tl.load(x).to(tl.float16))
    tl.store(w16, tl.load(w).to(tl.float16))
"""
WIDEN = """import triton
import triton.language as tl

@triton.jit
def widen(y16, y):
    tl.store(y, tl.load(y16).to(tl.float32))
"""


def upsampled(x, w):
    return torch.relu(torch.conv_transpose2d(x, w, stride=2, output_padding=1))


def test_a_library_call_between_a_candidates_kernels():
    """Its operands are views of scratch, its result is looked at before it is used and dropped after."""
    inputs = [torch.empty(2, 16, 8, 8), torch.empty(16, 24, 3, 3)]
    plain = compile_text(upsampled, inputs, Session())
    step = next(step for step in plain.program["steps"] if step["kind"] == "extern")
    assert step["extern"]["convolution"]["transposed"] is True
    (group,), _ = describe(plain.program, plain.fingerprint, [[step["name"]]], upsampled, inputs)
    assert group["refused"] is None and [kernel.get("call") for kernel in group["baseline"]["kernels"]] == ["convolution"]
    (x, w), (y,) = group["reads"], group["writes"]
    numbers = {"x": {"size": [2, 16, 8, 8], "stride": [1024, 1, 128, 16]}, "w": {"size": [16, 24, 3, 3], "stride": [216, 1, 72, 24]},
               "out": {"size": [2, 24, 18, 18], "stride": [7776, 1, 432, 24]}, "stride": [2, 2], "padding": [0, 0],
               "dilation": [1, 1], "transposed": True}

    def params(*pairs):
        return [{"name": name, "dtype": "float32" if role in ("in", "out") else "float16", "role": role} for name, role in pairs]

    launch = {"programs": 1, "warps": 4, "stages": 1}
    scratch = [{"name": name, "dtype": "float16", "elements": elements, "zeroed": False}
               for name, elements in (("x16", 2048), ("w16", 3456), ("y16", 15552))]
    scratch[2]["returned"] = True
    candidate = {
        "format": "kernelopt.candidate", "version": 1, "language": "triton", "group": group["digest"], "digest": "hand",
        "kernels": [{"name": "narrow", "source": NARROW, "params": params((x, "in"), (w, "in"), ("x16", "scratch"), ("w16", "scratch"))},
                    {"name": "convolve", "call": "convolution", "numbers": numbers,
                     "params": params(("x16", "scratch"), ("w16", "scratch"), ("y16", "scratch"))},
                    {"name": "widen", "source": WIDEN, "params": params(("y16", "scratch"), (y, "out"))}],
        "launches": [{"kernel": "narrow", "args": [x, w, "x16", "w16"], **launch}, {"kernel": "convolve", "args": ["x16", "w16", "y16"]},
                     {"kernel": "widen", "args": ["y16", y], **launch}],
        "scratch": scratch, "threads": 1, "plan": {}, "formats": ["fp16 for tf32"]}
    session = Session(kernel_set=kernel_set(plain.fingerprint, [(group, candidate)]))
    record = compile_text(upsampled, inputs, session)
    assert record.problems == [] and [entry["digest"] for entry in record.replaced] == [group["digest"]]
    text = record.program["wrapper"]
    ast.parse(text)
    (call,) = re.findall(r"(kernelopt_returned\d+) = torch\.convolution\(torch\.as_strided\((\w+), \(2, 16, 8, 8\), \(1024, 1, 128, 16\), 0\), "
                         r"torch\.as_strided\((\w+), \(16, 24, 3, 3\), \(216, 1, 72, 24\), 0\), None, \[2, 2\], \[0, 0\], \[1, 1\], True, \[1, 1\], 1\)",
                         text)
    returned, x16, w16 = call
    own = [args for args in re.findall(r"triton_kernelopt_\d+\.run\((.*?)\)", text)]
    assert f"{x16}, {w16}," in own[0] and own[1].startswith(f"{returned}, ")
    assert text.count("extern_kernels.convolution") == 0
    order = [text.index(part) for part in (own[0], f"{returned} = ", f"assert_size_stride({returned}, (2, 24, 18, 18), (7776, 1, 432, 24)",
                                           own[1], f"del {returned}")]
    assert order == sorted(order)


FILLED = """import triton
import triton.language as tl

@triton.jit
def filled(x, y):
    tl.store(y, tl.load(x))
"""


def pooled(x):
    return torch.nn.functional.avg_pool3d(x, 3, 2, 1)


def test_a_pool_of_the_library():
    """Two nodes and one step: the baseline is ATen's call, and a candidate writes into memory that the program then makes itself."""
    inputs = [torch.empty(2, 3, 9, 8, 8)]
    plain = compile_text(pooled, inputs, Session())
    (step,) = plain.program["steps"]
    assert step["extern"]["op"] == "aten.avg_pool3d.default" and step["reads"] == plain.program["inputs"]
    (group,), _ = describe(plain.program, plain.fingerprint, [[step["name"]]], pooled, inputs)
    assert group["refused"] is None and [kernel.get("call") for kernel in group["baseline"]["kernels"]] == ["pool"]
    (x,), (y,) = group["reads"], group["writes"]
    params = [{"name": name, "dtype": "float32", "role": role} for name, role in ((x, "in"), (y, "out"))]
    candidate = {
        "format": "kernelopt.candidate", "version": 1, "language": "triton", "group": group["digest"], "digest": "hand",
        "kernels": [{"name": "filled", "source": FILLED, "params": params}],
        "launches": [{"kernel": "filled", "args": [x, y], "programs": 1, "warps": 4, "stages": 1}], "scratch": [], "threads": 1,
        "plan": {}, "formats": []}
    record = compile_text(pooled, inputs, Session(kernel_set=kernel_set(plain.fingerprint, [(group, candidate)])))
    assert record.problems == [] and [entry["steps"] for entry in record.replaced] == [[step["name"]]]
    body = record.program["wrapper"].split("def call")[1]
    ast.parse(record.program["wrapper"])
    assert "avg_pool3d" not in body
    (name,) = re.findall(r"(buf\d+) = empty_strided_cuda\(\(2, 3, 5, 4, 4\), \(240, 80, 16, 4, 1\), torch\.float32\)", body)
    assert body.index(f"{name} = ") < body.index(".run(") and "del buf0" not in body
