"""Group level of the judge: drawn inputs, the loop IR's results, and their comparison (docs/protocol.md)."""

import collections
import json
import os

import torch

from kernelopt import state
from kernelopt.bridge import GroupError, GroupView
from kernelopt.protocol import ProtocolError, one_line

from . import compare, inputs, loop_ir

FORMAT, VERSION = "kernelopt.program", 1
# Evaluated groups kept at a time, and the bytes that all of them may take (one is always kept): gate 2 goes round the same
# seeds for every candidate.
_KEPT = 16
_KEPT_HOST, _KEPT_PART = 5 << 30, 1 / 8  # on the CPU; of a GPU's memory


def load_program(path):
    """The Program document at `path`. ProtocolError (user) where it is not one that this version reads."""
    try:
        with open(path) as file:
            program = json.load(file)
    except (OSError, ValueError) as error:
        raise ProtocolError("user", f"cannot read {path}: {one_line(error)}") from error
    if not isinstance(program, dict) or program.get("format") != FORMAT or program.get("version") != VERSION:
        found = (program.get("format"), program.get("version")) if isinstance(program, dict) else type(program).__name__
        raise ProtocolError("user", f"{path} is {found}, not {FORMAT} version {VERSION}")
    return program


def surviving(program, group):
    """Real names of what the group writes and somebody else needs."""
    try:
        return GroupView(program, group).writes
    except GroupError as error:
        raise ProtocolError("internal", str(error)) from error


def _bytes(entry):
    drawn = sum(tensor.numel() * tensor.element_size() for tensor in entry["inputs"].values())
    return drawn + sum(entry[mode].bytes() for mode in ("float32", "float64") if mode in entry)


class Groups:
    """Answers `group_inputs` and `compare_group`; keeps what it drew and evaluated, least recently used dropped first."""

    def __init__(self, device="cpu"):
        self._device = device
        self._programs = {}
        self._kept = collections.OrderedDict()
        self._samples = {}

    def program(self, path):
        stamp = os.stat(path).st_mtime_ns if os.path.exists(path) else None
        if self._programs.get(path, (None,))[0] != stamp or stamp is None:
            self._programs[path] = (stamp, load_program(path))
        return self._programs[path][1]

    def _entry(self, path, group, seed, case, samples):
        program = self.program(path)
        place = (path, self._programs[path][0], tuple(group))
        if samples is not None:
            self._samples[place] = samples
        samples = self._samples.get(place)
        key = (*place, seed, case, id(samples))
        if key not in self._kept:
            try:
                drawn = inputs.group_inputs(program, group, seed, case, samples, device=self._device)
            except loop_ir.LoopError as error:
                raise ProtocolError("unsupported", f"no inputs for the group: {error}") from error
            except ValueError as error:
                raise ProtocolError("internal", str(error)) from error
            self._kept[key] = {"inputs": drawn, "references": {}}
        self._kept.move_to_end(key)
        self._shrink()
        return program, self._kept[key]

    def _shrink(self):
        limit = state.memory_share(self._device, _KEPT_PART, _KEPT_HOST)
        while len(self._kept) > 1 and (len(self._kept) > _KEPT or sum(map(_bytes, self._kept.values())) > limit):
            self._kept.popitem(last=False)

    def inputs(self, path, group, seed, case, samples=None):
        """`{real name: tensor}`."""
        return self._entry(path, group, seed, case, samples)[1]["inputs"]

    def results(self, path, group, seed, case, samples=None):
        """(program, entry): entry["float32"] and entry["float64"] are the Memory of both modes after the group ran on its
        inputs."""
        program, entry = self._entry(path, group, seed, case, samples)
        if "float64" not in entry:
            try:
                _, written = loop_ir.reads_and_writes(loop_ir.find_steps(program, group))
                for mode in ("float32", "float64"):
                    entry[mode] = loop_ir.evaluate(program, group, entry["inputs"], mode, self._device)
                    entry[mode].keep_only(written)
            except loop_ir.LoopError as error:
                raise ProtocolError("unsupported", f"the group cannot be evaluated: {error}") from error
            self._shrink()
        return program, entry

    def compare(self, path, group, names, seed, case, outputs, tolerances):
        """The result of `compare_group`; `outputs` maps canonical (or real) names to tensors.

        `missing` lists canonical names of buffers that survive the group and are not among the outputs;
        `structure_equal` is false where there are any, or where an output is nothing that the group writes.
        """
        program, entry = self.results(path, group, seed, case)
        plain, exact = entry["float32"], entry["float64"]
        canonical = {name: f"b{number}" for number, name in enumerate(names or [])}
        real = {short: name for name, short in canonical.items()}
        _, writes = loop_ir.reads_and_writes(loop_ir.find_steps(program, group))
        leaves, given, strange = [], set(), []
        for label, value in outputs.items():
            name = real.get(label, label)
            if name not in program["buffers"] or name not in writes:
                strange.append(label)
                continue
            given.add(name)
            reference, ideal = plain.tensor(name), exact.tensor(name)
            if not isinstance(value, torch.Tensor):
                raise ProtocolError("internal", f"output {label} is not a tensor")
            leaves.append(compare.compare_tensor(label, value, reference, ideal, tolerances, entry["references"]))
        missing = [canonical.get(name, name) for name in surviving(program, group) if name not in given]
        return {
            "structure_equal": not missing and not strange, "missing": missing, "unknown": strange, "leaves": leaves,
        }
