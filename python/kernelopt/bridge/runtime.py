"""What optimized.py runs: `ModelNew`, a model whose forward is torch.compile with verified kernels stitched in
(DESIGN.md section 9).

Where the kernels do not fit (another torch minor, device, shape, machine; or autograd would record) the model runs under
plain torch.compile, with one warning; KERNELOPT_STRICT=1 raises KernelOptMismatch instead.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import os
import threading
import types
import warnings
import weakref

import torch

from kernelopt.bridge.adapters import ADAPTERS, clone_function, torch_minor
from kernelopt.bridge.session import Session, compile_in_session, raised_limits, traceable

_ROUTE_LIMIT = 4  # input signatures that get a compile of their own; further ones use plain torch.compile


class KernelOptMismatch(RuntimeError):
    """KERNELOPT_STRICT=1 is set and the verified kernels do not fit here."""


def _leaves(value):
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _signature(args, kwargs):
    """What a static compile depends on: shapes, strides, types and devices; values of what is no tensor."""
    parts = []
    for leaf in _leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor):
            parts.append((leaf.shape, leaf.stride(), leaf.dtype, leaf.device))
        else:
            parts.append(leaf if isinstance(leaf, (int, float, bool, str, type(None))) else type(leaf))
    return tuple(parts)


def _plain_form(forward):
    """The forward for plain torch.compile; on an unknown torch without a look into Dynamo."""
    return clone_function(forward) if isinstance(forward, types.FunctionType) else forward


class _Runner:
    """Compiled forms of one ModelNew instance; made at its first call, never copied with it."""

    def __init__(self, forward, kernel_set: dict, mode: str, status: dict):
        self._forward, self._kernel_set, self._mode, self._status = forward, kernel_set, mode, status
        self._routes: dict[tuple, bool] = {}
        self._replaced: dict[tuple, list] = {}
        self._stitched = self._plain = None
        self._session: Session | None = None
        self._warned = False
        self._lock = threading.RLock()

    def call(self, module, args, kwargs):
        reason = self._obstacle(module, args, kwargs)
        if reason is None:
            key = _signature(args, kwargs)
            fits = self._routes.get(key)
            if fits is None:
                return self._first(key, module, args, kwargs)
            if fits:
                compiled = len(self._session.graphs)
                result = self._stitched(module, *args, **kwargs)
                if len(self._session.graphs) != compiled:  # a guard outside the inputs failed: judge the new program
                    self._judge(key, compiled)
                elif self._status["state"] != "optimized":
                    self._status.update(state="optimized", reason=None, replaced=self._replaced.get(key, []))
                return result
            reason = "no verified kernel fits these inputs"
        return self._fall_back(reason, module, args, kwargs)

    def _obstacle(self, module, args, kwargs) -> str | None:
        minor = torch_minor()
        if minor not in ADAPTERS or minor != self._kernel_set["torch"]:
            return f"kernels were verified with torch {self._kernel_set['torch']}, this is {torch.__version__}"
        device = self._kernel_set["fingerprint"].get("device", "cpu")
        tensors = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if torch.is_grad_enabled():
            if any(tensor.requires_grad for tensor in tensors) or any(p.requires_grad for p in module.parameters()):
                return "autograd would record; call it under torch.no_grad()"
        kinds = {tensor.device.type for tensor in tensors}
        if kinds and device not in kinds:  # numbers on the host may stand beside inputs on a GPU
            return f"kernels were verified on {device}, the inputs are on {', '.join(sorted(kinds))}"
        return None

    def _first(self, key, module, args, kwargs):
        with self._lock:
            if len(self._routes) >= _ROUTE_LIMIT:
                return self._fall_back("too many input shapes", module, args, kwargs)
            if self._stitched is None:
                self._session = Session(kernel_set=self._kernel_set)
                self._stitched = compile_in_session(traceable(self._forward), self._session, self._mode)
            before = len(self._session.graphs)
            with raised_limits():
                result = self._stitched(module, *args, **kwargs)
            self._judge(key, before)
            return result

    def _judge(self, key, before: int) -> None:
        """Decides whether inputs like these run stitched, from the graphs compiled since `before`."""
        graphs = self._session.graphs[before:]
        replaced = [entry for graph in graphs for entry in graph.replaced]
        problems = [problem for graph in graphs for problem in graph.problems]
        problems += [f"graph {graph.number}: {graph.refused}" for graph in graphs if graph.refused]
        # No compile at all means that Dynamo found an earlier program of ours to be valid for these inputs too.
        self._routes[key] = bool(replaced) or not graphs
        if replaced:
            self._replaced[key] = replaced
            self._status.update(state="optimized", reason=None, replaced=replaced)
        elif graphs:
            self._complain("; ".join(problems) or "no verified kernel fits these inputs")

    def _fall_back(self, reason: str, module, args, kwargs):
        self._complain(reason)
        with self._lock:
            if self._plain is None:
                mode = None if self._mode == "default" else self._mode
                self._plain = torch.compile(_plain_form(self._forward), mode=mode)
        return self._plain(module, *args, **kwargs)

    def _complain(self, reason: str) -> None:
        self._status.update(state="torch.compile", reason=reason, replaced=[])
        if os.environ.get("KERNELOPT_STRICT", "") not in ("", "0"):
            raise KernelOptMismatch(reason)
        if not self._warned:
            self._warned = True
            warnings.warn(f"KernelOPT: running plain torch.compile: {reason}", RuntimeWarning, stacklevel=5)


def make_model_new(Model: type, kernel_set: dict, mode: str | None = None) -> type:
    """ModelNew: Model with forward compiled and stitched. kernel_set: a `kernelopt.kernels` document.

    `mode` is the torch.compile mode whose program was optimized (the set's own "mode", else default). Parameters, state_dict,
    deep copies and .to() are Model's. An instance's `kernelopt_status` is {"state", "reason", "replaced", "groups"}.
    """
    if kernel_set.get("format") != "kernelopt.kernels" or kernel_set.get("version") != 1:
        raise ValueError("not a kernelopt.kernels document of version 1")
    runners: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    statuses: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    chosen = mode or kernel_set.get("mode") or "default"

    def status_of(self) -> dict:
        if self not in statuses:
            statuses[self] = {"state": "not run yet", "reason": None, "replaced": [], "groups": len(kernel_set["groups"])}
        return statuses[self]

    def forward(self, *args, **kwargs):
        runner = runners.get(self)
        if runner is None:
            runner = runners[self] = _Runner(Model.forward, kernel_set, chosen, status_of(self))
        return runner.call(self, args, kwargs)

    # Tracing our bookkeeping is nobody's interest: under another torch.compile the forward runs as written.
    forward = torch.compiler.disable(forward)
    body = {"forward": forward, "kernelopt_status": property(lambda self: dict(status_of(self))), "__doc__": Model.__doc__,
            "__module__": Model.__module__}
    return types.new_class("ModelNew", (Model,), {}, lambda namespace: namespace.update(body))


kernelopt_model = make_model_new
