"""Frames, dispatch and error kinds of kernelopt.protocol, and the sample messages that both languages share."""

import json
import os
import struct

import pytest
from worker_process import SAMPLES

from kernelopt import protocol
from kernelopt.protocol import Channel, ChannelClosed, ProtocolError, Server

METHODS = sorted(SAMPLES.glob("*.json"))


def pipes():
    (a, b), (c, d) = os.pipe(), os.pipe()
    return Channel(a, d), Channel(c, b), (a, b, c, d)


@pytest.fixture
def ends():
    near, far, fds = pipes()
    yield near, far, fds
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            pass


def frame(data):
    return struct.pack("<I", len(data)) + data


@pytest.mark.parametrize("path", METHODS, ids=lambda path: path.stem)
def test_samples_survive_a_round_trip(path, ends):
    near, far, _ = ends
    sample = json.loads(path.read_text())
    messages = [sample["request"], sample["reply"]] if "request" in sample else sample["replies"] + sample["events"]
    for message in messages:
        near.send(message)
        assert far.receive() == message


def test_samples_name_every_error_kind():
    replies = json.loads((SAMPLES / "errors.json").read_text())["replies"]
    assert {reply["error"]["kind"] for reply in replies} == set(protocol.ERROR_KINDS)


def test_a_frame_is_little_endian_length_and_utf8(ends):
    near, far, (a, b, c, d) = ends
    near.send({"text": "größer"})
    data = os.read(c, 100)
    assert struct.unpack("<I", data[:4])[0] == len(data) - 4
    assert json.loads(data[4:].decode("utf-8")) == {"text": "größer"}


def test_a_frame_may_come_in_pieces(ends):
    near, _, (a, b, c, d) = ends
    data = frame(b'{"x": 1}')
    for position in range(len(data)):
        os.write(b, data[position : position + 1])
    assert near.receive() == {"x": 1}


def test_end_of_file_between_and_inside_frames(ends):
    near, far, (a, b, c, d) = ends
    os.write(b, frame(b"{}") + frame(b"[1, 2")[:6])
    os.close(b)
    assert near.receive() == {}
    with pytest.raises(ChannelClosed) as closed:
        near.receive()
    assert not closed.value.clean
    os.close(d)
    with pytest.raises(ChannelClosed) as closed:
        far.receive()
    assert closed.value.clean


def test_a_frame_that_is_too_long_or_no_json_is_refused(ends):
    near, _, (a, b, c, d) = ends
    os.write(b, struct.pack("<I", protocol.MAX_FRAME + 1))
    with pytest.raises(ValueError, match="more than"):
        near.receive()
    os.write(b, frame(b"{nonsense"))
    with pytest.raises(ValueError):
        near.receive()


def serve(requests, handlers):
    near, far, fds = pipes()
    for request in requests:
        far.send(request)
    os.close(fds[1])
    status = Server(near, handlers).serve()
    os.close(fds[3])
    replies = []
    try:
        while True:
            replies.append(far.receive())
    except ChannelClosed:
        pass
    os.close(fds[0]), os.close(fds[2])
    return status, replies


def ask(method, number=1, **params):
    return {"id": number, "method": method, "params": params}


def test_dispatch_answers_in_order_and_ends_at_end_of_file():
    status, replies = serve(
        [ask("double", 1, x=3), ask("double", 2, x=5)], {"double": lambda params, _: {"y": 2 * params["x"]}}
    )
    assert status == 0
    assert replies == [{"id": 1, "result": {"y": 6}}, {"id": 2, "result": {"y": 10}}]


def test_exit_answers_and_reads_no_further():
    status, replies = serve([ask("exit", 4), ask("double", 5)], {})
    assert (status, replies) == (0, [{"id": 4, "result": {}}])


def test_progress_comes_before_the_reply():
    def work(_params, progress):
        progress("compile", 1, 2)
        return {}

    _, replies = serve([ask("work")], {"work": work})
    assert replies == [{"event": "progress", "stage": "compile", "done": 1, "total": 2}, {"id": 1, "result": {}}]


@pytest.mark.parametrize(
    "error, kind, message",
    [
        (ProtocolError("user", "no\nsuch file"), "user", "no such file"),
        (ProtocolError("environment", "no compiler"), "environment", "no compiler"),
        (ValueError("odd"), "internal", "ValueError: odd"),
        (MemoryError("5 GB"), "user", "out of memory: 5 GB"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "user", "out of memory"),
        (SystemExit(3), "internal", "SystemExit: 3"),
    ],
)
def test_exceptions_become_error_kinds(error, kind, message):
    def fail(_params, _progress):
        raise error

    status, (reply,) = serve([ask("fail", 9)], {"fail": fail})
    assert status == 0 and reply["id"] == 9
    assert reply["error"]["kind"] == kind
    assert reply["error"]["message"].startswith(message) and "\n" not in reply["error"]["message"]


def test_unknown_method_bad_params_and_results_that_are_no_json():
    handlers = {"nan": lambda *_: {"x": float("nan")}, "object": lambda *_: object()}
    _, replies = serve([ask("what"), {"id": 2, "method": "nan", "params": [1]}, ask("nan", 3), ask("object", 4)], handlers)
    assert [reply["error"]["kind"] for reply in replies] == ["unsupported", "internal", "internal", "internal"]
    assert [reply["id"] for reply in replies] == [1, 2, 3, 4]


def test_numbers_without_infinities():
    values = [0.5, float("inf"), float("-inf"), 3, True]
    assert [protocol.finite(value) for value in values] == [0.5, "inf", "-inf", 3, True]
    assert [protocol.number(protocol.finite(value)) for value in values] == values
    assert protocol.finite(float("nan")) == "nan"
