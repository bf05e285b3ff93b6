"""The timing protocol, with a clock that the test moves: nothing here depends on how fast the machine is."""

import gc

import pytest

from kernelopt.worker import timing


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def call(self, seconds, log=None, name=None):
        def run():
            self.now += seconds
            if log is not None:
                log.append(name)

        return run


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_samples_are_seconds_per_call_and_come_in_pairs(clock):
    samples, batch = timing.sample_in_turn([clock.call(1e-3), clock.call(2e-3)], 25, 100)
    assert batch == [1, 1]
    assert len(samples[0]) == len(samples[1]) == 100
    assert samples[0] == pytest.approx([1e-3] * 100) and samples[1] == pytest.approx([2e-3] * 100)


def test_short_calls_run_in_batches(clock):
    samples, batch = timing.sample_in_turn([clock.call(1e-6), clock.call(100e-6)], 25, 10)
    assert batch == [200, 2]
    assert samples[0] == pytest.approx([1e-6] * len(samples[0])) and samples[1] == pytest.approx([1e-4] * len(samples[1]))


def test_sides_alternate_and_change_order(clock):
    log = []
    timing.sample_in_turn([clock.call(1e-3, log, "a"), clock.call(1e-3, log, "b")], 1, 8)
    measured = "".join(log)[-16:]
    assert measured == "abba" * 4


def test_warm_up_lasts_for_every_side(clock):
    log = []
    timing.sample_in_turn([clock.call(5e-3, log, "a"), clock.call(50e-3, log, "b")], 25, 1)
    assert log.count("a") == 5 + 5 and log.count("b") == 5 + 5


def test_long_calls_are_still_sampled_more_than_once(clock):
    assert len(timing.sample_in_turn([clock.call(0.3)], 25, 100)[0][0]) == 5
    assert len(timing.sample_in_turn([clock.call(2.0)], 25, 100)[0][0]) == 3


def test_preparation_is_not_timed_and_comes_before_each_call(clock):
    log = []
    samples, batch = timing.sample_in_turn([clock.call(1e-6, log, "a")], 1e-3, 1e-2, [clock.call(5.0, log, "p")])
    assert batch == [1] and samples[0] == pytest.approx([1e-6] * len(samples[0]), rel=1e-3)
    assert "".join(log) == "pa" * (len(log) // 2)


def test_a_clock_that_stands_still_ends(clock):
    samples, batch = timing.sample_in_turn([lambda: None], 1e-3, 1)
    assert batch == [10000] and len(samples[0]) == 2000


def test_collection_is_off_inside_and_back_on_after_an_error():
    seen = []
    timing.sample_in_turn([lambda: seen.append(gc.isenabled())], 0.1, 0.1)
    assert seen and not any(seen) and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        timing.sample_in_turn([lambda: 1 // 0])
    assert gc.isenabled()
