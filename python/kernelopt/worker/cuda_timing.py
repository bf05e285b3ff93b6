"""Event timing on a CUDA device (DESIGN section 8). Raw samples only, in seconds.

Before every sample a buffer several times the L2 is written, so that both sides find a cache that holds nothing of theirs.
Groups: the events enclose the launches alone, and everything is queued while the flush runs, so that the host's launch cost
does not show. Models: the device is idle when the first event is recorded, so that what the host needs to launch shows, as
it does for the user. Clocks are left alone.
"""

import functools

import torch

from kernelopt.worker.timing import quiet

_ROUNDS_IN_FLIGHT = 10
_MOST_SAMPLES = 400  # per side


@functools.cache
def _flush_buffer():
    # At least 256 MB: writing it also takes longer than the host needs to queue what follows.
    return torch.empty(max(4 * torch.cuda.get_device_properties(0).L2_cache_size, 256 << 20), dtype=torch.uint8, device="cuda")


def flush_l2():
    """Queues a write of the flush buffer."""
    _flush_buffer().zero_()


class _Sampler:
    def __init__(self, idle_first):
        self._idle_first = idle_first
        self._pool = []

    def _event(self):
        return self._pool.pop() if self._pool else torch.cuda.Event(enable_timing=True)

    def record(self, call, prepare):
        """(start, end) events around one call."""
        if prepare is not None:
            prepare()
        flush_l2()
        start, end = self._event(), self._event()
        if self._idle_first:
            torch.cuda.synchronize()
        start.record()
        call()
        end.record()
        return start, end

    def seconds(self, pair):
        start, end = pair
        end.synchronize()
        self._pool += pair
        return start.elapsed_time(end) / 1e3


def sample_in_turn(calls, warmup_ms=25.0, rep_ms=100.0, prepares=None, idle_first=False):
    """(samples, batch) as timing.sample_in_turn gives them; a sample is always one call (batch 1).

    Ends when every side has taken `rep_ms` of device time or 400 samples, after 10 rounds at least (3 where a call takes
    more than 200 ms). `prepares` run before each sample, outside of the events. idle_first: the device is idle when a sample
    starts (models)."""
    prepares = prepares or [None] * len(calls)
    sampler = _Sampler(idle_first)
    with quiet():
        spent, rounds, longest = [0.0] * len(calls), 0, 0.0
        while rounds < 3 or (min(spent) < warmup_ms / 1e3 and rounds < _MOST_SAMPLES):
            for i, call in enumerate(calls):
                seconds = sampler.seconds(sampler.record(call, prepares[i]))
                spent[i] += seconds
                longest = max(longest, seconds)
            rounds += 1
            if longest > 0.2:
                break
        least = 3 if longest > 0.2 else 10
        in_flight = 1 if idle_first or longest > 5e-3 else _ROUNDS_IN_FLIGHT
        samples, spent = [[] for _ in calls], [0.0] * len(calls)
        order = list(range(len(calls)))
        torch.cuda.synchronize()
        while len(samples[0]) < least or (min(spent) < rep_ms / 1e3 and len(samples[0]) < _MOST_SAMPLES):
            queued = []
            for _ in range(in_flight):
                queued += [(i, sampler.record(calls[i], prepares[i])) for i in order]
                order.reverse()
            for i, pair in queued:
                seconds = sampler.seconds(pair)
                samples[i].append(seconds)
                spent[i] += seconds
        torch.cuda.synchronize()
    return samples, [1] * len(calls)


def median_seconds(call, count):
    """Median of `count` samples after three calls, queued behind a flush."""
    sampler = _Sampler(idle_first=False)
    for _ in range(3):
        call()
    found = sorted(sampler.seconds(sampler.record(call, None)) for _ in range(count))
    return found[len(found) // 2]


def peak_bytes(call):
    """Bytes of device memory that one call allocates at most on top of what is there."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return max(0, torch.cuda.max_memory_allocated() - before)
