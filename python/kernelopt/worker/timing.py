"""Paired timing of two calls (DESIGN section 8). Raw samples only: nothing here decides or aggregates.

Both sides run in one process on the same data, in alternation and in changing order (AB BA AB ...), after the same
warm-up. Caches are left as the previous call left them, for both sides alike: in a model a step's inputs were just
written by the step before, so what fits in the caches is there, and what does not fit evicts itself. Calls that are too
short for the clock run in batches; a sample is then the batch's time over its calls. Garbage collection is off meanwhile.
"""

import contextlib
import gc
import time

_SHORTEST_SAMPLE = 200e-6  # seconds; some thousand times the clock's own cost
_MOST_SAMPLES = 2000  # per side
_MOST_CALLS = 10000  # per batch


@contextlib.contextmanager
def quiet():
    """No garbage collection inside."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _batch_seconds(call, count, prepare):
    if prepare is not None:
        prepare()
    clock = time.perf_counter
    if count == 1:
        started = clock()
        call()
        return clock() - started
    repeats = range(count)
    started = clock()
    for _ in repeats:
        call()
    return (clock() - started) / count


def sample_in_turn(calls, warmup_ms=25.0, rep_ms=100.0, prepares=None):
    """(samples, batch): for each call a list of seconds per call, and how many calls a sample holds.

    `prepares` holds per call None or a function that runs before each of its samples, outside the timed region; such
    calls are sampled one by one. All lists have the same length: sample i of every side was taken in round i. Each side
    is measured until each has taken `rep_ms`, for 5 rounds at least (3 where a call takes more than a second)."""
    prepares = prepares or [None] * len(calls)
    with quiet():
        shortest = [float("inf")] * len(calls)
        spent = [0.0] * len(calls)
        while min(spent) < warmup_ms / 1e3 or min(shortest) == float("inf"):
            for i, call in enumerate(calls):
                seconds = _batch_seconds(call, 1, prepares[i])
                spent[i] += max(seconds, 1e-7)
                shortest[i] = min(shortest[i], seconds)
        batch = [
            1 if prepare is not None else max(1, min(_MOST_CALLS, round(_SHORTEST_SAMPLE / max(seconds, 1e-8))))
            for seconds, prepare in zip(shortest, prepares)
        ]
        least = 3 if max(shortest) > 1 else 5
        samples = [[] for _ in calls]
        spent = [0.0] * len(calls)
        order = list(range(len(calls)))
        while len(samples[0]) < least or (min(spent) < rep_ms / 1e3 and len(samples[0]) < _MOST_SAMPLES):
            for i in order:
                seconds = _batch_seconds(calls[i], batch[i], prepares[i])
                samples[i].append(seconds)
                spent[i] += seconds * batch[i]
            order.reverse()
    return samples, batch
