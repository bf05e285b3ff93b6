"""The wire protocol of docs/protocol.md, version 1: frames, requests, replies and the dispatch loop of worker and judge.

`Channel` moves frames over two file descriptors. `Server` answers one request at a time until end of file or `exit`. A
handler raises `ProtocolError` to answer with one of the error kinds; any other exception becomes kind `internal` (or
`user` for running out of memory), so a handler never has to format a traceback. (DESIGN section 2)
"""

import ctypes
import json
import os
import signal
import struct
import sys
import traceback

VERSION = 1
# Stage of the progress event that starts a request's deadline anew.
WAITING = "waiting for the device"
MAX_FRAME = 1 << 30
ERROR_KINDS = ("user", "environment", "candidate", "unsupported", "internal")


class ProtocolError(Exception):
    """An error reply: `kind` is one of ERROR_KINDS, the message one line, `detail` free text."""

    def __init__(self, kind, message, detail=""):
        if kind not in ERROR_KINDS:
            raise ValueError(f"no such error kind: {kind}")
        super().__init__(message)
        self.kind = kind
        self.message = one_line(message)
        self.detail = detail


class ChannelClosed(Exception):
    """The other side closed the request side; `clean` is False if that happened inside a frame."""

    def __init__(self, clean):
        super().__init__("end of file" if clean else "end of file inside a frame")
        self.clean = clean


def one_line(text):
    """The text on one line, for messages that people see; long ones are cut."""
    line = " ".join(str(text).split())
    return line if len(line) <= 500 else line[:497] + "..."


class Channel:
    """Frames over two file descriptors: 4 bytes of little-endian length, then UTF-8 JSON. Not thread-safe."""

    def __init__(self, fd_in, fd_out):
        self._in, self._out = fd_in, fd_out

    def _read_exactly(self, count, started):
        parts, missing = [], count
        while missing:
            part = os.read(self._in, min(missing, 1 << 20))
            if not part:
                raise ChannelClosed(clean=not started and missing == count)
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def receive(self):
        """The next message. Raises ChannelClosed at end of file, ValueError on a frame that is not JSON or too long."""
        (length,) = struct.unpack("<I", self._read_exactly(4, started=False))
        if length > MAX_FRAME:
            raise ValueError(f"a frame of {length} bytes, more than {MAX_FRAME}")
        return json.loads(self._read_exactly(length, started=True).decode("utf-8"))

    def send(self, message):
        """Sends one message. Raises ValueError where it holds a non-finite number (docs/formats.md spells those as
        strings) or is too long, TypeError where it is not JSON; nothing is sent then."""
        payload = json.dumps(message, allow_nan=False, separators=(",", ":")).encode("utf-8")
        if len(payload) > MAX_FRAME:
            raise ValueError(f"a frame of {len(payload)} bytes, more than {MAX_FRAME}")
        view = memoryview(struct.pack("<I", len(payload)) + payload)
        while view:
            view = view[os.write(self._out, view):]


def open_channel():
    """The channel that the environment names. The descriptors are moved out of the way of kernels and libraries: no child
    process inherits them, and where they are standard input and output those are replaced by /dev/null and standard error.

    Raises ProtocolError (environment) where the environment does not name two descriptors."""
    try:
        fd_in = int(os.environ["KERNELOPT_FD_IN"])
        fd_out = int(os.environ["KERNELOPT_FD_OUT"])
        os.fstat(fd_in), os.fstat(fd_out)
    except (KeyError, ValueError, OSError) as error:
        raise ProtocolError(
            "environment", "KERNELOPT_FD_IN and KERNELOPT_FD_OUT do not name open descriptors: start kernelopt instead"
        ) from error
    channel_in, channel_out = _move_up(fd_in), _move_up(fd_out)
    if fd_in == 0:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    if fd_out == 1:
        os.dup2(2, 1)
    for name in ("KERNELOPT_FD_IN", "KERNELOPT_FD_OUT"):
        os.environ.pop(name)
    return Channel(channel_in, channel_out)


def _move_up(fd):
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
    if fd > 2:
        os.close(fd)
    return moved


def prepare_process():
    """Ctrl-C belongs to the engine, and nobody outlives it: SIGINT is ignored and the parent's death kills us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)


def finite(value):
    """A number as docs/formats.md writes it: non-finite ones as strings, the others as they are."""
    if isinstance(value, float) and value - value != 0:
        return "nan" if value != value else ("inf" if value > 0 else "-inf")
    return value


def number(value):
    """The inverse of `finite`."""
    return float(value) if isinstance(value, str) else value


def error_reply(request_id, error):
    """The reply for an exception that left a handler."""
    if isinstance(error, ProtocolError):
        kind, message = error.kind, error.message
        detail = error.detail or _cause_text(error)
    elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    ):
        kind, message = "user", "out of memory: " + one_line(error)
        detail = "".join(traceback.format_exception(error))
    else:
        kind, message = "internal", one_line(f"{type(error).__name__}: {error}")
        detail = "".join(traceback.format_exception(error))
    return {"id": request_id, "error": {"kind": kind, "message": message, "detail": detail[-20000:]}}


def _cause_text(error):
    cause = error.__cause__
    return "".join(traceback.format_exception(cause)) if cause is not None else ""


class Server:
    """Answers requests with `handlers`: method name -> function(params dict, progress) -> result (JSON value).

    `progress(stage, done, total)` sends a progress event."""

    def __init__(self, channel, handlers):
        self._channel = channel
        self._handlers = dict(handlers)

    def serve(self):
        """Until `exit` or end of file. Returns the process's exit status."""
        while True:
            try:
                request = self._channel.receive()
            except ChannelClosed as closed:
                return 0 if closed.clean else 1
            if request.get("method") == "exit":
                self._reply({"id": request.get("id"), "result": {}})
                return 0
            self._reply(self._answer(request))

    def _answer(self, request):
        request_id = request.get("id")
        try:
            method = request.get("method")
            handler = self._handlers.get(method)
            if handler is None:
                raise ProtocolError("unsupported", f"no such method: {method}")
            params = request.get("params") or {}
            if not isinstance(params, dict):
                raise ProtocolError("internal", f"params of {method} is not an object")
            return {"id": request_id, "result": handler(params, self._progress)}
        except (Exception, SystemExit) as error:
            return error_reply(request_id, error)

    def _reply(self, reply):
        try:
            self._channel.send(reply)
        except (ValueError, TypeError) as error:
            self._channel.send(error_reply(reply.get("id"), error))

    def _progress(self, stage, done=0, total=0):
        self._channel.send({"event": "progress", "stage": stage, "done": done, "total": total})


def required(params, name):
    """A parameter that the method cannot do without."""
    if name not in params:
        raise ProtocolError("internal", f"the request lacks the parameter {name}")
    return params[name]
