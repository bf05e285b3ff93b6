#!/usr/bin/env python3
"""Times the first candidates for float32 matrix products against the library's call, on this machine's GPU.

    tools/time_products.py --dump build/release/codegen_dump [--shape NAME:M,N,K,ta,tb,bias ...]

One line a candidate: format, where the operands are split, block sizes, milliseconds of both sides (medians, taken in turn, the
second-level cache flushed, the host's share left out), the ratio, and rho of the worst of 64 rows against float64. A shape's last three
numbers say whether a and b are transposed in memory and whether a bias is added. This is a benchmark of kernels alone: no gate
looks at them here.
"""

import argparse
import concurrent.futures
import hashlib
import importlib.util
import json
import multiprocessing
import os
import statistics
import subprocess
import tempfile

import torch

SHAPES = {
    "512": (512, 512, 512, 0, 1, 1), "1024": (1024, 1024, 1024, 0, 1, 1), "2048": (2048, 2048, 2048, 0, 0, 0),
    "4096": (4096, 4096, 4096, 0, 0, 0), "rows16": (16, 4096, 4096, 0, 1, 1), "rows128": (128, 8192, 8192, 0, 1, 1),
    "rows1024": (1024, 4096, 1024, 0, 1, 1), "linear": (1024, 8192, 8192, 0, 1, 1), "deep": (256, 256, 262144, 0, 0, 0),
    "odd": (8205, 5921, 2949, 0, 0, 0), "thin": (16384, 16384, 64, 0, 0, 0),
}
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int32": torch.int32}


def program(m, n, k, ta, tb, bias):
    """A `kernelopt.program` of one library call."""
    def buffer(size, stride, kind):
        return {"kind": kind, "dtype": "float32", "size": size, "stride": stride, "offset": 0, "device": "cuda", "layout": "fixed",
                "base": None, "mutates": None, "is_output": kind == "computed", "removable": False, "value": None}

    def index(first, second, strides):
        return {"add": [{"mul": [strides[0], first]}, {"mul": [strides[1], second]}]}

    a, b = (1, m) if ta else (k, 1), (1, k) if tb else (n, 1)
    buffers = {"a": buffer([m, k], list(a), "input"), "b": buffer([k, n], list(b), "input"), "out": buffer([m, n], [n, 1], "computed")}
    ops = [{"id": 0, "op": "load", "buffer": "a", "index": index("p0", "p2", a)},
           {"id": 1, "op": "load", "buffer": "b", "index": index("p2", "p1", b)}, {"id": 2, "op": "mul", "args": [0, 1]},
           {"id": 3, "op": "reduction", "type": "sum", "dtype": "float32", "src_dtype": "float32", "args": [2]}]
    if bias:
        buffers["bias"] = buffer([n], [1], "input")
        ops += [{"id": 4, "op": "load", "buffer": "bias", "index": "p1"}, {"id": 5, "op": "add", "args": [3, 4]}]
    ops.append({"id": -1, "op": "store_reduction", "buffer": "out", "index": index("p0", "p1", (n, 1)), "args": [ops[-1]["id"]]})
    body = {"name": "op0", "ops": ops, "vars": [{"name": f"p{i}", "extent": extent, "kind": "reduce" if i == 2 else "iter"}
                                                for i, extent in enumerate((m, n, k))]}
    reads = [name for name in buffers if name != "out"]
    step = {"name": "op0", "kind": "extern", "reads": reads, "writes": ["out"], "last_use": [], "origins": [], "refused": None,
            "bodies": [body], "extern": {"call": "extern_kernels.mm", "op": "aten.mm.out", "args": reads}}
    return {"format": "kernelopt.program", "version": 1, "torch": "2.11.0", "adapter": "2.11", "device": "cuda", "graph": 0,
            "inputs": reads, "outputs": ["out"], "buffers": buffers, "steps": [step], "wrapper": "", "kernels": []}


def candidates(dump, folder, shape):
    path = os.path.join(folder, "program.json")
    with open(path, "w") as file:
        json.dump(program(*shape), file)
    done = subprocess.run([dump, path, "--device", "cuda"], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line["candidate"] for line in lines if "candidate" in line]


def load(folder, kernel):
    path = os.path.join(folder, f"{kernel['name']}_{hashlib.sha256(kernel['source'].encode()).hexdigest()[:16]}.py")
    if not os.path.exists(path):
        with open(f"{path}.{os.getpid()}", "w") as file:
            file.write(kernel["source"])
        os.replace(f"{path}.{os.getpid()}", path)
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel["name"])


def warm(folder, candidate):
    """Compiles into Triton's cache; None or what went wrong."""
    from triton.runtime.jit import MockTensor

    kernels = {kernel["name"]: kernel for kernel in candidate["kernels"]}
    try:
        for launch in candidate["launches"]:
            kernel = kernels[launch["kernel"]]
            arguments = [MockTensor(TYPES[param["dtype"]], [16]) for param in kernel["params"]]
            load(folder, kernel).warmup(*arguments, grid=(launch["programs"],), num_warps=launch["warps"], num_stages=launch["stages"])
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[-160:]}"
    return None


def median_ms(sides, samples=9):
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    times = {name: [] for name in sides}
    for call in [*sides.values()] * 2:
        call()
    for _ in range(samples):
        for name, call in sides.items():
            flush.zero_()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(200000)  # the launches are queued before the first one starts
            begin.record()
            call()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end))
    return {name: statistics.median(taken) for name, taken in times.items()}


def time_shape(name, shape, found, errors, folder):
    m, n, k, ta, tb, bias = shape
    a = torch.randn(k, m, device="cuda").t() if ta else torch.randn(m, k, device="cuda")
    b = torch.randn(n, k, device="cuda").t() if tb else torch.randn(k, n, device="cuda")
    c = torch.randn(n, device="cuda") if bias else None
    theirs, ours = torch.empty(m, n, device="cuda"), torch.empty(m, n, device="cuda")

    def library():
        torch.addmm(c, a, b, out=theirs) if bias else torch.mm(a, b, out=theirs)

    library()
    rows = slice(0, 64)
    exact = a[rows].double() @ b.double() + (c.double() if bias else 0)

    def distance(result):
        return float(((result[rows].double() - exact).norm(dim=-1) / exact.norm(dim=-1)).max())

    tensors = dict(zip(("b0", "b1", "b2", "b3"), (a, b, c, ours) if bias else (a, b, ours)))
    for candidate, error in zip(found, errors):
        plan = candidate["plan"]
        head = f"{name} {candidate['formats'][0]} {'inside' if plan['inside'] else 'before'} " + "x".join(
            str(plan[key]) for key in ("block_m", "block_n", "block_k")) + f" warps {plan['warps']} stages {plan['stages']} split {plan['split_k']}"
        if error is not None:
            print(f"{head}: {error}", flush=True)
            continue
        kernels = {kernel["name"]: load(folder, kernel) for kernel in candidate["kernels"]}
        scratch = {entry["name"]: torch.zeros(entry["elements"], dtype=TYPES[entry["dtype"]], device="cuda") for entry in candidate["scratch"]}
        launches = [(kernels[launch["kernel"]], launch["programs"], [scratch[arg] if arg in scratch else tensors[arg] for arg in launch["args"]],
                     {"num_warps": launch["warps"], "num_stages": launch["stages"]}) for launch in candidate["launches"]]

        def run():
            for kernel, programs, arguments, options in launches:
                kernel[(programs,)](*arguments, **options)

        ours.fill_(float("nan"))
        run()
        rho = distance(ours) / max(distance(theirs), 1e-8)
        times = median_ms({"library": library, "ours": run})
        print(f"{head}: library {times['library']:.4f} ms, ours {times['ours']:.4f} ms, {times['library'] / times['ours']:.2f}x, "
              f"rho {rho:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", required=True, help="the engine's codegen_dump")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME:M,N,K,ta,tb,bias")
    options = parser.parse_args()
    shapes = dict(SHAPES)
    if options.shape:
        shapes = {entry.split(":")[0]: tuple(int(part) for part in entry.split(":")[1].split(",")) for entry in options.shape}
    with tempfile.TemporaryDirectory() as folder:
        found = {name: candidates(options.dump, folder, shape) for name, shape in shapes.items()}
        flat = [candidate for group in found.values() for candidate in group]
        workers = max(1, min(16, (os.cpu_count() or 2) - 1))
        with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            errors = iter(list(pool.map(warm, [folder] * len(flat), flat)))
        for name, shape in shapes.items():
            time_shape(name, shape, found[name], [next(errors) for _ in found[name]], folder)


if __name__ == "__main__":
    main()
