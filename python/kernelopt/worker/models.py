"""Models by handle: eager, the compiler's modes, stitched programs and `optimized.py` files (docs/protocol.md).

Every handle owns a copy of the model, so that none sees what another did to buffers; before each run its copy is put back
to the state in which the model was constructed. Parameters are shared between the copies (so that no side of a timing finds
them in a better place than the other), unless the model writes them itself; a handle that changed them by mistake is told
so, and they are put right.
"""

import contextlib
import json
import os
import time

import torch

from kernelopt import bridge, model_loader
from kernelopt.protocol import ProtocolError, one_line, required
from kernelopt.worker import cuda, cuda_timing, timing
from kernelopt.worker.groups import write_reply

_COMPILER_MODES = ("default", "max-autotune", "max-autotune-no-cudagraphs")


class Handle:
    """One runnable model: `call(*inputs)`, and the module whose state it changes."""

    def __init__(self, name, module, call, parameters):
        self.name, self.module, self.call = name, module, call
        self.state = model_loader.ModelState(module, parameters)


class Models:
    """The loaded model and its handles; one per worker process."""

    def __init__(self):
        self._loaded = None
        self._shared = None  # the copy whose parameters all handles use
        self._needs = []
        self._handles = {}
        self._captured = None
        self._counter = 0

    # load_model

    def load_model(self, params, _progress):
        loaded = model_loader.LoadedModel(
            required(params, "path"), params.get("device") or cuda.default_device(), params.get("dtype"), int(params.get("seed") or 0),
            params.get("inputs"), params.get("state_dict"),
        )
        self._handles.clear()
        self._captured, self._loaded, self._shared = None, None, None
        _, needs = model_loader.observe(loaded)
        self._loaded, self._needs = loaded, needs
        inputs = model_loader.tensors_of(loaded.inputs(loaded.seed))
        return {
            "parameters": sum(parameter.numel() for parameter in loaded.pristine.parameters()),
            "inputs": [
                {
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "size": list(tensor.shape),
                    "stride": list(tensor.stride()),
                    "device": str(tensor.device),
                }
                for tensor in inputs
            ],
            "needs": needs,
        }

    @property
    def loaded(self):
        if self._loaded is None:
            raise ProtocolError("internal", "no model is loaded")
        return self._loaded

    @property
    def _stateful(self):
        return "mutates_state" in self._needs or "mutates_parameters" in self._needs

    def _copy(self):
        """A model for a new handle."""
        if "mutates_parameters" in self._needs:
            return self.loaded.fresh()
        if self._shared is None:
            self._shared = self.loaded.fresh()
        return self.loaded.fresh(parameters_of=self._shared)

    def _new_handle(self, name, model, call):
        return Handle(name, model, call, "mutates_parameters" in self._needs)

    def _check_parameters(self, name):
        """Raises ProtocolError (candidate) if a run changed parameters that it had no business to change."""
        if self._shared is None or name == "eager":
            return
        changed = False
        for mine, original in zip(self._shared.parameters(), self.loaded.pristine.parameters()):
            if not model_loader.same_bits(mine, original):
                changed = True
                with torch.no_grad():
                    mine.copy_(original)
        if changed:
            raise ProtocolError("candidate", "the run changed the model's parameters")

    # capture, describe_groups, stitch

    def capture(self, params, _progress):
        folder = required(params, "out")
        os.makedirs(folder, exist_ok=True)
        with _compiling():
            result = bridge.capture(self._copy(), self.loaded.inputs(self.loaded.seed), _mode(params))
        self._captured = result
        files = []
        for program in result.programs:
            path = os.path.join(folder, f"graph{program['graph']}.json")
            with open(path + ".new", "w") as file:
                json.dump(program, file, allow_nan=False)
            os.replace(path + ".new", path)
            files.append(path)
        return {
            "programs": files,
            "graph_breaks": [one_line(entry["reason"]) for entry in result.graph_breaks],
            "refused": [{"graph": entry["graph"], "reason": one_line(entry["reason"])} for entry in result.refused],
            "compile_seconds": result.compile_seconds,
        }

    def describe_groups(self, params, _progress):
        if self._captured is None:
            raise ProtocolError("internal", "nothing is captured")
        groups = required(params, "groups")
        with _compiling():
            described = bridge.describe_groups(self._captured, groups, int(params.get("graph", 0)))
        return {"groups": described}

    def stitch(self, params, _progress):
        kernels = params.get("kernels")
        model = self._copy()
        arguments = self.loaded.inputs(self.loaded.seed)
        with _compiling():
            call, replaced, result = bridge.stitch(model, arguments, _mode(params), kernels, passthrough=kernels is None)
        name = self._add(self._new_handle("stitched", model, call), self.loaded.fresh() if self._stateful else None)
        return {
            "handle": name,
            "replaced": replaced,
            "problems": [one_line(problem) for problem in result.problems],
            "compile_seconds": result.compile_seconds,
        }

    def load_optimized(self, params, _progress):
        """`ModelNew` of an `optimized.py`, constructed as `Model` is and given its weights."""
        path = required(params, "path")
        module = model_loader.load_module(path)
        if not hasattr(module, "ModelNew"):
            raise ProtocolError("candidate", f"{path} defines no ModelNew")
        started = time.perf_counter()
        try:
            model = self.loaded.build_as(module.ModelNew)
            arguments = self.loaded.inputs(self.loaded.seed)
            reference = self.loaded.fresh()
            model.load_state_dict(reference.state_dict())
            state = model_loader.ModelState(model, "mutates_parameters" in self._needs)
            with _running():
                model_loader.run_calls(model, arguments, self.loaded.seed)
                cuda.synchronize(self.loaded.device)
            state.restore()
        except ProtocolError:
            raise
        except Exception as error:
            if model_loader.is_out_of_memory(error):
                raise model_loader.user_error("the optimized model", error) from error
            raise ProtocolError("candidate", f"{os.path.basename(path)} does not run: {_compiler_says(error)}") from error
        handle = self._new_handle("optimized", model, model)
        handle.state = state
        status = getattr(model, "kernelopt_status", None)
        return {
            "handle": self._add(handle),
            "status": status if isinstance(status, dict) else {"text": str(status)},
            "compile_seconds": time.perf_counter() - started,
        }

    def _add(self, handle, pristine=None):
        """Registers a handle. Compiling has run the model once: its state is put back from `pristine`, a fresh copy."""
        if pristine is not None:
            handle.state.take_from(pristine)
        self._counter += 1
        name = f"m{self._counter}"
        self._handles[name] = handle
        return name

    def drop(self, params, _progress):
        if self._handles.pop(required(params, "handle"), None) is None:
            raise ProtocolError("internal", f"no handle {params['handle']}")
        return {}

    def _handle(self, name):
        if name == "eager" and name not in self._handles:
            model = self._copy()
            self._handles[name] = self._new_handle("eager", model, model)
        if name not in self._handles:
            raise ProtocolError("internal", f"no handle {name}")
        return self._handles[name]

    # running and timing

    def run_model(self, params, _progress):
        handle = self._handle(required(params, "handle"))
        seed, calls = int(required(params, "seed")), max(1, int(params.get("calls", 1)))
        arguments = self.loaded.inputs(seed)
        handle.state.restore()
        with _running(), _blamed_on(handle):
            outputs = model_loader.run_calls(handle.call, arguments, seed, calls)
            cuda.synchronize(self.loaded.device)
        self._check_parameters(handle.name)
        buffers = {name: tensor for name, tensor in handle.module.named_buffers()}
        if "mutates_parameters" in self._needs:
            buffers.update(handle.module.named_parameters())
        tree = write_reply({"outputs": outputs, "inputs": arguments, "buffers": buffers})
        parts = {key["value"]: value for key, value in tree["items"]}
        handle.state.restore()
        return parts

    def time_model(self, params, _progress):
        handles = [self._handle(name) for name in required(params, "handles")]
        seed = int(params.get("seed") or 0)
        return self._time(handles, seed, params, peaks=True)

    def _time(self, handles, seed, params, peaks):
        arguments = self.loaded.inputs(seed)
        pristine = model_loader.copy_inputs(arguments) if "mutates_inputs" in self._needs else None
        stateful = self._stateful

        def prepare_for(handle):
            if pristine is None and not stateful:
                return None

            def prepare():
                if pristine is not None:
                    model_loader.restore_inputs(arguments, pristine)
                if stateful:
                    handle.state.restore()

            return prepare

        prepares = [prepare_for(handle) for handle in handles]
        calls = [lambda call=handle.call: call(*arguments) for handle in handles]
        model_loader.seed_everything(seed)
        with torch.no_grad(), _running(), _blamed_on(*handles):
            for handle in handles:
                handle.state.restore()
            samples, batch = self._sample(calls, params, prepares)
            measure = cuda_timing.peak_bytes if self.loaded.device.type == "cuda" else peak_bytes
            used = [measure(call) for call in calls] if peaks else []
        for handle in handles:
            handle.state.restore()
        return {"samples": samples, "batch": batch, "peak_bytes": used}

    def _sample(self, calls, params, prepares):
        warmup, rep = float(params.get("warmup_ms", 25)), float(params.get("rep_ms", 100))
        if self.loaded.device.type != "cuda":
            return timing.sample_in_turn(calls, warmup, rep, prepares)
        with cuda.device_lock():
            return cuda_timing.sample_in_turn(calls, warmup, rep, prepares, idle_first=True)

    def baseline_modes(self, params, progress):
        """Every mode compiled on a copy of its own, then all sampled in alternation."""
        modes = params.get("modes") or ("eager", *_COMPILER_MODES)
        results, handles = {}, {}
        arguments = self.loaded.inputs(self.loaded.seed)
        for done, mode in enumerate(modes):
            progress(f"baseline {mode}", done, len(modes))
            try:
                handles[mode], results[mode] = self._compile_mode(mode, arguments)
            except ProtocolError as error:
                results[mode] = {"error": error.message}
        progress("baseline timing", len(modes), len(modes))
        if handles:
            timed = self._time(list(handles.values()), self.loaded.seed, params, peaks=True)
            for position, mode in enumerate(handles):
                results[mode]["samples"] = timed["samples"][position]
                results[mode]["batch"] = timed["batch"][position]
                results[mode]["peak_bytes"] = timed["peak_bytes"][position]
        return {"modes": results}

    def _compile_mode(self, mode, arguments):
        model = self._copy()
        if mode == "eager":
            call = model
        elif mode in _COMPILER_MODES:
            call = torch.compile(model, mode=None if mode == "default" else mode, dynamic=False)
        else:
            raise ProtocolError("internal", f"no such mode: {mode}")
        handle = self._new_handle(mode, model, call)
        copies = [model_loader.copy_inputs(arguments) for _ in range(2)]
        seconds = []
        try:
            with _running():
                for copy in copies:
                    started, waited = time.perf_counter(), cuda.seconds_waited()
                    model_loader.run_calls(call, copy, self.loaded.seed)
                    cuda.synchronize(self.loaded.device)
                    seconds.append(time.perf_counter() - started - (cuda.seconds_waited() - waited))
        except Exception as error:
            # The compiler's failure is a result here: eager ships then.
            raise ProtocolError("unsupported", _compiler_says(error)) from error
        handle.state.restore()
        return handle, {"compile_seconds": max(0.0, seconds[0] - seconds[1]), "first_call_seconds": seconds[0]}


def _mode(params):
    mode = params.get("mode") or "default"
    if mode not in _COMPILER_MODES:
        raise ProtocolError("internal", f"no such mode: {mode}")
    return mode


@contextlib.contextmanager
def _compiling():
    """What the compiler raises, as a reply: an unsupported torch is `environment`, the rest `unsupported`."""
    try:
        with _running():
            yield
    except ProtocolError:
        raise
    except bridge.UnsupportedTorch as error:
        raise ProtocolError("environment", str(error)) from error
    except Exception as error:
        if model_loader.is_out_of_memory(error):
            raise model_loader.user_error("compiling the model", error) from error
        raise ProtocolError("unsupported", f"torch.compile failed: {_compiler_says(error)}") from error


def _compiler_says(error):
    """The exception without the advice that torch appends to it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return one_line(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)


@contextlib.contextmanager
def _running():
    """Many handles share the code below the model's `forward` where the graph breaks; none may fall back to eager
    because others were compiled before."""
    with torch._dynamo.config.patch(recompile_limit=256, accumulated_recompile_limit=4096):
        yield


@contextlib.contextmanager
def _blamed_on(*handles):
    """What a run raises: the user's fault where only eager ran, else the candidate's; out of memory is nobody else's."""
    try:
        yield
    except Exception as error:
        if model_loader.is_out_of_memory(error) or all(handle.name == "eager" for handle in handles):
            raise model_loader.user_error("Model.forward", error) from error
        raise ProtocolError("candidate", f"the run raised {_compiler_says(error)}") from error


def peak_bytes(call):
    """Bytes of memory that one call needs on top of what the process holds, as the kernel counts resident pages; None
    where it does not say."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the peak
        before = _status("VmRSS")
        call()
        return max(0, _status("VmHWM") - before)
    except (OSError, KeyError):
        call()
        return None


def _status(field):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
    raise KeyError(field)
