"""The worker process: `python -m kernelopt.worker`, started by the engine (docs/protocol.md)."""

import os
import platform
import sys

from kernelopt import protocol
from kernelopt.protocol import ProtocolError


def main():
    protocol.prepare_process()
    try:
        channel = protocol.open_channel()
    except ProtocolError as error:
        print(f"kernelopt.worker: {error.message}", file=sys.stderr)
        return 3
    return protocol.Server(channel, handlers()).serve()


def handlers():
    """Method name -> handler. Raises nothing: a torch that is missing or not supported is what `hello` answers."""
    try:
        import torch
    except ImportError as error:
        return {"hello": _raise("environment", f"this Python ({sys.executable}) has no usable torch: {error}")}
    try:
        from kernelopt import bridge, exchange

        bridge.adapter_for()
    except Exception as error:
        # Another minor may lack what the bridge imports; its version is the better message then.
        if type(error).__name__ != "UnsupportedTorch":
            error = f"torch {torch.__version__} is not supported: {error}"
        return {"hello": _raise("environment", str(error))}
    from kernelopt.worker import compiler, device, groups, models, peaks

    threads = os.environ.get("KERNELOPT_THREADS", "")
    if threads.isdigit() and int(threads) > 0:
        torch.set_num_threads(int(threads))
    owner = models.Models()

    def hello(_params, _progress):
        facts = device.cpu_facts()
        return {
            "protocol": protocol.VERSION,
            "role": "worker",
            "torch": torch.__version__,
            "adapter": bridge.adapter_for().minor,
            "python": platform.python_version(),
            "device": facts,
            "fingerprint": bridge.fingerprint(),
        }

    def compile_(params, progress):
        candidates = protocol.required(params, "candidates")
        limit = float(params.get("timeout_seconds", 60))
        return {"candidates": compiler.compile_candidates(candidates, limit, progress)}

    def drop_files(params, _progress):
        return {"removed": exchange.remove_files(protocol.required(params, "tree"))}

    def runtime_source(_params, _progress):
        return {"source": bridge.runtime_source()}

    return {
        "hello": hello,
        "measure_peaks": peaks.measure_peaks,
        "load_model": owner.load_model,
        "capture": owner.capture,
        "describe_groups": owner.describe_groups,
        "stitch": owner.stitch,
        "load_optimized": owner.load_optimized,
        "baseline_modes": owner.baseline_modes,
        "compile": compile_,
        "run_group": groups.run_group,
        "time_group": groups.time_group,
        "run_model": owner.run_model,
        "time_model": owner.time_model,
        "drop": owner.drop,
        "drop_files": drop_files,
        "runtime_source": runtime_source,
    }


def _raise(kind, message):
    def handler(_params, _progress):
        raise ProtocolError(kind, message)

    return handler


if __name__ == "__main__":
    sys.exit(main())
