"""Loads a user's model and draws its inputs, the same in worker and judge (DESIGN sections 3 and 9).

A model is `path/to/file.py` in KernelBench format (`Model`, `get_inputs`, optionally `get_init_inputs`) or
`module:function`, where the function returns `(model, inputs)`; `inputs` is a list, a tuple or a function of none.
The model runs as constructed (train or eval mode is its own business), under `torch.no_grad()`.

`seed` draws everything: torch, numpy and random are seeded before the model is built and again before inputs are drawn, so
the same seed gives the same values in every process. What is wrong with the user's model is a ProtocolError of kind `user`
with one clear line; its traceback is in `detail`.
"""

import contextlib
import copy
import hashlib
import importlib
import importlib.util
import inspect
import os
import random
import sys
import traceback
import types

import torch

from kernelopt.protocol import ProtocolError, one_line
from kernelopt.state import ModelState, copy_inputs, map_tensors, memory_share, restore_inputs, same_bits, tensors_of

__all__ = [
    "LoadedModel", "ModelSource", "ModelState", "copy_inputs", "is_out_of_memory", "load_module", "map_tensors", "observe",
    "restore_inputs", "rng_state", "run_calls", "same_bits", "seed_everything", "tensors_of", "user_code", "user_error",
]

_DTYPES = {
    "float32": torch.float32, "fp32": torch.float32, "float64": torch.float64, "fp64": torch.float64,
    "float16": torch.float16, "fp16": torch.float16, "bfloat16": torch.bfloat16, "bf16": torch.bfloat16,
}


# Of the inputs of the last seeds that stay on a GPU; one seed's always do. Every gate goes round the same few seeds.
_DRAWN_KEPT = 1 / 16  # of its memory


def seed_everything(seed):
    """Seeds torch, random and, where it is loaded already or installed, numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed % (1 << 32))


def rng_state():
    """The state of every generator that `seed_everything` seeds, as something to compare."""
    states = [torch.get_rng_state().numpy().tobytes() if _has_numpy() else tuple(torch.get_rng_state().tolist())]
    states.append(random.getstate())
    if _has_numpy():
        import numpy

        name, keys, *rest = numpy.random.get_state()
        states.append((name, keys.tobytes(), *rest))
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(tuple(state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()))
    return states


def _has_numpy():
    return importlib.util.find_spec("numpy") is not None


@contextlib.contextmanager
def user_code(what):
    """Turns whatever the user's code raises into one line: `what` raised Type: message (file:line)."""
    try:
        yield
    except ProtocolError:
        raise
    except (Exception, SystemExit) as error:
        raise user_error(what, error) from error


def user_error(what, error):
    """The ProtocolError for an exception in the user's code."""
    text = one_line(f"{type(error).__name__}: {error}".rstrip(": "))
    if is_out_of_memory(error):
        message = f"{what} ran out of memory: {text}"
    elif isinstance(error, SyntaxError):
        message = f"{what}: {type(error).__name__}: {error.msg} ({_short(error.filename)}, line {error.lineno})"
    else:
        message = f"{what} raised {text}{_where(error)}"
    return ProtocolError("user", message, "".join(traceback.format_exception(error)))


def is_out_of_memory(error):
    """Whether an exception says that memory ran out, on the host or on a device."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "not enough memory" in text)


def _short(path):
    return os.path.basename(path or "?")


def _where(error):
    """The innermost frame that is neither torch's nor ours."""
    own = os.path.dirname(os.path.abspath(__file__))
    torch_root = os.path.dirname(os.path.abspath(torch.__file__))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not os.path.abspath(frame.filename).startswith((own, torch_root)) and not frame.filename.startswith("<")
    ]
    return f" ({_short(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""


class ModelSource:
    """Where models and inputs come from. `build(seed)` and `draw(seed)` run the user's code."""

    def __init__(self, spec):
        self.spec = spec
        if spec.endswith(".py") or os.sep in spec or os.path.exists(spec):
            self._from_file(spec)
        elif ":" in spec:
            self._from_function(spec)
        else:
            raise ProtocolError("user", f"{spec} is neither a Python file nor module:function")

    def _from_file(self, path):
        if not os.path.exists(path):
            raise ProtocolError("user", f"no such file: {path}")
        if os.path.isdir(path) or not path.endswith(".py"):
            raise ProtocolError("user", f"{path} is not a Python file")
        module = load_module(path)
        self.module = module
        model_class = getattr(module, "Model", None)
        if not inspect.isclass(model_class) or not issubclass(model_class, torch.nn.Module):
            raise ProtocolError("user", f"{path} defines no class Model derived from torch.nn.Module")
        if not callable(getattr(module, "get_inputs", None)):
            raise ProtocolError("user", f"{path} defines no function get_inputs")
        self.draw = self._draw_from_file
        self.build = self._build_from_file

    def _build_from_file(self, seed, model_class=None):
        seed_everything(seed)
        model_class = model_class or self.module.Model
        get_init_inputs = getattr(self.module, "get_init_inputs", None)
        arguments = []
        if get_init_inputs is not None:
            with user_code("get_init_inputs"):
                arguments = get_init_inputs()
        if not isinstance(arguments, (list, tuple, dict)):
            raise ProtocolError("user", f"get_init_inputs returns {type(arguments).__name__}, not a list")
        with user_code("the constructor of Model"):
            return model_class(**arguments) if isinstance(arguments, dict) else model_class(*arguments)

    def _draw_from_file(self, seed):
        seed_everything(seed)
        with user_code("get_inputs"):
            return _as_arguments(self.module.get_inputs(), "get_inputs")

    def _from_function(self, spec):
        module_name, _, function_name = spec.partition(":")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            if importlib.util.find_spec(module_name) is None:
                raise ModuleNotFoundError(f"No module named '{module_name}'")
        except (ModuleNotFoundError, ValueError) as error:
            raise ProtocolError("user", f"no such module: {module_name}") from error
        with user_code(f"importing {module_name}"):
            self.module = importlib.import_module(module_name)
        function = getattr(self.module, function_name, None)
        if not callable(function):
            raise ProtocolError("user", f"{module_name} defines no function {function_name}")
        self._function, self._function_name = function, spec
        self.build = lambda seed: self._call(seed)[0]
        self.draw = lambda seed: self._call(seed)[1]

    def _call(self, seed):
        seed_everything(seed)
        with user_code(self._function_name):
            result = self._function()
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], torch.nn.Module)):
            raise ProtocolError("user", f"{self._function_name} does not return (model, inputs)")
        model, inputs = result
        with user_code(f"the inputs of {self._function_name}"):
            if callable(inputs):
                seed_everything(seed)
                inputs = inputs()
            return model, _as_arguments(inputs, self._function_name)


def load_module(path):
    """Imports the Python file at `path` under a name of its own; the same file with the same text gives the same module."""
    path = os.path.abspath(path)
    with open(path, "rb") as file:
        name = "kernelopt_model_" + hashlib.sha256(path.encode() + b"\0" + file.read()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module
    try:
        with user_code(f"importing {os.path.basename(path)}"):
            spec.loader.exec_module(module)
    except ProtocolError:
        del sys.modules[name]
        raise
    return module


def _as_arguments(value, who):
    if isinstance(value, torch.Tensor):
        return [value]
    if not isinstance(value, (list, tuple)):
        raise ProtocolError("user", f"{who} returns {type(value).__name__}, not a list of the model's arguments")
    return list(value)


class LoadedModel:
    """A model as the user asked for it: source, device, dtype, seed, state. Raises ProtocolError (user, environment).

    `pristine` is the model as constructed; it never runs. `fresh()` gives copies that do."""

    def __init__(self, spec, device="cpu", dtype=None, seed=0, inputs=None, state_dict=None):
        self.device = _device(device)
        if dtype is not None and dtype not in _DTYPES:
            raise ProtocolError("user", f"no such floating type: {dtype} (known: {', '.join(sorted(_DTYPES))})")
        self.dtype = _DTYPES[dtype] if dtype is not None else None
        self.seed = seed
        self.source = ModelSource(spec)
        self._drawn = {}  # seed -> inputs on a GPU
        self._file_inputs = None if inputs is None else _as_arguments(_load_file(inputs), inputs)
        self._state_dict = None if state_dict is None else _load_file(state_dict)
        self.pristine = self._build()
        self._check_arity()

    def build_as(self, model_class):
        """Another class constructed as `Model` is: same arguments, seed, device and dtype."""
        if hasattr(self.source, "_function"):
            raise ProtocolError("unsupported", f"{self.source.spec} names a function, not a class")
        return self._build(model_class)

    def _build(self, model_class=None):
        model = self.source.build(self.seed, model_class) if model_class else self.source.build(self.seed)
        if self._state_dict is not None:
            with user_code("load_state_dict"):
                model.load_state_dict(self._state_dict)
        with user_code("moving the model to its device"):
            model.to(device=self.device)
            if self.dtype is not None:
                model.to(dtype=self.dtype)
        return model

    def inputs(self, seed):
        """Fresh arguments for `seed`, on the device and in the dtype asked for; from the inputs file where there is one,
        which is the same for every seed."""
        # Drawing on the host and copying to a GPU takes seconds where inputs are large: the last ones are kept there.
        if seed in self._drawn:
            self._drawn[seed] = self._drawn.pop(seed)
            with user_code("moving the inputs to their device"):
                return copy_inputs(self._drawn[seed])
        drawn = self._file_inputs if self._file_inputs is not None else self._draw(seed)
        with user_code("moving the inputs to their device"):
            if self.device.type == "cpu":
                return copy_inputs(drawn, self.device, self.dtype)
            self._drawn[seed] = copy_inputs(drawn, self.device, self.dtype)
            limit = memory_share(self.device, _DRAWN_KEPT, 0)
            while len(self._drawn) > 1 and sum(t.untyped_storage().nbytes() for t in tensors_of(list(self._drawn.values()))) > limit:
                del self._drawn[next(iter(self._drawn))]
            return copy_inputs(self._drawn[seed])

    def kept_inputs(self, seed):
        """The inputs of `seed` as drawn, not to be written, where they are kept; else None."""
        return self._drawn.get(seed)

    def _draw(self, seed):
        if self.device.type == "cpu":
            return self.source.draw(seed)
        from kernelopt.worker import cuda

        with cuda.device_unlocked():  # seconds of work on the host
            return self.source.draw(seed)

    def _check_arity(self):
        given = self.inputs(self.seed)
        try:
            signature = inspect.signature(self.pristine.forward)
        except (TypeError, ValueError):
            return
        try:
            signature.bind(*given)
        except TypeError as error:
            kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            count = sum(1 for parameter in signature.parameters.values() if parameter.kind in kinds)
            who = "the inputs file holds" if self._file_inputs is not None else "get_inputs returns"
            raise ProtocolError(
                "user", f"{who} {len(given)} value(s), but Model.forward takes {count}: {error}"
            ) from error

    def fresh(self, parameters_of=None):
        """A copy of the pristine model whose `forward` has a code object of its own, so that what the compiler caches for
        one copy neither slows nor limits another. It shares nothing with the pristine model; with `parameters_of`, an
        earlier copy, it shares that copy's parameters."""
        memo = {}
        if parameters_of is not None:
            memo = {id(a): b for a, b in zip(self.pristine.parameters(), parameters_of.parameters(), strict=True)}
        try:
            model = copy.deepcopy(self.pristine, memo)
        except Exception:  # a model that cannot be copied can still be built again
            model = self._build()
        _own_code(model)
        return model


def _own_code(model):
    forward = type(model).forward
    if not isinstance(forward, types.FunctionType) or "forward" in vars(model):
        return
    twin = types.FunctionType(
        forward.__code__.replace(), forward.__globals__, forward.__name__, forward.__defaults__, forward.__closure__
    )
    twin.__kwdefaults__, twin.__dict__ = forward.__kwdefaults__, dict(forward.__dict__)
    twin.__qualname__, twin.__module__ = forward.__qualname__, forward.__module__
    model.forward = types.MethodType(twin, model)


def run_calls(call, arguments, seed, calls=1):
    """Calls a model `calls` times on the same arguments, random numbers drawn from `seed`; the last call's outputs. Worker
    and judge both go through here, so that a random model draws the same numbers in both."""
    seed_everything(seed)
    outputs = None
    with torch.no_grad():
        for _ in range(calls):
            outputs = call(*arguments)
    return outputs


def observe(loaded):
    """Runs the model once, eagerly, on its own seed. Returns (outputs, needs): needs lists `random` (draws random numbers),
    `mutates_inputs`, `mutates_state` (buffers, attributes), `mutates_parameters`. A `forward` that raises is a user
    error."""
    model, arguments = loaded.fresh(), loaded.inputs(loaded.seed)
    before = copy_inputs(arguments)
    state = ModelState(model)
    seed_everything(loaded.seed)
    generators = rng_state()
    with user_code("Model.forward"), torch.no_grad():
        outputs = model(*arguments)
    needs = []
    if rng_state() != generators:
        needs.append("random")
    if any(not same_bits(a, b) for a, b in zip(tensors_of(arguments), tensors_of(before))):
        needs.append("mutates_inputs")
    if state.changed():
        needs.append("mutates_state")
    if any(not same_bits(a, b) for a, b in zip(model.parameters(), loaded.pristine.parameters())):
        needs.append("mutates_parameters")
    return outputs, needs


def _device(name):
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ProtocolError("user", f"no such device: {name}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ProtocolError("environment", "this machine has no CUDA device that torch can use")
    if device.type not in ("cpu", "cuda"):
        raise ProtocolError("unsupported", f"device {name}: KernelOPT knows cpu and cuda")
    return device


def _load_file(path):
    if not os.path.exists(path):
        raise ProtocolError("user", f"no such file: {path}")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        message = f"{path} is not a file that torch.load reads with weights_only: {one_line(error)[:200]}"
        raise ProtocolError("user", message) from error
