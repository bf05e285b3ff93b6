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
    return WorkerServer(channel, handlers()).serve()


class WorkerServer(protocol.Server):
    """Ends the process after the reply that says so when the CUDA context is dead: nothing that it would answer is true.

    The request at which that showed is answered with an error of the kind that it has (a candidate's run: `candidate`)."""

    def _answer(self, request):
        reply = super()._answer(request)
        self._dead = None
        torch = sys.modules.get("torch")
        if torch is not None and "error" in reply and torch.cuda.is_initialized():
            from kernelopt.worker import cuda

            self._dead = cuda.context_error()
        return reply

    def _reply(self, reply):
        super()._reply(reply)
        if getattr(self, "_dead", None) is not None:
            from kernelopt import exchange

            print(f"kernelopt.worker: the CUDA context is dead ({self._dead}); this process ends", file=sys.stderr, flush=True)
            exchange.remove_own_files()
            os._exit(4)


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
    from kernelopt.worker import building, cuda, device, groups, models, peaks

    threads = os.environ.get("KERNELOPT_THREADS", "")
    if threads.isdigit() and int(threads) > 0:
        torch.set_num_threads(int(threads))
    owner = models.Models()
    if cuda.default_device() == "cuda":
        cuda.unlock_while_compiling()

    def hello(_params, _progress):
        kind = cuda.default_device()
        facts = cuda.facts() if kind == "cuda" else device.cpu_facts()
        fingerprint = bridge.fingerprint(device=kind)
        return {
            "protocol": protocol.VERSION,
            "role": "worker",
            "torch": torch.__version__,
            "adapter": bridge.adapter_for().minor,
            "python": platform.python_version(),
            "device": facts,
            "fingerprint": cuda.fingerprint(fingerprint) if kind == "cuda" else fingerprint,
        }

    def compile_(params, progress):
        candidates = protocol.required(params, "candidates")
        limit = float(params.get("timeout_seconds", 60))
        return {"candidates": building.compile_candidates(candidates, limit, progress, params.get("arch"))}

    def drop_files(params, _progress):
        return {"removed": exchange.remove_files(protocol.required(params, "tree"))}

    def runtime_source(_params, _progress):
        return {"source": bridge.runtime_source()}

    def alone(handler):
        """Nothing of ours uses the GPU while another process of ours times on it."""

        def locked(params, progress):
            cuda.on_wait = lambda: progress(protocol.WAITING, 0, 0)
            with cuda.lock_for(cuda.default_device()):
                return handler(params, progress)

        return locked

    on_device = {
        "measure_peaks": peaks.measure_peaks, "load_model": owner.load_model, "capture": owner.capture,
        "describe_groups": owner.describe_groups, "stitch": owner.stitch, "load_optimized": owner.load_optimized,
        "baseline_modes": owner.baseline_modes, "run_group": groups.run_group, "time_group": groups.time_group,
        "run_model": owner.run_model, "time_model": owner.time_model,
    }
    return {
        **{name: alone(handler) for name, handler in on_device.items()},
        "hello": hello,
        "compile": compile_,
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
