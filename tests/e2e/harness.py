"""Runs the real executable and looks after what it leaves behind.

Every run gets a mark in its environment, which its children inherit; after the run no process with the mark may be left.
"""
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXECUTABLE = Path(os.environ.get("KERNELOPT_ENGINE") or ROOT / "build" / "release" / "apps" / "kernelopt" / "kernelopt")
MARK = "KERNELOPT_TEST_MARK"


@dataclasses.dataclass
class Run:
    status: int
    stdout: str
    stderr: str
    seconds: float
    left_behind: list
    out: Path | None = None
    own_peak_bytes: int = 0  # of the engine's process alone
    own_cpu_seconds: float = 0

    @property
    def report(self):
        return json.loads((self.out / "report.json").read_text())

    def explain(self):
        return f"status {self.status} after {self.seconds:.1f} s\n{self.stdout[-3000:]}\n{self.stderr[-3000:]}"


def marked(mark):
    """Ids of live processes that carry the mark."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environ = Path("/proc", entry, "environ").read_bytes()
            state = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environ and state != "Z":
            found.append(int(entry))
    return found


def wait_gone(mark, seconds=5.0):
    """Waits for the marked processes to end; returns the command lines of those that did not, and ends them."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    lines = []
    for pid in left:
        try:
            lines.append(Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    return lines


def environment(extra=None):
    mark = uuid.uuid4().hex
    env = dict(os.environ, KERNELOPT_PYTHON=sys.executable, **{MARK: mark})
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), env.get("PYTHONPATH")]))
    for key, value in (extra or {}).items():
        if value is None:
            env.pop(key, None)
        else:
            env[key] = str(value)
    return env, mark


def start(args, env=None, cwd=None, preexec_fn=None):
    """Starts the executable in a process group of its own; returns (Popen, mark)."""
    env, mark = environment(env)
    process = subprocess.Popen([str(EXECUTABLE), *map(str, args)], env=env, cwd=cwd, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=preexec_fn)
    return process, mark


class Sampler(threading.Thread):
    """Peak memory and CPU seconds of one process, its children left out, read while it lives."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peak_bytes, self.cpu_seconds = pid, 0, 0.0
        self.start()

    def run(self):
        ticks = os.sysconf("SC_CLK_TCK")
        while True:
            try:
                fields = Path("/proc", str(self.pid), "stat").read_text().rsplit(")", 1)[1].split()
                status = Path("/proc", str(self.pid), "status").read_text()
            except OSError:
                return
            if fields[0] in "ZX" or "VmHWM" not in status:
                return
            self.cpu_seconds = (int(fields[11]) + int(fields[12])) / ticks
            self.peak_bytes = int(status.split("VmHWM:")[1].split()[0]) * 1024
            time.sleep(0.2)


def finish(process, mark, began, timeout, out=None):
    sampler = Sampler(process.pid)
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        stderr += f"\n[test harness: killed after {timeout} s]"
    seconds = time.monotonic() - began
    return Run(process.returncode, stdout, stderr, seconds, wait_gone(mark), out, sampler.peak_bytes, sampler.cpu_seconds)


def run(args, env=None, timeout=600, cwd=None, out=None, preexec_fn=None):
    began = time.monotonic()
    process, mark = start(args, env, cwd, preexec_fn)
    return finish(process, mark, began, timeout, out)


SMALL = ["--rounds", "1", "--plans", "2", "--chains", "1", "--beam", "1"]


def optimize(model, out, *options, timeout=900, env=None):
    return run(["optimize", model, "--out", out, *options], env=env, timeout=timeout, out=Path(out))


def check_optimized(model, out, *options, timeout=600, env=None):
    """Compares out/optimized.py with eager in a process of its own; returns its findings (a dict)."""
    env, mark = environment(env)
    command = [sys.executable, str(ROOT / "tests" / "e2e" / "check_optimized.py"), str(model), str(out), *map(str, options)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
    wait_gone(mark)
    assert done.returncode == 0, f"the comparison itself failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])
