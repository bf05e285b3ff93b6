"""`python -m kernelopt.worker.profile REQUEST`, started under Nsight Compute: every candidate once, inside the range that is
counted. Observes nothing itself and decides nothing.

REQUEST is a JSON file `{"groups": [{"program", "group", "names", "candidates", "inputs"}]}`, each group as `time_group` takes
it. All groups go through one start, which costs more than the counting. Before each candidate a kernel named MARK is launched:
in the report, what stands between two marks is one candidate's, zeroed scratch and library kernels included. A candidate that
fails is said on standard error and leaves its mark with nothing behind it.

    ncu --csv --page raw --print-units base --clock-control none --target-processes application-only --profile-from-start off \\
        --section SpeedOfLight --section LaunchStats --section Occupancy ... python -m kernelopt.worker.profile REQUEST
"""

import json
import sys

from kernelopt import protocol
from kernelopt.protocol import ProtocolError, one_line, required

MARK = "kernelopt_mark"


def observe(request, mark, start, stop):
    """Warms every candidate up, then launches each once between `start()` and `stop()`, after `mark()`. Returns one line for each
    that failed."""
    from kernelopt.worker import groups

    failures = []
    for place, params in enumerate(required(request, "groups")):
        try:
            calls, device, memory = _prepared(params, f"group {place}", failures)
        except RuntimeError as error:  # out of memory; the next group may be smaller
            failures.append(f"group {place}: {one_line(error)}")
            calls, device, memory = [None] * len(params["candidates"]), None, None
        start()
        try:
            for position, call in enumerate(calls):
                mark()
                if call is None:
                    continue
                try:
                    groups.checked(call, device)
                except ProtocolError as error:
                    failures.append(f"group {place}, candidate {position}: {error.message}")
        finally:
            stop()
        del memory  # one group's tensors at a time
    return failures


def _prepared(params, where, failures):
    """(calls, device, memory): the group's candidates, bound and run once; None for one that fails."""
    from kernelopt.worker import groups, launching
    from kernelopt.worker.group_memory import GroupMemory

    candidates = required(params, "candidates")
    device = launching.device_of(candidates)
    memory = GroupMemory(groups.group_of(params), candidates, required(params, "inputs"), 64, device)
    calls = []
    for position, candidate in enumerate(candidates):
        try:
            call = launching.bind(candidate, memory, position)
            memory.poison(0)  # indices among the inputs must be in range
            groups.checked(call, device)
        except ProtocolError as error:
            failures.append(f"{where}, candidate {position}: {error.message}")
            call = None
        calls.append(call)
    memory.poison(0)
    return calls, device, memory


def main(arguments):
    if len(arguments) != 1:
        print("usage: python -m kernelopt.worker.profile REQUEST", file=sys.stderr)
        return 2
    protocol.prepare_process()
    try:
        with open(arguments[0]) as file:
            request = json.load(file)
    except (OSError, ValueError) as error:
        print(f"kernelopt.worker.profile: {arguments[0]}: {error}", file=sys.stderr)
        return 2
    try:
        import torch

        from kernelopt.worker import cuda

        cuda.require()
        # Nothing of ours times meanwhile: counting replays kernels, and saves and restores memory between.
        with cuda.device_lock():
            mark = cuda.empty_kernel(MARK)
            mark()
            torch.cuda.synchronize()
            failures = observe(request, mark, torch.cuda.profiler.start, torch.cuda.profiler.stop)
    except ProtocolError as error:
        print(f"kernelopt.worker.profile: {error.message}", file=sys.stderr)
        return 3
    for failure in failures:
        print(f"kernelopt.worker.profile: {failure}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
