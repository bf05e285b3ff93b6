"""The worker process: `python -m kernelopt.worker`, started by the engine (docs/protocol.md)."""

import os
import platform
import sys

from kernelopt import exchange, protocol
from kernelopt.protocol import ProtocolError


def main():
    protocol.prepare_process()
    try:
        channel = protocol.open_channel()
    except ProtocolError as error:
        print(f"kernelopt.worker: {error.message}", file=sys.stderr)
        return 3
    status = protocol.Server(channel, handlers()).serve()
    exchange.remove_own_files()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads and pools of libraries have nothing left to say.
    os._exit(status)


def handlers():
    """Method name -> handler. Raises nothing: a torch that does not import is each method's answer."""
    try:
        import torch

        from kernelopt import bridge
    except ImportError as error:
        message = f"this Python has no usable torch: {error}"
        return {"hello": _raise("environment", message)}
    try:
        bridge.adapter_for()
    except bridge.UnsupportedTorch as error:
        return {"hello": _raise("environment", str(error))}
    from kernelopt.worker import compiler, device, groups, models, peaks

    threads = os.environ.get("KERNELOPT_THREADS")
    if threads:
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
