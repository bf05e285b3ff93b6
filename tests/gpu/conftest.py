"""Tests that need a CUDA device: skipped, by name, where there is none."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))


def pytest_collection_modifyitems(items):
    try:
        import torch

        if torch.cuda.is_available():
            return
        reason = "no CUDA device"
    except ImportError:
        reason = "no torch"
    for item in items:
        if "tests/gpu" in str(item.path):
            item.add_marker(pytest.mark.skip(reason=reason))
