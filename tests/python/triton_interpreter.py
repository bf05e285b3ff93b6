"""Prints one JSON line a candidate: what Triton's interpreter and the judge say of it. Run by test_triton_printer.py, in a
process of its own, since the interpreter must be on before triton is imported.

    TRITON_INTERPRET=1 python triton_interpreter.py CODEGEN_DUMP FOLDER [CASE...]
"""

import copy
import inspect
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

from kernelopt import exchange  # noqa: E402
from kernelopt.bridge import capture  # noqa: E402
from kernelopt.judge import groups as judge_groups  # noqa: E402
from kernelopt.protocol import ProtocolError  # noqa: E402
from kernelopt.worker import groups as worker_groups  # noqa: E402
from kernelopt.worker import launching, triton_build, triton_compiler  # noqa: E402

TOLERANCES = [{"rtol": 1e-4, "atol": 1e-4, "rms_scaled": True, "error_factor": 4}]
# Ten bits of mantissa in sums of a few hundred terms, where the reference on a CPU has fp32's.
TF32 = [{"rtol": 1e-2, "atol": 5e-2, "rms_scaled": False, "error_factor": 4}]
SCANS = ("cumsum", "cumsum_backwards")
HALF = [{"rtol": 1e-2, "atol": 1e-2, "rms_scaled": True, "error_factor": 4}]


def _rows(*size, dtype=torch.float32):
    return [torch.randn(*size, dtype=dtype)]


CASES = {
    "softmax": (lambda x: torch.softmax(x, -1), lambda: _rows(5, 37)),
    "layer_norm": (lambda x: F.layer_norm(x, (33,)) * 2, lambda: _rows(6, 33)),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda: _rows(1, 2, 9, 9)),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), lambda: [torch.randn(9, 12), torch.randint(0, 12, (9,))]),
    "argmax": (lambda x: torch.argmax(x, 1), lambda: _rows(7, 19)),
    "gelu_chain": (lambda x: F.gelu(x * 1.5 + 0.25) * torch.sigmoid(x) - torch.tanh(x), lambda: _rows(4, 21)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda: _rows(3, 31)),
    "log_softmax_dim1": (lambda x: torch.log_softmax(x, 1), lambda: _rows(2, 11, 5)),
    "embedding": (lambda i, w: F.embedding(i, w) * 2, lambda: [torch.randint(0, 10, (3, 4)), torch.randn(10, 8)]),
    "bfloat16": (lambda x: torch.softmax(x * 2, -1) + 1, lambda: _rows(4, 24, dtype=torch.bfloat16)),
    "sum_of_squares": (lambda x: (x * x).sum(), lambda: _rows(13, 17)),
    "mean_and_amax": (lambda x: (x.mean(1), x.amax(1), (x > 0).any(1)), lambda: _rows(6, 29)),
    "transposed": (lambda x: torch.relu(x.transpose(0, 1).contiguous()) + 1, lambda: _rows(5, 14)),
    "integers": (lambda x: (x // 3, x % 5, x << 1), lambda: [torch.randint(-20, 20, (40,))]),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), lambda: _rows(1, 3, 8, 8)),
    # Windows that the compiler leaves to the library: 27 places, and more than a plan unrolls, the last ones beyond the border.
    "avg_pool_volume": (lambda x: F.avg_pool3d(F.relu(x), 3, 2, 1) + 1, lambda: _rows(2, 2, 7, 9, 9)),
    "avg_pool_ceil": (lambda x: F.avg_pool2d(x, (9, 8), (4, 5), (2, 3), ceil_mode=True, count_include_pad=False), lambda: _rows(2, 3, 20, 21)),
    "adaptive_pool": (lambda x: (F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_max_pool2d(x, (4, 3))), lambda: _rows(2, 3, 20, 21)),
    "expm1_log1p": (lambda x: torch.expm1(x) + torch.log1p(x.abs()), lambda: _rows(50)),
    "product": (lambda x, y: x @ y, lambda: [torch.randn(70, 130), torch.randn(130, 75)]),
    "linear": (lambda x, w, b: F.linear(x.t(), w, b), lambda: [torch.randn(65, 68), torch.randn(66, 65), torch.randn(66)]),
    "batched_product": (lambda x, y: torch.bmm(x, y.transpose(1, 2)), lambda: [torch.randn(2, 9, 40), torch.randn(2, 70, 40)]),
    # Few blocks and a long k: several programs share a block.
    "deep_product": (lambda x, y: x @ y, lambda: [torch.randn(5, 2048), torch.randn(2048, 7)]),
    "convolution": (lambda x, w, b: F.relu(F.conv2d(x, w, None, stride=2, padding=1) + b[:, None, None]) * 2,
                    lambda: [torch.randn(2, 9, 9, 11), torch.randn(20, 9, 3, 3), torch.randn(20)]),
    "convolution_1d": (lambda x, w: F.conv1d(x, w, dilation=2), lambda: [torch.randn(2, 24, 31), torch.randn(17, 24, 3)]),
    "convolution_3d": (lambda x, w, y: F.conv3d(x, w, padding=(1, 0, 1)) + y,
                       lambda: [torch.randn(1, 8, 4, 5, 6), torch.randn(16, 8, 3, 2, 3), torch.randn(1, 16, 4, 4, 6)]),
    "convolution_few_channels": (lambda x, w: F.conv2d(x, w, stride=2), lambda: [torch.randn(2, 3, 9, 8), torch.randn(21, 3, 3, 2)]),
    "convolution_transposed": (lambda x, w, b: F.relu(F.conv_transpose2d(x, w, None, stride=2, padding=1, output_padding=1) + b[:, None, None]),
                               lambda: [torch.randn(2, 9, 5, 6), torch.randn(9, 20, 3, 3), torch.randn(20)]),
    "convolution_transposed_1d": (lambda x, w: F.conv_transpose1d(x, w, dilation=2), lambda: [torch.randn(2, 24, 15), torch.randn(24, 17, 3)]),
    "convolution_transposed_3d": (lambda x, w: F.conv_transpose3d(x, w, stride=(2, 1, 2), padding=(1, 0, 1)),
                                  lambda: [torch.randn(1, 8, 3, 4, 3), torch.randn(8, 16, 3, 2, 3)]),
    "convolution_depthwise": (lambda x, w, b: F.relu(F.conv2d(x, w, None, stride=2, padding=1, groups=6) + b[:, None, None]),
                              lambda: [torch.randn(2, 6, 9, 8), torch.randn(6, 1, 3, 3), torch.randn(6)]),
    "convolution_depthwise_volume": (lambda x, w: F.conv3d(x, w, dilation=(1, 2, 1), padding=(1, 1, 0), groups=3),
                                     lambda: [torch.randn(2, 3, 3, 6, 5), torch.randn(6, 1, 3, 2, 2)]),
    "product_added": (lambda x, y, z: torch.addmm(z, x, y, beta=0.5, alpha=2.0), lambda: [torch.randn(5, 64), torch.randn(64, 8), torch.randn(5, 8)]),
}


# Rows longer than a program holds: the dump then sees a card with few multiprocessors, so that few programs make a team.
LONG = {
    "long_softmax": (lambda x: torch.softmax(x, -1), lambda: _rows(3, 20011)),
    "long_layer_norm": (lambda x, w: F.layer_norm(x, (18000,), w) * 2, lambda: [torch.randn(2, 18000), torch.randn(18000)]),
    "long_norms": (lambda x: x / x.abs().amax(1, keepdim=True) + x.argmax(1, keepdim=True), lambda: _rows(2, 21000)),
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v, training=True).relu(),
                   lambda: [torch.randn(5, 3, 60, 61) * 2 + 1, torch.zeros(3), torch.ones(3)]),
}
CASES.update(LONG)


def at_once(kernel, launch, tensors):
    """Runs a cooperative launch in the interpreter, a thread a program: one after another they would wait for ever."""
    from triton.runtime import interpreter

    builder, own = interpreter.interpreter_builder, threading.local()
    if not hasattr(type(builder), "own"):
        builder.__dict__.pop("grid_idx", None)
        patch_tensor = interpreter._patch_lang_tensor

        def patch_tensor_too(tensor, scope):  # a loop over rows starts at a tensor, which newer numpy does not take for a number
            patch_tensor(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

        interpreter._patch_lang_tensor = patch_tensor_too
        builder.__class__ = type("Threaded", (type(builder),), {"own": own, "grid_idx": property(
            lambda self: getattr(self.own, "index", None), lambda self, index: setattr(self.own, "index", index))})
    function = getattr(triton_build.module_of(triton_compiler.prepare(kernel)), kernel["name"]).rewrite()
    errors = []

    def run():
        scope = interpreter._patch_lang(function)
        args = dict(zip(inspect.getfullargspec(function).args, map(interpreter._implicit_cvt, tensors)))
        builder.set_grid_dim(launch["programs"], 1, 1)

        def program(index):
            try:
                builder.set_grid_idx(index, 0, 0)
                function(**args)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=program, args=(i,), daemon=True) for i in range(launch["programs"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        scope.restore()
        if errors or any(thread.is_alive() for thread in threads):
            raise errors[0] if errors else TimeoutError("a program waits for ever")

    return run


_one_by_one = launching._interpreted
launching._interpreted = lambda kernel, launch, tensors: (at_once if launch.get("cooperative") else _one_by_one)(kernel, launch, tensors)


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def scan_program(backwards):
    """cumsum along rows (from their ends), written by hand: the compiler's CPU code falls back for it."""
    rows, columns = 3, 32 if backwards else 21
    index = {"add": [{"mul": [columns, "p0"]}, "p1"]}
    read = {"add": [{"mul": [columns, "p0"]}, {"mul": [-1, "p1"]}, columns - 1]} if backwards else index
    fields = {"dtype": "float32", "offset": 0, "device": "cpu", "layout": "fixed", "base": None, "mutates": None,
              "removable": False, "value": None, "size": [rows, columns], "stride": [columns, 1]}
    ops = [
        {"id": 0, "op": "load", "buffer": "arg0_1", "index": read},
        {"id": 1, "op": "scan", "dtypes": ["float32"], "args": [0],
         "block": {"params": [2, 3], "ops": [{"id": 4, "op": "add", "args": [2, 3]}], "results": [4]}},
        {"id": -1, "op": "store", "buffer": "buf0", "index": index, "args": [1], "mode": None},
    ]
    body = {"name": "op0", "ops": ops, "vars": [{"name": "p0", "extent": rows, "kind": "iter"},
                                                {"name": "p1", "extent": columns, "kind": "reduce"}]}
    step = {"name": "op0", "kind": "generated", "reads": ["arg0_1"], "writes": ["buf0"], "last_use": [], "origins": [],
            "refused": None, "bodies": [body]}
    buffers = {"arg0_1": {**copy.deepcopy(fields), "kind": "input", "is_output": False},
               "buf0": {**copy.deepcopy(fields), "kind": "computed", "is_output": True}}
    return {"format": "kernelopt.program", "version": 1, "torch": "2.11.0", "adapter": "2.11", "device": "cpu", "graph": 0,
            "inputs": ["arg0_1"], "outputs": ["buf0"], "buffers": buffers, "steps": [step], "wrapper": "", "kernels": []}


def program_of(name):
    if name in SCANS:
        return scan_program(name == "cumsum_backwards")
    function, draw = CASES[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.backends.mkldnn.flags(enabled=False):  # convolutions as a GPU has them
        return capture(Model(function), draw(), "default", text_only=True).programs[0]


def rename(candidate, header, group):
    """codegen_dump knows no canonical names and counts through its own lists: the launch list in the worker's names."""
    order = list(dict.fromkeys(header["names"] + header["inputs"] + header["outputs"] + header["internals"]))
    theirs = {f"b{number}": group.canonical(name) for number, name in enumerate(order)}
    for launch in candidate["launches"]:
        launch["args"] = [theirs.get(arg, arg) for arg in launch["args"]]


def check(judge, path, header, candidate):
    """The line's fields: {"error"} or the comparison's numbers."""
    request = {"program": path, "group": header["steps"]}
    group = worker_groups.group_of(request)
    rename(candidate, header, group)
    # A challenge has a range to guard.
    ranges = {"fp16x3": ("wide", "special"), "fp16 for tf32": ("wide",)}
    for input_case in (case for name in candidate["formats"] for case in ranges[name]):
        if (worst := _run(judge, path, header, candidate, request, group, input_case)).get("violations") != 0:
            return {**worst, "error": worst.get("error", f"{input_case} inputs: {worst}")}
    return _run(judge, path, header, candidate, request, group, "ordinary")


def _run(judge, path, header, candidate, request, group, input_case):
    drawn = judge.inputs(path, header["steps"], 1, input_case)
    leaves = {name: exchange.write_tensor(tensor) for name, tensor in drawn.items()}
    try:
        reply = worker_groups.run_group({**request, "candidate": candidate, "inputs": leaves, "guard_bytes": 1 << 16}, None)
    except ProtocolError as error:
        return {"error": f"{error.message} | {error.detail[-600:]}"}
    except Exception as error:  # the interpreter raises what the kernel's text makes it raise
        while error.__cause__ is not None:
            error = error.__cause__
        return {"error": f"{type(error).__name__}: {error}"}
    outputs = {name: exchange.read_tensor(leaf) for name, leaf in reply["outputs"].items()}
    half = any(not tensor.dtype.itemsize >= 4 and tensor.is_floating_point() for tensor in outputs.values())
    tolerances = TF32 if "fp16 for tf32" in candidate["formats"] else HALF if half else TOLERANCES
    result = judge.compare(path, header["steps"], group.names, 1, input_case, outputs, tolerances)
    exchange.remove_files(leaves)
    return {
        "structure": result["structure_equal"], "violations": sum(leaf["violations"][0] for leaf in result["leaves"]),
        "max_abs": max((leaf["max_abs"] for leaf in result["leaves"]), default=0.0),
        "observed": [reply["inputs_unchanged"], reply["guards_intact"], reply["deterministic"], reply["unwritten"] == 0],
    }


def main():
    dump, folder = sys.argv[1], Path(sys.argv[2])
    os.environ["KERNELOPT_CACHE"] = str(folder / "cache")
    os.environ["KERNELOPT_EXCHANGE"] = str(folder / "exchange")
    for name in sys.argv[3:] or [*CASES, *SCANS]:
        path = folder / f"{name}.json"
        path.write_text(json.dumps(program_of(name)))
        done = subprocess.run([dump, str(path), "--device", "cuda", *(["--threads", "1"] if name in LONG else [])], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            print(json.dumps({"case": name, "error": f"codegen_dump: {done.stderr[-300:]}"}), flush=True)
            continue
        judge, header, seen = judge_groups.Groups(), None, set()
        for line in map(json.loads, done.stdout.splitlines()):
            if "steps" in line:
                header = line
                if "refused" in line:
                    print(json.dumps({"case": name, "refused": line["refused"], "what": "group"}), flush=True)
                continue
            if name in LONG and line["kind"] != "rows kept on chip":
                continue  # whole rows in a loop, which the short cases have
            if line.get("candidate", {}).get("digest") in seen:
                continue  # another plan that prints the same text
            seen.add(line.get("candidate", {}).get("digest") or line["description"])
            record = {"case": name, "what": line["description"]}
            if "refused" in line:
                record["refused"] = line["refused"]
            elif any("bf16" in name for name in line["candidate"]["formats"]):
                record["refused"] = "the interpreter has no bfloat16 products"
            else:
                record.update(check(judge, str(path), header, line["candidate"]))
                if "error" in record or record["violations"]:
                    record["source"] = "\n".join(kernel["source"] for kernel in line["candidate"]["kernels"])
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
