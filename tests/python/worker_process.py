"""Starts a worker (or judge) over pipes, as the engine does; for the tests beside it."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLES = ROOT / "tests" / "protocol"


class WorkerProcess:
    """A process with the engine's two pipes. Use as a context manager: it leaves no process behind."""

    def __init__(self, folder, module="kernelopt.worker", **environment):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        self.exchange = Path(folder) / "exchange"
        env = dict(
            os.environ,
            PYTHONPATH=str(ROOT / "python"),
            KERNELOPT_FD_IN=str(to_read),
            KERNELOPT_FD_OUT=str(to_write),
            KERNELOPT_EXCHANGE=str(self.exchange),
            **environment,
        )
        self.output = open(Path(folder) / f"{module}.log", "w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            env=env,
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._next = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close_requests()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read)
        self.output.close()

    def close_requests(self):
        if self._write is not None:
            os.close(self._write)
            self._write = None

    def send_bytes(self, data):
        os.write(self._write, data)

    def send(self, method, **params):
        self._next += 1
        payload = json.dumps({"id": self._next, "method": method, "params": params}).encode()
        self.send_bytes(struct.pack("<I", len(payload)) + payload)
        return self._next

    def receive(self):
        """The next message; raises EOFError where the process is gone."""
        (length,) = struct.unpack("<I", self._exactly(4))
        return json.loads(self._exactly(length))

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            part = os.read(self._read, count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def call(self, method, **params):
        """The result, or the error object; progress events are skipped."""
        number = self.send(method, **params)
        while True:
            reply = self.receive()
            if "event" in reply:
                continue
            assert reply["id"] == number
            return reply.get("result", reply.get("error"))

    def log(self):
        self.output.flush()
        return Path(self.output.name).read_text()
