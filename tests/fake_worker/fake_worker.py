"""A process that speaks docs/protocol.md and can misbehave: for tests of the engine's client.

Usage: fake_worker.py ROLE. What it does is steered by the method: `echo` answers its params, the others below misbehave.
KERNELOPT_FAKE, a list of `method:behaviour`, changes ordinary methods: `hello:environment`, `load_model:die`, ….
Needs nothing but Python.
"""

import json
import os
import struct
import subprocess
import sys
import time

FD_IN = int(os.environ["KERNELOPT_FD_IN"])
FD_OUT = int(os.environ["KERNELOPT_FD_OUT"])


def read_exactly(count):
    data = b""
    while len(data) < count:
        chunk = os.read(FD_IN, count - len(data))
        if not chunk:
            sys.exit(0)
        data += chunk
    return data


def write(data):
    while data:
        data = data[os.write(FD_OUT, data):]


def frame(message):
    text = json.dumps(message).encode()
    return struct.pack("<I", len(text)) + text


KINDS = ("user", "environment", "unsupported", "internal")
BEHAVIOUR = dict(entry.split(":") for entry in os.environ.get("KERNELOPT_FAKE", "").split(",") if entry)
DEVICE = {"kind": "cpu", "name": "fake", "isa": "avx2", "threads": 2, "vector_bits": 256, "compiler": "g++"}


def handle(role, request):
    method, params, ident = request["method"], request["params"], request["id"]
    behaviour = BEHAVIOUR.get(method)
    if behaviour in KINDS:
        return None, {"kind": behaviour, "message": f"{method} says {behaviour}\nin two lines"}
    if behaviour:
        method = behaviour
    if method == "hello":
        return {"protocol": 1, "role": role, "pid": os.getpid(), "device": DEVICE, "fingerprint": {"fake": 1}}
    if method == "load_model":
        if params["path"] == "missing.py":
            return None, {"kind": "user", "message": "no such file:\nmissing.py"}
        handle.model = params["path"]
        return {"parameters": 7, "needs": ["random"]}
    if method == "model":
        return {"model": getattr(handle, "model", None)}
    if method in ("stitch", "load_optimized"):
        handle.count = getattr(handle, "count", 0) + 1
        return {"handle": f"remote{os.getpid()}-{handle.count}", "replaced": [], "compile_seconds": 0.5}
    if method == "run_model":
        return {"outputs": params["handle"], "inputs": None, "buffers": None}
    if method == "echo":
        return params
    if method == "progress":
        write(frame({"event": "progress", "stage": "compile", "done": 1, "total": 2}))
        return {}
    if method == "wait":  # for the device, longer than the deadline; then work, or hang
        for _ in range(4):
            time.sleep(params["seconds"] / 4)
            write(frame({"event": "progress", "stage": "waiting for the device", "done": 0, "total": 0}))
        if params.get("hang"):
            time.sleep(3600)
        return {}
    if method == "die":
        print("Segmentation fault in candidate", file=sys.stderr, flush=True)
        os._exit(3)
    if method == "abort":
        os.abort()
    if method == "hang":
        time.sleep(3600)
    if method == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        return {"pid": child.pid}
    if method == "half":
        write(frame({"id": ident, "result": {}})[:7])
        os._exit(0)
    if method == "half_hang":
        write(frame({"id": ident, "result": {}})[:7])
        time.sleep(3600)
    if method == "garbage":
        write(struct.pack("<I", 5) + b"\xff{]x!")
        time.sleep(3600)
    if method == "huge":
        write(struct.pack("<I", 0xFFFFFFF0))
        time.sleep(3600)
    if method == "other_id":
        write(frame({"id": ident + 1000, "result": {}}))
        time.sleep(3600)
    if method == "noise":
        sys.stdout.write("x" * 300000 + "\n")
        sys.stdout.flush()
        return {}
    if method in ("compile", "capture", "describe_groups"):
        return {"candidates": [{"error": {"kind": "candidate", "message": "expected ';'"}}], "programs": [], "groups": []}
    return None, {"kind": "unsupported", "message": f"no method {method}"}


def main():
    role = sys.argv[1] if len(sys.argv) > 1 else "worker"
    if role == "broken":
        print("ModuleNotFoundError: No module named 'torch'", file=sys.stderr)
        sys.exit(1)
    while True:
        (size,) = struct.unpack("<I", read_exactly(4))
        request = json.loads(read_exactly(size))
        answer = handle(role, request)
        if isinstance(answer, tuple):
            write(frame({"id": request["id"], "error": answer[1]}))
        else:
            write(frame({"id": request["id"], "result": answer}))


if __name__ == "__main__":
    main()
