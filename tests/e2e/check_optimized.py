"""Compares a run folder's optimized.py with eager PyTorch; prints one line of JSON: {"failures": [...], "status": ...}.

    check_optimized.py MODEL.py OUT [--case NAME] [--seeds 101,102] [--calls 3] [--strict]

Eager is the truth. Every output leaf, input (mutations) and buffer is compared after every call, in float32 by the rule of
DESIGN.md gate 3 (allclose 1e-4, else a distance to float64 at most 4 times eager's), integers and booleans exactly, NaN
equal to NaN. --case names the extra demands of a model of the shared cases (cases_extra.py).
"""
import argparse
import copy
import importlib.util
import json
import sys
from pathlib import Path

import torch

RHO = 4.0
FLOOR = 1e-8


def load_module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def leaves(value, path="out"):
    """Yields (path, leaf) for tensors and other leaves; containers themselves are compared by `structure`."""
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def structure(value):
    if isinstance(value, dict):
        return (type(value).__qualname__, [(repr(k), structure(v)) for k, v in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value).__module__, type(value).__qualname__, [structure(v) for v in value])
    return type(value).__qualname__


def real_strides(tensor):
    return [stride for stride, size in zip(tensor.stride(), tensor.shape) if size > 1]


def distance(value, reference):
    """Relative L2 distance over entries that are finite in the reference."""
    value, reference = value.double(), reference.double()
    finite = reference.isfinite() & value.isfinite()
    norm = torch.linalg.vector_norm(reference[finite])
    return float(torch.linalg.vector_norm((value - reference)[finite]) / norm) if norm > 0 else 0.0


def same_floats(got, want, exact64, tolerance):
    """None when `got` may stand for eager's `want`, else what is wrong."""
    if got.numel() == 0:
        return None
    if not torch.equal(got.isnan(), want.isnan()):
        return f"NaN in other places ({int(got.isnan().sum())} against {int(want.isnan().sum())})"
    inf = want.isinf() | got.isinf()
    if not torch.equal(got[inf], want[inf]):
        return "infinities in other places"
    finite = want.isfinite()
    a, b = got[finite].double(), want[finite].double()
    if a.numel() == 0:
        return None
    usable = exact64 is not None and exact64.shape == want.shape and bool(exact64[finite].isfinite().all())
    truth = exact64[finite].double() if usable else b
    atol = max(tolerance * min(1.0, float(truth.square().mean().sqrt())), 4 * float((b - truth).abs().max()))
    if bool(((a - b).abs() <= atol + tolerance * b.abs()).all()):
        return None
    if usable:
        d_got, d_want = distance(got, exact64), max(distance(want, exact64), FLOOR)
        if d_got <= RHO * d_want:
            return None
        return f"distance to float64 {d_got:.3g}, eager's {d_want:.3g}; largest difference {float((a - b).abs().max()):.3g}"
    return f"largest difference {float((a - b).abs().max()):.3g}"


def compare_leaf(got, want, exact64=None, strides=True, bits=False):
    if not isinstance(want, torch.Tensor):
        same = type(got) is type(want) and (got == want or (got != got and want != want))
        return None if same else f"{got!r} instead of {want!r}"
    if not isinstance(got, torch.Tensor):
        return f"a {type(got).__name__} instead of a tensor"
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}"
    if strides and want.numel() > 0 and real_strides(got) != real_strides(want):
        return f"strides {got.stride()} instead of {want.stride()}"
    if not want.dtype.is_floating_point or bits:
        same = torch.equal(got, want) or (bits and torch.equal(got.nan_to_num(), want.nan_to_num())
                                          and torch.equal(got.isnan(), want.isnan()))
        return None if same else f"{int((got != want).sum())} elements differ"
    return same_floats(got, want, exact64, 1e-2 if want.dtype in (torch.float16, torch.bfloat16) else 1e-4)


def compare_trees(got, want, exact64, label, **how):
    if structure(got) != structure(want):
        return [f"{label}: structure {structure(got)} instead of {structure(want)}"]
    truths = dict(leaves(exact64)) if exact64 is not None else {}
    failures = []
    for (path, a), (_, b) in zip(leaves(got), leaves(want)):
        wide = truths.get(path)
        wide = wide if isinstance(wide, torch.Tensor) and isinstance(b, torch.Tensor) else None
        problem = compare_leaf(a, b, wide, **how)
        if problem:
            failures.append(f"{label}: {path}: {problem}")
    return failures


def to_double(value):
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype.is_floating_point else value.clone()
    if isinstance(value, dict):
        return {k: to_double(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_double(v) for v in value]
    return value


class Pair:
    """Eager's model and the optimized one, built alike."""

    def __init__(self, model_path, out, seed=7):
        self.source = load_module(model_path, "kernelopt_case_model")
        self.optimized = load_module(Path(out) / "optimized.py", "kernelopt_case_optimized")
        torch.manual_seed(seed)
        self.eager = self.source.Model(*self.source.get_init_inputs())
        torch.manual_seed(seed)
        self.new = self.optimized.ModelNew(*self.source.get_init_inputs())
        self.initial = copy.deepcopy(self.eager)

    def inputs(self, seed):
        """Made anew for each side: clones would lose expanded and overlapping strides."""
        torch.manual_seed(seed)
        return list(self.source.get_inputs())

    def call(self, model, inputs, seed):
        torch.manual_seed(seed)
        with torch.no_grad():
            return model(*inputs)

    def float64(self, model, inputs, seed):
        """The outputs of a float64 copy of the model as it is now, or None where the model has no float64 form."""
        try:
            return self.call(copy.deepcopy(model).double(), to_double(inputs), seed)
        except Exception:
            return None


def compare_state(pair):
    failures = []
    want, got = pair.eager.state_dict(), pair.new.state_dict()
    if list(want) != list(got):
        return [f"state_dict keys {list(got)} instead of {list(want)}"]
    for key in want:
        problem = compare_leaf(got[key], want[key], bits=True)
        if problem:
            failures.append(f"initial {key}: {problem}")
    try:
        pair.new.load_state_dict(pair.eager.state_dict(), strict=True)
        pair.eager.load_state_dict(pair.new.state_dict(), strict=True)
    except Exception as error:
        failures.append(f"load_state_dict(strict=True): {error}")
    return failures


def compare_calls(pair, seeds, calls, how):
    failures = []
    for count, seed in enumerate([s + 1000 * c for c in range(calls) for s in seeds]):
        label = f"call {count + 1}, seed {seed}"
        mine, theirs = pair.inputs(seed), pair.inputs(seed)
        exact64 = pair.float64(pair.eager, pair.inputs(seed), seed)
        want = pair.call(pair.eager, theirs, seed)
        got = pair.call(pair.new, mine, seed)
        failures += compare_trees(got, want, exact64, label, **how)
        failures += compare_trees(mine, theirs, None, f"{label}, inputs afterwards")
        failures += compare_trees(dict(pair.new.named_buffers()), dict(pair.eager.named_buffers()), None,
                                  f"{label}, buffers afterwards")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--case")
    parser.add_argument("--seeds", default="101,102")
    parser.add_argument("--calls", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(2)
    report = json.loads((Path(args.out) / "report.json").read_text())
    pair = Pair(args.model, args.out)
    failures = compare_state(pair)
    extra = None
    if args.case:
        import cases_extra
        extra = cases_extra.CASES.get(args.case, cases_extra.Case)()
    how = {"strides": not (extra and "stride" in json.dumps(report).lower())}
    if extra is None or extra.deterministic:
        failures += compare_calls(pair, [int(s) for s in args.seeds.split(",")], args.calls, how)
    if extra:
        failures += extra.check(pair, report)
    status = getattr(pair.new, "kernelopt_status", None)
    print(json.dumps({"failures": failures, "status": status}, default=str))


if __name__ == "__main__":
    main()
