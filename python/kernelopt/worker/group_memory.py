"""The memory that a candidate works in: buffers with guard regions, poisoned before every run (DESIGN section 6, gate 2).

Every buffer that owns storage is one arena: guard, elements, guard. Buffers that share a storage (`base`) are views of
one arena. Whatever a run may not write (guards, gaps between the elements of a strided buffer, inputs) is compared
afterwards with what was there before.
"""

import ctypes
import functools

import torch

from kernelopt import exchange
from kernelopt.bridge.digest import GroupError, GroupView
from kernelopt.protocol import ProtocolError, number

_ALIGNMENT = {"cpu": 64, "cuda": 256}  # bytes; at most what torch's allocator gives there
# The bytes of run 0, 1, ... One is NaN in every floating type, the other an ordinary number, which arithmetic changes: an
# element that holds the poison of both runs was not written.
_POISONS = (0xFF, 0x3F)


class Group:
    """The buffers of one group under their canonical names `b0, b1, ...`: `reads` come from outside, `outputs` survive."""

    def __init__(self, program, steps, names=None):
        try:
            view = GroupView(program, steps)
        except GroupError as error:
            raise ProtocolError("internal", str(error)) from error
        if names is not None and list(names) != list(view.names):
            raise ProtocolError("internal", f"the names of the group of {steps[0]} are not those of its canonical form")
        self.buffers = program["buffers"]
        self.names = list(view.names)
        self.reads = list(view.reads)
        self.outputs = set(view.writes)

    def real(self, canonical):
        """The real name behind `b3`. Raises ProtocolError (candidate) for a name that the group does not have."""
        if int(canonical[1:]) < len(self.names):
            return self.names[int(canonical[1:])]
        raise ProtocolError("candidate", f"the launch list names {canonical}, which the group does not have")

    def canonical(self, real):
        """The inverse of `real`."""
        return f"b{self.names.index(real)}"

    def root(self, name):
        """(buffer that owns the storage, offset in elements of its type)."""
        buffer, offset = self.buffers[name], 0
        while buffer.get("base") is not None and buffer["base"] in self.buffers:
            offset += buffer.get("offset") or 0
            name = buffer["base"]
            buffer = self.buffers[name]
        return name, offset


class Arena:
    """One storage: `bytes` is guard, data, guard; `template` what a run starts from."""

    def __init__(self, count, guard, device="cpu"):
        alignment = _ALIGNMENT[device]
        self.guard = -(-guard // alignment) * alignment
        self.count = count
        self.bytes = torch.empty(self.guard * 2 + count, dtype=torch.uint8, device=device)

    @property
    def data(self):
        """The bytes between the guards."""
        return self.bytes[self.guard : self.guard + self.count]

    def view(self, dtype, size, stride, offset, whole=None):
        """A tensor over `whole` (default: the arena's bytes)."""
        source = self.bytes if whole is None else whole
        width = dtype.itemsize
        elements = source[self.guard : self.guard + self.count // width * width].view(dtype)
        return elements.as_strided(size, stride, elements.storage_offset() + offset)


class GroupMemory:
    """Arenas for one candidate (or several, which then share every buffer) over one set of inputs, on the CPU or a GPU."""

    def __init__(self, group, candidates, inputs, guard_bytes, device="cpu"):
        self.group = group
        self.device = device
        missing = [name for name in group.reads if name not in inputs and group.buffers[name].get("value") is None]
        if missing:
            raise ProtocolError("internal", f"the inputs of the group lack {missing[0]}")
        self._inputs = {name: exchange.read_tensor(leaf, device) for name, leaf in inputs.items() if name in group.buffers}
        for name in group.names:  # constants are part of the program
            fields = group.buffers[name]
            if name not in self._inputs and fields.get("value") is not None:
                value = torch.tensor(number(fields["value"]), dtype=_dtype(fields))
                self._inputs[name] = value.expand(fields["size"])
        used = {group.real(arg) for arg in _buffer_args(candidates)}
        self._arenas = {}
        self.tensors = {}
        spans = {}
        for name in used | set(self._inputs):
            root, offset = group.root(name)
            for member, shift in ((root, 0), (name, offset)):
                buffer = group.buffers[member]
                end = (shift + exchange.span(buffer["size"], buffer["stride"])) * _dtype(buffer).itemsize
                spans[root] = max(spans.get(root, 0), end)
        for root, count in spans.items():
            self._arenas[root] = Arena(count, guard_bytes, device)
        for name in used | set(self._inputs):
            self.tensors[name] = self._view(name)
        self._scratch, self._scratch_types = {}, {}
        for position, candidate in enumerate(candidates):
            for scratch in candidate.get("scratch", []):
                if scratch.get("returned"):  # made by a library call of the candidate
                    continue
                self._scratch[position, scratch["name"]] = (self._scratch_arena(scratch, guard_bytes), scratch.get("zeroed", False))
                self._scratch_types[position, scratch["name"]] = exchange.dtype_of(scratch["dtype"])
        for name, given in self._inputs.items():
            if list(given.shape) != list(self.tensors[name].shape) or given.dtype != self.tensors[name].dtype:
                raise ProtocolError("internal", f"the input {name} does not fit the program's buffer")
        self.written = [
            {group.real(arg) for arg, role in args if role in ("out", "inout") and _is_buffer(arg)}
            for args in ([pair for launch in launches(candidate) for pair in launch] for candidate in candidates)
        ]

    def _scratch_arena(self, scratch, guard_bytes):
        count = scratch["elements"] * exchange.dtype_of(scratch["dtype"]).itemsize
        try:
            return Arena(count, guard_bytes, self.device)
        except RuntimeError as error:  # out of memory has this base on both devices
            raise ProtocolError("candidate", f"no room for the scratch buffer {scratch['name']} of {count} bytes") from error

    def _view(self, name, whole=None):
        root, offset = self.group.root(name)
        buffer = self.group.buffers[name]
        return self._arenas[root].view(_dtype(buffer), buffer["size"], buffer["stride"], offset, whole)

    def poison(self, run):
        """Everything as before a run: poison, then the inputs' values; scratch poisoned or zeroed."""
        value = _POISONS[run % len(_POISONS)]
        for arena in self._arenas.values():
            arena.bytes.fill_(value)
        for name, tensor in self._inputs.items():
            self.tensors[name].copy_(tensor)
        for arena, zeroed in self._scratch.values():
            arena.bytes.fill_(value)
            if zeroed:
                arena.data.zero_()

    def restore_inputs(self):
        """The inputs' values again, nothing else touched."""
        for name, tensor in self._inputs.items():
            self.tensors[name].copy_(tensor)

    def address(self, position, arg):
        """What candidate number `position` is handed for an argument of its launch list."""
        if _is_buffer(arg):
            return self.tensors[self.group.real(arg)].data_ptr()
        arena, _ = self._scratch_of(position, arg)
        return arena.bytes.data_ptr() + arena.guard

    def tensor(self, position, arg):
        """As `address`, but a tensor: the buffer's own view, or the scratch buffer's elements."""
        if _is_buffer(arg):
            return self.tensors[self.group.real(arg)]
        arena, _ = self._scratch_of(position, arg)
        return arena.data.view(self._scratch_types[position, arg])

    def zeroing(self, position):
        """Functions that zero the scratch buffers which have to be zeroed before every call."""
        arenas = [arena for (owner, _), (arena, zeroed) in self._scratch.items() if owner == position and zeroed and arena.count]
        if self.device == "cpu":
            return [functools.partial(ctypes.memset, arena.data.data_ptr(), 0, arena.count) for arena in arenas]
        return [arena.data.zero_ for arena in arenas]

    def _scratch_of(self, position, arg):
        if (position, arg) not in self._scratch:
            raise ProtocolError("candidate", f"the launch list names {arg}, which is neither a buffer nor scratch")
        return self._scratch[position, arg]

    def templates(self, position):
        """Copies of the arenas that `check` cannot judge without what they held before the run of candidate `position`."""
        return {root: arena.bytes.clone() for root, arena in self._arenas.items() if self._whole(root, position) is None}

    def _whole(self, root, position):
        """The one tensor that fills the arena without a gap and alone decides about it, or None."""
        names = [name for name in self.tensors if self.group.root(name)[0] == root]
        if len(names) != 1 or (names[0] in self._inputs and names[0] in self.written[position]):
            return None
        tensor = self.tensors[names[0]]
        if tensor.numel() * tensor.element_size() != self._arenas[root].count or not tensor.is_contiguous():
            return None
        given = self._inputs.get(names[0])
        return names[0] if given is None or given.is_contiguous() else None

    def check(self, templates, position, run):
        """(guards_intact, inputs_unchanged) after a run of candidate `position` that started from `templates`."""
        guards, inputs = True, True
        for root, arena in self._arenas.items():
            whole = self._whole(root, position)
            if whole is not None:
                guards = guards and self._edges_hold(arena, run)
                if whole in self._inputs:
                    inputs = inputs and _same_bytes(self._inputs[whole], self.tensors[whole])
                elif whole not in self.written[position]:
                    guards = guards and bool((arena.data == _POISONS[run % len(_POISONS)]).all())
                continue
            before, after = templates[root], arena.bytes.clone()
            for name in self.tensors:
                if self.group.root(name)[0] == root and name in self.written[position]:
                    self._view(name, before).zero_()
                    self._view(name, after).zero_()
            if torch.equal(before, after):
                continue
            for name in self._inputs:
                if self.group.root(name)[0] == root and not _same_bytes(self._view(name, before), self._view(name, after)):
                    inputs = False
                    self._view(name, before).zero_()
                    self._view(name, after).zero_()
            guards = guards and torch.equal(before, after)
        for (owner, _), (arena, _) in self._scratch.items():
            if owner == position and not self._edges_hold(arena, run):
                guards = False
        return guards, inputs

    @staticmethod
    def _edges_hold(arena, run):
        poison = _POISONS[run % len(_POISONS)]
        edges = (arena.bytes[: arena.guard], arena.bytes[arena.guard + arena.count :])
        return not any(bool((edge != poison).any()) for edge in edges)

    def is_poison(self, name, tensor, run):
        """A mask of the elements of `tensor` (a copy of buffer `name`) that are still run `run`'s poison, bit by bit."""
        value = _POISONS[run % len(_POISONS)]
        word = _WORDS[min(8, tensor.element_size())]
        poison = int.from_bytes(bytes([value]) * word.itemsize, "little", signed=word.is_signed)
        same = tensor.contiguous().reshape(-1).view(word) == poison
        return same if word.itemsize == tensor.element_size() else same.view(-1, tensor.element_size() // 8).all(dim=1)


# Integers of a width, to compare bits.
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _same_bytes(a, b):
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def _dtype(buffer):
    return exchange.dtype_of(buffer["dtype"])


def _is_buffer(arg):
    return isinstance(arg, str) and arg.startswith("b") and arg[1:].isdigit()


def launches(candidate):
    """Per launch a list of (argument, role). Raises ProtocolError (candidate) where it does not fit the kernels."""
    kernels = {kernel["name"]: kernel for kernel in candidate["kernels"]}
    result = []
    for launch in candidate["launches"]:
        kernel = kernels.get(launch["kernel"])
        if kernel is None:
            raise ProtocolError("candidate", f"the launch list names {launch['kernel']}, which is no kernel")
        if len(kernel["params"]) != len(launch["args"]):
            raise ProtocolError(
                "candidate", f"{launch['kernel']} takes {len(kernel['params'])} arguments, not {len(launch['args'])}"
            )
        result.append([(arg, param["role"]) for arg, param in zip(launch["args"], kernel["params"])])
    return result


def _buffer_args(candidates):
    for candidate in candidates:
        for launch in launches(candidate):
            for arg, _ in launch:
                if _is_buffer(arg):
                    yield arg
