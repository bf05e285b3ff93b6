"""`run_group` and `time_group`: candidates on the judge's inputs, in guarded memory (docs/protocol.md).

C++ runs on the CPU, Triton on the GPU (on the CPU in Triton's interpreter, TRITON_INTERPRET=1, for tests)."""

import contextlib
import functools
import json
import os

import torch

from kernelopt import exchange
from kernelopt.protocol import ProtocolError, required
from kernelopt.worker import cuda, cuda_timing, launching, timing
from kernelopt.worker.group_memory import Group, GroupMemory


def group_of(params):
    """The Group that a request names."""
    path = required(params, "program")
    program = _read_program(path, os.stat(path).st_mtime_ns)
    return Group(program, required(params, "group"), params.get("names"))


@functools.lru_cache(maxsize=8)
def _read_program(path, _changed):
    with open(path) as file:
        program = json.load(file)
    if program.get("format") != "kernelopt.program" or program.get("version") != 1:
        raise ProtocolError("internal", f"{path} is not a kernelopt.program document of version 1")
    return program


def run_group(params, _progress):
    """See docs/protocol.md. A candidate that crashes takes this process with it; that is the engine's to notice."""
    group = group_of(params)
    candidate = required(params, "candidate")
    runs = max(1, int(params.get("runs", 2)))
    device = launching.device_of([candidate])
    memory = GroupMemory(group, [candidate], required(params, "inputs"), int(params.get("guard_bytes", 4096)), device)
    call = launching.bind(candidate, memory, 0)
    if candidate["language"] == "inductor_triton":
        memory.poison(0)  # indices among the inputs must be in range
        checked(call, device)  # the first call tunes, which leaves outputs behind
    guards_intact = inputs_unchanged = deterministic = True
    names = sorted(group.outputs & set(memory.tensors), key=group.names.index)
    absent = sorted(group.outputs - set(memory.tensors))
    first, untouched = {}, {}
    for run in range(runs):
        memory.poison(run)
        templates = memory.templates(0)
        checked(call, device)
        guards, inputs = memory.check(templates, 0, run)
        guards_intact, inputs_unchanged = guards_intact and guards, inputs_unchanged and inputs
        for name in names:
            result = memory.tensors[name]
            poisoned = memory.is_poison(name, result, run)
            if run == 0:
                first[name], untouched[name] = _same_layout(result), poisoned
            else:
                untouched[name] &= poisoned
                if not _same_values(first[name], result):
                    deterministic = False
    _replace_reply_files()
    outputs = {group.canonical(name): exchange.write_tensor(first[name]) for name in names}
    _keep_as_reply_files(outputs)
    unwritten = sum(int(mask.sum()) for mask in untouched.values()) if runs > 1 else 0
    unwritten += sum(_elements(group.buffers[name]) for name in absent)
    return {
        "outputs": outputs,
        "inputs_unchanged": inputs_unchanged,
        "guards_intact": guards_intact,
        "deterministic": deterministic,
        "unwritten": unwritten,
        "unwritten_by_output": {group.canonical(n): int(m.sum()) for n, m in untouched.items()} if runs > 1 else {},
        "missing_outputs": [group.canonical(name) for name in absent],
    }


def time_group(params, _progress):
    """See docs/protocol.md. All sides work in the same memory."""
    group = group_of(params)
    candidates = required(params, "candidates")
    device = launching.device_of(candidates)
    memory = GroupMemory(group, candidates, required(params, "inputs"), 64, device)
    calls = [launching.bind(candidate, memory, position) for position, candidate in enumerate(candidates)]
    for call in calls:
        memory.poison(0)
        checked(call, device)
    memory.poison(0)
    # Where an input is also written, every sample starts from the same values: it would drift off to infinity otherwise.
    in_place = any(written & set(params["inputs"]) for written in memory.written)
    prepares = [memory.restore_inputs if in_place else None] * len(calls)
    sample = cuda_timing.sample_in_turn if device == "cuda" else timing.sample_in_turn
    with cuda.lock_for(device), cuda.blamed_on_candidate() if device == "cuda" else contextlib.nullcontext():
        samples, batch = sample(calls, float(params.get("warmup_ms", 25)), float(params.get("rep_ms", 100)), prepares)
    return {"samples": samples, "batch": batch}


def checked(call, device):
    """Calls and waits; what goes wrong on a GPU is the candidate's fault."""
    if device == "cpu":
        call()
        return
    with cuda.blamed_on_candidate():
        call()
        torch.cuda.synchronize()


def _elements(buffer):
    count = 1
    for extent in buffer["size"]:
        count *= extent
    return count


def _same_layout(tensor):
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _same_values(a, b):
    """Bit equality, NaN equal to NaN."""
    if torch.equal(a, b):
        return True
    if not (a.is_floating_point() or a.is_complex()):
        return False
    return bool(((a == b) | (torch.isnan(a) & torch.isnan(b))).all())


_reply_files = []


def _replace_reply_files():
    """The files of the previous run_group or run_model reply go."""
    exchange.remove_files(_reply_files)
    _reply_files.clear()


def _keep_as_reply_files(tree):
    _reply_files.append(tree)


def write_reply(value):
    """The tree of a `run_*` reply; its files replace those of the one before."""
    _replace_reply_files()
    tree = exchange.write_tree(value)
    _keep_as_reply_files(tree)
    return tree
