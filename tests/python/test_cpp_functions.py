"""Every function of the C++ printer, in its own formulation and in ATen's vectors, compiled as what ships is, against torch."""

import ctypes
import json
import subprocess

import pytest
import torch
from test_triton_printer import _dump

from kernelopt.bridge.capture import capture
from kernelopt.worker import device

UNARY = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc", "tanh", "sigmoid", "sin", "cos", "tan", "asin", "acos",
         "atan", "sinh", "cosh")  # fmt: skip
BINARY = ("pow", "atan2")


class Functions(torch.nn.Module):
    def forward(self, x, y):
        return [getattr(torch, name)(x) for name in UNARY] + [getattr(torch, name)(x, y) for name in BINARY]


def ordinary(dtype):
    x = torch.cat([torch.linspace(-0.99, 0.99, 403), torch.linspace(-140, 100, 1200)]).to(dtype)
    special = torch.tensor([float("-inf"), float("inf"), float("nan"), 0.0, -0.0, 1e-30, -1e9, -87.4, -103.9, -103.98, 88.7, 200.0], dtype=dtype)
    x = torch.cat([special, x])
    return x, torch.linspace(-2, 3, x.numel()).to(dtype)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_functions_agree_with_torch(dtype, tmp_path):
    dump = _dump()
    if dump is None:
        pytest.skip("codegen_dump is not built; name it in KERNELOPT_CODEGEN_DUMP")
    inputs = ordinary(dtype)
    torch._dynamo.reset()
    program = capture(Functions(), list(inputs), "default", text_only=True).programs[0]
    path = tmp_path / "program.json"
    path.write_text(json.dumps(program))
    bits = str(device.vector_isa()[1])
    lines = subprocess.run([dump, path, "--device", "cpu", "--bits", bits, "--starts", "1", "--moves", "100"],
                           capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()  # fmt: skip
    named = {}
    for name, tensor in zip(program["inputs"], inputs):
        named[name] = tensor
    expected = dict(zip(program["outputs"], Functions()(*inputs)))
    wide = dict(zip(program["outputs"], Functions()(*(tensor.double() for tensor in inputs))))
    functions = dict(zip(program["outputs"], UNARY + BINARY))
    seen = {}
    for line in map(json.loads, lines):
        if "steps" in line:
            header = line
            continue
        if line["kind"] not in ("seed", "fuse steps", "math variant"):
            continue
        assert "candidate" in line, line
        seen.setdefault(line["kind"], set()).update(header["outputs"])
        results = run(line["candidate"], header, named, expected, tmp_path / f"k{len(seen)}_{header['group']}")
        for name, result in results.items():
            # As near to the right value as torch's own function is, within a few units of the last place.
            right = wide[name].to(dtype)
            off, own = (result - right).abs(), (expected[name] - right).abs()
            unit = torch.finfo(dtype).eps * right.abs().clamp_min(torch.finfo(dtype).smallest_normal)
            # ATen's vectors have a polynomial of absolute accuracy for erf.
            slack = 6e-7 if line["kind"] == "math variant" and functions[name] == "erf" else 0
            good = (result == right) | (result.isnan() & right.isnan()) | (off <= 4 * own + 6 * unit + slack)
            where = (~good).nonzero().flatten()[:5]
            assert good.all(), (line["kind"], functions[name], inputs[0][where], result[where], right[where])
    assert seen.get("math variant", set(expected)) == set(expected), "some group has no precise variant"
    assert any(set(expected) == names for names in seen.values()), seen.keys()


def run(candidate, header, named, expected, stem):
    (kernel,) = candidate["kernels"]
    (launch,) = candidate["launches"]
    order = list(dict.fromkeys(header["names"] + header["inputs"] + header["outputs"] + header["internals"]))
    source, output = f"{stem}.cpp", f"{stem}.so"
    with open(source, "w") as file:
        file.write(kernel["source"])
    replaced = {"KERNELOPT_SOURCE.cpp": source, "KERNELOPT_OUTPUT": str(stem)}
    command = [replaced.get(word, word.replace("KERNELOPT_OUTPUT", str(stem))) for word in device.compile_command()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:3000]
    results, pointers = {}, []
    for arg in launch["args"]:
        name = order[int(arg[1:])]
        if name in named:
            pointers.append(named[name].data_ptr())
        else:
            results[name] = torch.full_like(expected[name], 77.0)
            pointers.append(results[name].data_ptr())
    ctypes.CDLL(output).kernel(*map(ctypes.c_void_p, pointers))
    return results
