"""The device's lock (worker/cuda.py), with no device: its file is all that counts."""

import fcntl
import os
import tempfile
import threading
import time

import pytest

from kernelopt.worker import cuda

pytestmark = pytest.mark.skipif(not hasattr(fcntl, "flock"), reason="no flock")


@pytest.fixture
def lock_path(monkeypatch):
    uuid = f"test-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setattr(cuda, "device_uuid", lambda: uuid)
    monkeypatch.setattr(cuda, "synchronize", lambda *_: None)
    path = os.path.join(tempfile.gettempdir(), f"kernelopt-{os.getuid()}-{uuid}.lock")
    yield path
    if os.path.exists(path):
        os.unlink(path)


def free(path):
    """Whether another process could take the lock now."""
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False


def test_reentrant_and_given_back(lock_path):
    with cuda.device_lock():
        with cuda.device_lock():
            assert not free(lock_path)
        assert not free(lock_path)
    assert free(lock_path)
    with pytest.raises(ValueError), cuda.device_lock():
        raise ValueError
    assert free(lock_path)


def test_open_while_the_host_works(lock_path):
    with cuda.device_lock(), cuda.device_lock():
        with pytest.raises(KeyError), cuda.device_unlocked():
            assert free(lock_path)
            with cuda.device_lock():
                assert not free(lock_path)
            assert free(lock_path)
            raise KeyError
        assert not free(lock_path)
    assert free(lock_path)
    with cuda.device_unlocked():  # without the lock there is nothing to open
        assert free(lock_path)


def test_waiting_is_told_and_counted(lock_path, monkeypatch):
    told = []
    monkeypatch.setattr(cuda, "on_wait", lambda: told.append(time.monotonic()))
    monkeypatch.setattr(cuda, "_WAIT_REPORT_SECONDS", 0.05)
    holder = open(lock_path, "a")
    fcntl.flock(holder, fcntl.LOCK_EX)
    threading.Timer(0.4, holder.close).start()
    before = cuda.seconds_waited()
    with cuda.device_lock():
        pass
    assert len(told) >= 3 and 0.3 < cuda.seconds_waited() - before < 30
    count = len(told)
    with cuda.device_lock():  # free at once
        pass
    assert len(told) == count


def test_wrapped_functions_run_in_their_context(lock_path):
    class Owner:
        def measured(self, value):
            return value, free(lock_path)

        def compiled(self):
            return free(lock_path)

    cuda._wrap(Owner, "measured", cuda.device_lock)
    cuda._wrap(Owner, "compiled", cuda.device_unlocked)
    assert Owner().measured(3) == (3, False)
    with cuda.device_lock():
        assert Owner().compiled()
        assert not free(lock_path)


def test_the_compilers_entry_points_are_there():
    """What unlock_while_compiling wraps exists in this torch."""
    from torch._inductor import compile_fx, select_algorithm
    from torch._inductor.runtime import benchmarking

    assert callable(compile_fx.compile_fx) and callable(select_algorithm.AlgorithmSelectorCache.autotune)
    assert any("benchmark_gpu" in vars(owner) for owner in (benchmarking.TritonBenchmarker, benchmarking.InductorBenchmarker))
