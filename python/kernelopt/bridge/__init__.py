"""Bridge: hooks Inductor, records its schedule, and puts verified kernels in place of its groups (DESIGN.md sections 3, 4, 9)."""

from kernelopt.bridge.adapters import UnsupportedTorch, adapter_for
from kernelopt.bridge.capture import CaptureResult, capture, describe_groups, stitch
from kernelopt.bridge.digest import GroupError, GroupView, fingerprint
from kernelopt.bridge.runtime import KernelOptMismatch, kernelopt_model, make_model_new
from kernelopt.bridge.source import runtime_source

__all__ = ["CaptureResult", "GroupError", "GroupView", "KernelOptMismatch", "UnsupportedTorch", "adapter_for", "capture", "describe_groups",
           "fingerprint", "kernelopt_model", "make_model_new", "runtime_source", "stitch"]
