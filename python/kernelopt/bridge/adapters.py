"""Adapters: everything in which one torch minor differs from another (DESIGN.md section 3).

Nothing here touches Inductor when it is imported, so that any torch can import it and be refused politely.

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import types

import torch


class UnsupportedTorch(RuntimeError):
    """This torch minor has not been tested with KernelOPT; nothing is captured or stitched."""


class Adapter:
    """Facts about one torch minor. Stateless; one instance per minor, shared by everybody.

    minor: "2.13".
    index_ops: ops whose first argument is an index expression and whose second is the declared type.
    plain_nodes: exact class names of scheduler nodes whose bodies are printed as they stand, one after the other or (foreach
        nodes, on GPUs the pieces of a concatenation) side by side.
    """

    minor = ""
    index_ops = frozenset({"index_expr"})
    plain_nodes = frozenset({"SchedulerNode", "FusedSchedulerNode", "OuterLoopFusedSchedulerNode", "ForeachKernelSchedulerNode"})

    def stream_of(self, scheduler, node) -> int | None:
        """The stream a node was put on, None where this minor knows no streams or the graph uses one only."""
        return None

    def set_stream(self, scheduler, node, stream: int | None) -> None:
        """Puts a regrouped node on a stream."""

    def effective_threads(self) -> int:
        """The thread count that the compiler bakes into C++ kernels."""
        from torch._inductor.codegen.cpp import parallel_num_threads

        return int(parallel_num_threads())


class Adapter211(Adapter):
    minor = "2.11"


class Adapter213(Adapter):
    minor = "2.13"
    # value_expr honours its type; index_expr may be computed in the kernel's own index type.
    index_ops = frozenset({"index_expr", "value_expr"})

    def stream_of(self, scheduler, node) -> int | None:
        return scheduler.node_to_stream.get(node) if getattr(scheduler, "node_to_stream", None) else None

    def set_stream(self, scheduler, node, stream: int | None) -> None:
        if stream is not None:
            scheduler.node_to_stream[node] = stream


ADAPTERS = {adapter.minor: adapter for adapter in (Adapter211(), Adapter213())}


def torch_minor(version: str | None = None) -> str:
    """"2.13" for "2.13.0+cpu"."""
    return ".".join((version or torch.__version__).split("+")[0].split(".")[:2])


def torch_release(version: str | None = None) -> str:
    """The version without its build tag."""
    return (version or torch.__version__).split("+")[0]


def adapter_for(version: str | None = None) -> Adapter:
    """The adapter of that torch version; UnsupportedTorch names the supported minors."""
    minor = torch_minor(version)
    if minor not in ADAPTERS:
        supported = ", ".join(sorted(ADAPTERS))
        raise UnsupportedTorch(f"torch {minor} is not supported by this KernelOPT; supported: {supported}")
    return ADAPTERS[minor]


def clone_function(function):
    """The same function over a new code object, so that Dynamo's caches do not mix two compiles."""
    clone = types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__,
                               function.__defaults__, function.__closure__)
    clone.__kwdefaults__ = function.__kwdefaults__
    clone.__qualname__, clone.__module__ = function.__qualname__, function.__module__
    clone.__annotations__ = dict(getattr(function, "__annotations__", {}))
    return clone
