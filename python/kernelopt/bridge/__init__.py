"""Bridge: hooks Inductor, records its schedule, and puts verified kernels in place of its groups (DESIGN.md sections 3, 4, 9)."""

from kernelopt.bridge.adapters import UnsupportedTorch, adapter_for

adapter_for()  # refuse an untested torch by name, before its internals are imported

from kernelopt.bridge.capture import CaptureResult, capture, describe_groups, stitch  # noqa: E402
from kernelopt.bridge.digest import GroupError, GroupView, fingerprint, has_loops  # noqa: E402
from kernelopt.bridge.runtime import KernelOptMismatch, kernelopt_model, make_model_new  # noqa: E402
from kernelopt.bridge.source import runtime_source  # noqa: E402

__all__ = [
    "CaptureResult", "GroupError", "GroupView", "KernelOptMismatch", "UnsupportedTorch", "adapter_for", "capture",
    "describe_groups", "fingerprint", "has_loops", "kernelopt_model", "make_model_new", "runtime_source", "stitch",
]
