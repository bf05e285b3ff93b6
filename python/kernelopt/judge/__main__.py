"""The judge process: `python -m kernelopt.judge`, started by the engine (docs/protocol.md; DESIGN section 2).

It holds the eager and the float64 reference and compares what the worker ran. It never imports or runs candidate code:
candidates reach it only as tensors in exchange files.
"""

import os
import platform
import sys

import torch

from kernelopt import bridge, exchange, model_loader, protocol, state
from kernelopt.protocol import ProtocolError, required

from kernelopt.worker import cuda

from . import groups, reference
from . import compare as leaf_compare


def _json(value):
    """The same JSON value with non-finite floats spelled out."""
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return protocol.finite(value)


def _read(tree, what):
    try:
        return exchange.read_tree(tree, cuda.default_device())
    except (KeyError, TypeError, ValueError, OSError, RuntimeError) as error:
        raise ProtocolError("internal", f"{what} cannot be read: {error}") from error


class Judge:
    """Handlers by method name. State: the loaded model's references, and evaluated groups."""

    def __init__(self):
        self._references = None
        self._device = cuda.default_device()
        if self._device == "cuda":
            cuda.unlock_while_compiling()
        self._groups = groups.Groups(self._device)

    def handlers(self):
        names = (
            "hello", "load_model", "reference_model", "compare_model", "group_inputs", "compare_group", "check_lowering",
            "drop_files",
        )
        return {name: self._alone(name, getattr(self, name)) for name in names}

    def _alone(self, name, handler):
        """Nothing of ours uses the GPU while a worker of ours times on it."""
        if self._device == "cpu" or name in ("hello", "drop_files"):
            return handler

        def locked(params, progress):
            cuda.on_wait = lambda: progress(protocol.WAITING, 0, 0)
            with cuda.device_lock():
                result = handler(params, progress)
                cuda.synchronize()
                return result

        return locked

    def hello(self, params, progress):
        # The facts are about the machine, so both processes read them with the same code.
        from kernelopt.worker import device

        try:
            minor = bridge.adapter_for().minor
        except bridge.UnsupportedTorch as error:
            raise ProtocolError("environment", str(error)) from error
        facts = cuda.facts() if self._device == "cuda" else device.cpu_facts()
        fingerprint = bridge.fingerprint(device=self._device)
        return {
            "protocol": protocol.VERSION, "role": "judge", "torch": torch.__version__, "adapter": minor,
            "python": platform.python_version(), "device": facts,
            "fingerprint": cuda.fingerprint(fingerprint) if self._device == "cuda" else fingerprint,
        }

    def load_model(self, params, progress):
        loaded = model_loader.LoadedModel(
            required(params, "path"), params.get("device") or self._device, params.get("dtype"), params.get("seed") or 0,
            params.get("inputs"), params.get("state_dict"),
        )
        _, needs = model_loader.observe(loaded)
        self._references = reference.References(loaded, needs)
        arguments = state.tensors_of(loaded.inputs(loaded.seed))
        return {
            "parameters": sum(tensor.numel() for tensor in loaded.pristine.parameters()),
            "inputs": [
                {
                    "dtype": exchange.dtype_name(tensor.dtype), "size": list(tensor.shape),
                    "stride": list(tensor.stride()) if tensor.layout == torch.strided else [], "device": str(tensor.device),
                }
                for tensor in arguments
            ],
            "needs": needs,
        }

    def _loaded(self):
        if self._references is None:
            raise ProtocolError("internal", "no model is loaded")
        return self._references

    def reference_model(self, params, progress):
        return _json(self._loaded().summary(required(params, "seed"), params.get("calls") or 1))

    def compare_model(self, params, progress):
        tolerances = params.get("tolerances") or []
        eager, ideal, reason = self._loaded().get(required(params, "seed"), params.get("calls") or 1)
        structure_equal, difference, leaves = True, None, []
        for section in ("outputs", "inputs", "buffers"):
            if params.get(section) is None:
                if section == "outputs":
                    raise ProtocolError("internal", "the request lacks the parameter outputs")
                continue
            got = _read(params[section], section)
            equal, why, found = leaf_compare.compare_trees(
                section, got, eager.trees[section], None if ideal is None else ideal[section], tolerances
            )
            structure_equal = structure_equal and equal
            difference = difference or why
            leaves += found
        return _json(
            {"structure_equal": structure_equal, "difference": difference, "float64_reason": reason, "leaves": leaves}
        )

    def group_inputs(self, params, progress):
        drawn = self._groups.inputs(*_group_of(params), _samples(params))
        return {"inputs": {name: exchange.write_tensor(tensor) for name, tensor in drawn.items()}}

    def compare_group(self, params, progress):
        program, group, seed, case = _group_of(params)
        outputs = {
            name: _read(leaf, f"output {name}") for name, leaf in _outputs(required(params, "outputs")).items()
        }
        return _json(
            self._groups.compare(program, group, params.get("names"), seed, case, outputs, params.get("tolerances") or [])
        )

    def check_lowering(self, params, progress):
        from . import lowering

        program = self._groups.program(required(params, "program"))
        return _json(lowering.check(self._loaded().loaded, program, params.get("mode") or "default", progress))

    def drop_files(self, params, progress):
        return {"removed": exchange.remove_files(params.get("tree"))}


def _group_of(params):
    return (
        required(params, "program"), list(required(params, "group")), required(params, "seed"),
        params.get("input_case") or "ordinary",
    )


def _samples(params):
    samples = params.get("samples")
    return None if samples is None else {name: _read(leaf, f"sample {name}") for name, leaf in samples.items()}


def _outputs(tree):
    """`{name: leaf}` of a group's outputs, given as a plain object or as a tree node."""
    if tree.get("kind") == "dict" and isinstance(tree.get("items"), list):
        return {key["value"]: leaf for key, leaf in tree["items"]}
    return tree


def main():
    protocol.prepare_process()
    threads = os.environ.get("KERNELOPT_THREADS")
    if threads:
        torch.set_num_threads(int(threads))
    try:
        channel = protocol.open_channel()
    except ProtocolError as error:
        print(f"kernelopt.judge: {error.message}", file=sys.stderr)
        return 3
    status = protocol.Server(channel, Judge().handlers()).serve()
    exchange.remove_own_files()
    return status


if __name__ == "__main__":
    sys.exit(main())
