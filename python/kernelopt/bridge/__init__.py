"""Bridge: hooks Inductor, records its schedule, and puts verified kernels in place of its groups (DESIGN.md sections 3, 4, 9)."""

from kernelopt.bridge.adapters import UnsupportedTorch, adapter_for
from kernelopt.bridge.capture import CaptureResult, capture, describe_groups, stitch
from kernelopt.bridge.digest import GroupError, GroupView, fingerprint

__all__ = ["CaptureResult", "GroupError", "GroupView", "UnsupportedTorch", "adapter_for", "capture", "describe_groups",
           "fingerprint", "stitch"]
