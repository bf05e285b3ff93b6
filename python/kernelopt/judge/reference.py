"""Eager and float64 references of a model (DESIGN section 6; docs/protocol.md `reference_model`, `compare_model`).

A run starts from a fresh copy of the model and fresh inputs with torch, random and numpy seeded, calls the model `calls`
times on the same arguments and keeps the last call's outputs, the arguments and the model's buffers as they are then.
"""

import collections
import contextlib
import math
import random

import torch

from kernelopt import model_loader, state
from kernelopt.exchange import flatten
from kernelopt.protocol import one_line

from . import compare
from .float64 import NARROW, Float64Mode, widen_state

# References kept at a time, and the bytes that all of them may take (one is always kept).
_KEPT = 12
_KEPT_HOST, _KEPT_PART = 6 << 30, 1 / 8  # on the CPU; of a GPU's memory
_OTHER_SEED = 7919
_SECTIONS = ("outputs", "inputs", "buffers")


class Run:
    """What one run left: `trees` by section, and which random generators it drew from."""

    def __init__(self, trees, drew_torch, drew_python):
        self.trees = trees
        self.drew_torch = drew_torch
        self.drew_python = drew_python


def _snapshot(value):
    # Outputs may alias the inputs or buffers, which the next run may change.
    return state.map_tensors(lambda tensor: tensor.detach().clone() if _dense(tensor) else tensor, value)


def _dense(tensor):
    return tensor.layout == torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)


class Runner:
    """Runs the loaded model; `needs` is what `model_loader.observe` saw."""

    def __init__(self, loaded, needs=()):
        self.loaded = loaded
        self._parameters = "mutates_parameters" in needs

    def run(self, seed, calls, *, arguments=None, torch_seed=None, python_seed=None, double=False, model=None):
        """One run. Errors of the user's code are ProtocolErrors of kind `user`.

        `torch_seed` and `python_seed` replace `seed` for one kind of generator; `arguments` replaces the seed's inputs;
        `double` runs in float64.
        """
        model = self.loaded.fresh() if model is None else model
        arguments = self.loaded.inputs(seed) if arguments is None else arguments
        if double:
            model = widen_state(model)
            arguments = state.copy_inputs(arguments, dtype=torch.float64)
        before = []

        def call(*values):
            if not before:
                if torch_seed is not None:
                    torch.manual_seed(torch_seed)
                if python_seed is not None:
                    random.seed(python_seed)
                    _seed_numpy(python_seed)
                before.extend(model_loader.rng_state())
            with Float64Mode(_narrow_type(self.loaded)) if double else contextlib.nullcontext():
                return model(*values)

        with model_loader.user_code("Model.forward"):
            outputs = _snapshot(model_loader.run_calls(call, arguments, seed, calls))
        changed = [a != b for a, b in zip(before, model_loader.rng_state())]
        buffers = dict(model.named_buffers())
        if self._parameters:
            buffers.update(model.named_parameters())
        trees = {"outputs": outputs, "inputs": list(arguments), "buffers": buffers}
        return Run(trees, changed[0] or any(changed[3:]), any(changed[1:3]))


def _seed_numpy(seed):
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed % (1 << 32))


def _narrow_type(loaded):
    if loaded.dtype is not None:
        return loaded.dtype
    for tensor in loaded.pristine.parameters():
        if tensor.dtype in NARROW:
            return tensor.dtype
    return torch.float32


def _leaves(trees):
    result = []
    for section in _SECTIONS:
        result += [(f"{section}/{path}" if path else section, leaf) for path, leaf in flatten(trees[section])[1]]
    return result


def _difference(a, b, ideal=None):
    """(equal, equal up to rounding, largest absolute difference, first path that differs) between two runs' trees."""
    if any(flatten(a[section])[0] != flatten(b[section])[0] for section in _SECTIONS):
        return False, False, None, "structure"
    equal, close, largest, path = True, True, 0.0, None
    ideals = [leaf for _, leaf in _leaves(ideal)] if ideal is not None else None
    for number, ((name, x), (_, y)) in enumerate(zip(_leaves(a), _leaves(b))):
        leaf = compare.compare_leaf(name, y, x, ideals[number] if ideals is not None else None, [])
        if leaf["equal"]:
            continue
        equal = False
        path = path or name
        largest = max(largest, leaf["max_abs"])
        floating = isinstance(x, torch.Tensor) and x.dtype.is_floating_point
        unit = torch.finfo(x.dtype).eps if floating else 0.0
        # A model that is no function of its inputs has an error against its float64 run that says nothing: hence a cap.
        bound = min(4 * max(leaf["ref_error"], unit * leaf["rms"]), math.sqrt(unit) * leaf["rms"])
        close = close and floating and leaf["shape_equal"] and leaf["nonfinite_equal"] and leaf["max_abs"] <= bound
    return equal, close, largest, path


class References:
    """The references of one loaded model by (seed, calls), least recently used dropped first."""

    def __init__(self, loaded, needs=()):
        self.loaded = loaded
        self.runner = Runner(loaded, needs)
        self._kept = collections.OrderedDict()
        self._degenerate = None
        self._summaries = {}

    def get(self, seed, calls):
        """(eager trees, float64 trees or None, why there are none or None)."""
        key = (seed, calls)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        eager = self.runner.run(seed, calls)
        ideal, reason = self._double(seed, calls, eager.trees)
        self._share_inputs(seed, eager.trees, ideal)
        self._kept[key] = (eager, ideal, reason)
        limit = state.memory_share(self.loaded.device, _KEPT_PART, _KEPT_HOST)
        while len(self._kept) > 1 and (len(self._kept) > _KEPT or self._bytes() > limit):
            self._kept.popitem(last=False)
        return self._kept[key]

    def _share_inputs(self, seed, eager, ideal):
        """Inputs that the model left as they were are kept once, by the loaded model."""
        drawn = self.loaded.kept_inputs(seed)
        if drawn is None:
            return
        own = [leaf for _, leaf in flatten(list(drawn))[1]]
        for trees in (eager, ideal or {}):
            left = [leaf for _, leaf in flatten(trees.get("inputs"))[1]]
            if len(left) == len(own) and all(_unchanged(a, b) for a, b in zip(left, own)):
                trees["inputs"] = list(drawn)

    def _bytes(self):
        total = 0
        for (seed, _), (eager, ideal, _) in self._kept.items():
            drawn = self.loaded.kept_inputs(seed)
            shared = {id(t) for t in state.tensors_of(list(drawn))} if drawn is not None else set()
            for trees in (eager.trees, ideal or {}):
                for section in trees.values():
                    total += sum(t.numel() * t.element_size() for t in state.tensors_of(section) if _dense(t) and id(t) not in shared)
        return total

    def _double(self, seed, calls, eager):
        try:
            ideal = self.runner.run(seed, calls, double=True).trees
        except Exception as error:  # an op without a float64 kernel, or code that insists on its types
            return None, one_line(str(error))
        if flatten(ideal["outputs"])[0] != flatten(eager["outputs"])[0]:
            return None, "the float64 run gives another structure"
        return ideal, None

    def summary(self, seed, calls):
        """The result of `reference_model`."""
        key = (seed, calls)
        if key not in self._summaries:
            self._summaries[key] = self._summarize(seed, calls)
        return self._summaries[key]

    def _summarize(self, seed, calls):
        eager, ideal, reason = self.get(seed, calls)
        reasons, noise = self._determinism(seed, calls, eager, ideal)
        flags = self._degenerate_flags()
        leaves = []
        for path, leaf in _leaves(eager.trees):
            tensor = isinstance(leaf, torch.Tensor)
            entry = {
                "path": path, "dtype": str(leaf.dtype).removeprefix("torch.") if tensor else type(leaf).__name__,
                "size": list(leaf.shape) if tensor else [], "kind": "tensor" if tensor else "value",
            }
            entry.update(flags["leaves"].get(path, {}))
            leaves.append(entry)
        return {
            "deterministic": not reasons, "reasons": reasons, "noise": noise, "random": eager.drew_torch,
            "float64": ideal is not None, "float64_reason": reason, "constant_output": flags["constant_output"],
            "independent_of_inputs": flags["independent_of_inputs"], "leaves": leaves,
        }

    def _determinism(self, seed, calls, eager, ideal):
        """(why eager cannot be a reference, eager's largest difference from itself in rounding)."""
        reasons = []
        model = self.loaded.fresh()
        stores = _tensor_state(model)
        again = self.runner.run(seed, calls, model=model)
        equal, close, noise, path = _difference(eager.trees, again.trees, ideal)
        if not equal and not close:
            reasons.append(f"eager disagrees with itself on the same inputs and seeds ({path})")
        if eager.drew_python:
            other = self.runner.run(seed, calls, python_seed=seed + _OTHER_SEED)
            _, close, _, path = _difference(eager.trees, other.trees, ideal)
            if not close and not _difference(eager.trees, other.trees)[0]:
                reasons.append(f"Python's or numpy's random generator changes {path}")
        hidden = self._hidden_state(model, stores, seed)
        if hidden is not None:
            reasons.append(f"the output changes from call to call on the same inputs ({hidden})")
        return reasons, noise or 0.0

    def _hidden_state(self, model, stores, seed):
        """The first output that a model which has run before gives otherwise, its tensors put back; None if there is none.

        Parameters and buffers are put back, plain attributes and state outside the model are not: what these change
        shows in no buffer and cannot be compared.
        """
        with torch.no_grad():
            for store, name, tensor, value in stores:
                tensor.copy_(value)
                store[name] = tensor
        first, ideal, _ = self.get(seed, 1)
        second = self.runner.run(seed, 1, model=model)
        equal, close, _, path = _difference(
            _only_outputs(first.trees), _only_outputs(second.trees), None if ideal is None else _only_outputs(ideal)
        )
        return None if equal or close else path

    def _degenerate_flags(self):
        if self._degenerate is None:
            self._degenerate = degenerate(self.loaded, self)
        return self._degenerate


def _unchanged(left, drawn):
    if not (isinstance(left, torch.Tensor) and isinstance(drawn, torch.Tensor) and _dense(left) and _dense(drawn)):
        return not isinstance(left, torch.Tensor) and compare.equal_values(left, drawn)
    if left.shape != drawn.shape or not compare.same_strides(left, drawn):
        return False
    return state.same_bits(left, drawn if left.dtype == drawn.dtype else drawn.to(left.dtype))


def _only_outputs(trees):
    return {"outputs": trees["outputs"], "inputs": [], "buffers": {}}


def _tensor_state(model):
    """Where each parameter and buffer of a model stands, with a copy of its value."""
    return [
        (store, name, tensor, tensor.detach().clone())
        for module in model.modules()
        for store in (module._parameters, module._buffers)
        for name, tensor in store.items()
        if tensor is not None
    ]


def _scaled(arguments):
    return state.map_tensors(
        lambda tensor: tensor * 3 if isinstance(tensor, torch.Tensor) and tensor.dtype.is_floating_point else tensor,
        arguments,
    )


def degenerate(loaded, references):
    """Outputs that are constant, or that other inputs do not change beyond eager's own rounding error.

    `{"constant_output", "independent_of_inputs", "leaves": {path: {"constant", "independent"}}}`; the first two are true
    where every floating tensor output is so.
    """
    seed = loaded.seed
    eager, ideal, _ = references.get(seed, 1)
    base = ideal if ideal is not None else eager.trees
    variants = []
    for arguments in (loaded.inputs(seed + _OTHER_SEED), _scaled(loaded.inputs(seed))):
        try:
            variants.append(references.runner.run(seed, 1, arguments=arguments, double=ideal is not None).trees["outputs"])
        except Exception:  # the model need not take these inputs
            continue
    outputs = flatten(base["outputs"])[1]
    exact = [leaf for _, leaf in flatten(eager.trees["outputs"])[1]]
    others = [[leaf for _, leaf in flatten(tree)[1]] for tree in variants]
    others = [leaves for leaves in others if len(leaves) == len(outputs)]
    result = {}
    for number, (path, leaf) in enumerate(outputs):
        own = exact[number]
        if not isinstance(leaf, torch.Tensor) or not isinstance(own, torch.Tensor) or not own.dtype.is_floating_point:
            continue
        noise = 4 * _rounding(own, leaf)
        finite = leaf[torch.isfinite(leaf)].to(torch.float64)
        spread = float(finite.max() - finite.min()) if finite.numel() > 1 else 0.0
        largest = float(finite.abs().max()) if finite.numel() else 0.0
        constant = largest <= noise or (leaf.numel() > 1 and finite.numel() == leaf.numel() and spread <= noise)
        independent = bool(others) and all(_within(leaf, leaves[number], noise) for leaves in others)
        name = f"outputs/{path}" if path else "outputs"
        result[name] = {"constant": constant, "independent": independent}
    return {
        "constant_output": bool(result) and all(flags["constant"] for flags in result.values()),
        "independent_of_inputs": bool(result) and all(flags["independent"] for flags in result.values()),
        "leaves": result,
    }


def _rounding(eager, ideal):
    """Eager's largest error, and at least one rounding unit of its largest value."""
    usable = torch.isfinite(eager) & torch.isfinite(ideal) if eager.shape == ideal.shape else torch.isfinite(eager)
    values = eager[usable].to(torch.float64)
    unit = torch.finfo(eager.dtype).eps / 2 * (float(values.abs().max()) if values.numel() else 0.0)
    if eager.shape != ideal.shape or not values.numel():
        return unit
    return max(unit, float((values - ideal[usable].to(torch.float64)).abs().max()))


def _within(a, b, noise):
    if not isinstance(b, torch.Tensor) or a.shape != b.shape:
        return False
    finite = torch.isfinite(a)
    if not torch.equal(finite, torch.isfinite(b)):
        return False
    gap = (a[finite] - b[finite]).abs()
    return not gap.numel() or float(gap.max()) <= noise
