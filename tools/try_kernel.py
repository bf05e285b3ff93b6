"""Compiles the code generator's candidates for a model's groups, checks them against the compiler's own kernels and times both.

    tools/try_kernel.py MODEL.py --dump build/codegen_dump [--group N] [--starts K] [--moves K] [--seconds S]

A developer's tool: it reports, nothing is released from here. Needs this repository's python/ folder and a torch that the
bridge supports. Both sides are called through ctypes, in alternation; ratios are of medians.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import torch  # noqa: E402
from torch._inductor import cpp_builder, cpu_vec_isa  # noqa: E402

from kernelopt.bridge.__main__ import _load  # noqa: E402
from kernelopt.bridge.capture import capture, describe_groups  # noqa: E402

DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16,
          "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8,
          "bool": torch.bool}


def compile_source(source: str, folder: pathlib.Path, name: str):
    path = folder / f"{name}.cpp"
    path.write_text(source)
    options = cpp_builder.CppTorchOptions(vec_isa=cpu_vec_isa.pick_vec_isa())
    builder = cpp_builder.CppBuilder(name=name, sources=str(path), output_dir=str(folder), BuildOption=options)
    started = time.perf_counter()
    done = subprocess.run(builder.get_command_line().split(), capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        raise RuntimeError(done.stderr[:3000])
    return ctypes.CDLL(builder.get_target_file_path()), seconds


class Kernels:
    """A candidate document, compiled, bound to tensors by canonical name."""

    def __init__(self, document, folder, label):
        self.document, self.seconds = document, 0.0
        self.functions = {}
        for kernel in document["kernels"]:
            library, seconds = compile_source(kernel["source"], folder, f"{label}_{kernel['name']}")
            self.functions[kernel["name"]] = library.kernel
            self.seconds += seconds

    def bind(self, buffers):
        scratch = {}
        for entry in self.document["scratch"]:
            scratch[entry["name"]] = torch.zeros(entry["elements"], dtype=DTYPES[entry["dtype"]])
        calls = []
        for launch in self.document["launches"]:
            pointers = [ctypes.c_void_p((scratch.get(name) if name in scratch else buffers[name]).data_ptr()) for name in launch["args"]]
            calls.append((self.functions[launch["kernel"]], pointers))

        def run():
            for function, pointers in calls:
                function(*pointers)
        run.keep = (scratch, buffers)
        return run


def make_buffers(program, names, seed):
    generator = torch.Generator().manual_seed(seed)
    result = {}
    for number, name in enumerate(names):
        entry = program["buffers"][name]
        elements = 1
        for size, stride in zip(entry["size"], entry["stride"]):
            elements += (size - 1) * stride if size > 0 else 0
        dtype = DTYPES[entry["dtype"]]
        if dtype.is_floating_point:
            flat = torch.randn(elements, generator=generator).to(dtype)
        elif dtype == torch.bool:
            flat = torch.rand(elements, generator=generator) < 0.7
        else:
            flat = torch.randint(0, 100, (elements,), generator=generator).to(dtype)
        result[f"b{number}"] = flat
    return result


def compare(ours, theirs):
    worst = 0.0
    for name, mine in ours.items():
        other = theirs[name]
        if not mine.dtype.is_floating_point:
            if not torch.equal(mine, other):
                return f"{name}: {int((mine != other).sum())} of {mine.numel()} differ"
            continue
        a, b = mine.double(), other.double()
        if not torch.equal(torch.isnan(a), torch.isnan(b)) or not torch.equal(torch.isinf(a), torch.isinf(b)):
            return f"{name}: NaN or inf in other places"
        finite = torch.isfinite(b)
        tolerance = 1e-4 if mine.dtype in (torch.float32, torch.float64) else 1e-2
        error = ((a - b).abs() / (1 + b.abs()))[finite]
        worst = max(worst, float(error.max()) if error.numel() else 0.0)
        if worst > tolerance:
            return f"{name}: error {worst:.2e}"
    return worst


def race(left, right, seconds, clock=time.perf_counter):
    """Samples of both in alternation."""
    for _ in range(2):
        left(), right()
    samples = [], []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(samples[0]) < 5:
        for which, run in enumerate((left, right)):
            started = clock()
            run()
            samples[which].append(clock() - started)
    return samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--dump", default=str(ROOT / "build" / "codegen_dump"))
    parser.add_argument("--group", type=int)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--moves", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--single", action="store_true", help="one thread, processor time: for busy machines")
    parser.add_argument("--keep", help="folder for sources and libraries")
    options = parser.parse_args()
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="try_kernel_"))
    folder.mkdir(parents=True, exist_ok=True)
    if options.single:
        torch.set_num_threads(1)
    threads = torch.get_num_threads()
    for model_path in options.models:
        try_model(model_path, options, folder, threads)


def try_model(model_path, options, folder, threads):
    stem = pathlib.Path(model_path).stem
    torch._dynamo.reset()
    model, inputs = _load(model_path, "cpu")
    captured = capture(model, inputs, "default", text_only=True)
    for program in captured.programs:
        path = folder / f"{stem}.{program['graph']}.json"
        path.write_text(json.dumps(program, allow_nan=False))
        command = [options.dump, str(path), "--threads", str(threads), "--starts", str(options.starts), "--moves", str(options.moves)]
        if options.group is not None:
            command += ["--group", str(options.group)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{stem}: codegen_dump failed: {done.stderr[:500]}")
            continue
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        headers = [line for line in lines if "steps" in line]
        described = describe_groups(captured, [header["steps"] for header in headers], program["graph"])
        for header, group in zip(headers, described):
            label = f"{stem} group {header['group']} ({len(header['steps'])} steps)"
            if "refused" in header or group["refused"]:
                print(f"{label}: refused: {header.get('refused') or group['refused']}")
                continue
            try_group(label, program, header, group, [line for line in lines if line.get("group") == header["group"] and "kind" in line],
                      folder, options, f"{stem}{program['graph']}_{header['group']}")


def try_group(label, program, header, group, candidates, folder, options, stem):
    # The dump numbers buffers by the group's own lists; the bridge by first appearance.
    order = []
    for name in header["names"] + header["inputs"] + header["outputs"] + header["internals"]:
        if name not in order:
            order.append(name)
    ours_of = {name: f"b{number}" for number, name in enumerate(order)}
    names = group["names"]
    outputs = [name for name in header["outputs"]]
    base = Kernels(group["baseline"], folder, f"{stem}_base")
    start = make_buffers(program, names, 7)
    theirs = {name: tensor.clone() for name, tensor in start.items()}
    base.bind(theirs)()
    expected = {name: theirs[f"b{names.index(name)}"].clone() for name in outputs}
    for number, line in enumerate(candidates):
        text = f"{line['kind']}: {line['description']}"
        if "refused" in line:
            print(f"  {label} #{number} {text}: refused: {line['refused']}")
            continue
        try:
            kernels = Kernels(line["candidate"], folder, f"{stem}_c{number}")
        except RuntimeError as error:
            print(f"  {label} #{number} {text}: DOES NOT COMPILE\n{error}")
            continue
        mine = {ours_of[name]: start[f"b{index}"].clone() for index, name in enumerate(names) if name in ours_of}
        for name in outputs:
            reads = any(param["name"] == ours_of[name] and param["role"] != "out" for k in line["candidate"]["kernels"] for param in k["params"])
            if not reads:
                mine[ours_of[name]].fill_(77)
        run = kernels.bind(mine)
        run()
        verdict = compare({name: mine[ours_of[name]] for name in outputs}, expected)
        if isinstance(verdict, str):
            print(f"  {label} #{number} {text}: WRONG {verdict}")
            continue
        ours, compiler = race(run, base.bind(theirs), options.seconds, time.thread_time if options.single else time.perf_counter)
        ratio = statistics.median(compiler) / statistics.median(ours)
        print(f"  {label} #{number} {text}: {ratio:.2f}x  ({statistics.median(compiler) * 1e3:.3f} -> {statistics.median(ours) * 1e3:.3f} ms, "
              f"min {min(compiler) * 1e3:.3f} -> {min(ours) * 1e3:.3f}), error {verdict:.1e}, compiled in {kernels.seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
