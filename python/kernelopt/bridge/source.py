"""The runtime as one file, for optimized.py (DESIGN.md section 9)."""

from __future__ import annotations

import pathlib
import re

# Order matters: each module imports only those before it.
RUNTIME_MODULES = ("adapters", "record", "digest", "regroup", "session", "runtime")
_FUTURE = re.compile(r"^from __future__ import annotations\n", re.MULTILINE)
_OWN = re.compile(r"^from kernelopt\.bridge\.\w+ import (?:\([^)]*\)|[^\n(]*)\n", re.MULTILINE)


def runtime_source() -> str:
    """One self-contained module that needs torch alone; it defines `kernelopt_model(Model, kernels)`."""
    folder = pathlib.Path(__file__).resolve().parent
    parts = ['"""KernelOPT runtime, generated: stitches verified kernels into torch.compile\'s program."""\n',
             "from __future__ import annotations\n"]
    for name in RUNTIME_MODULES:
        text = (folder / f"{name}.py").read_text()
        parts.append(f"\n# ---- {name}.py\n\n" + _OWN.sub("", _FUTURE.sub("", text)))
    return "\n".join(parts)
