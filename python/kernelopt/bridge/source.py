"""The runtime as one file, for optimized.py (DESIGN.md section 9)."""

from __future__ import annotations

import pathlib
import re
import textwrap

# Order matters: each module imports only those before it. Those of the second line touch Inductor's internals when they are
# imported, so the file defines them only where an adapter knows the internals; elsewhere the runtime falls back.
_ANYWHERE = ("adapters", "runtime")
_KNOWN_TORCH = ("products", "convolutions", "pooling", "scans", "record", "digest", "printers", "regroup", "session")
_FUTURE = re.compile(r"^from __future__ import annotations\n", re.MULTILINE)
_OWN = re.compile(r"^from kernelopt\.bridge\.\w+ import (?:\([^)]*\)|[^\n(]*)\n", re.MULTILINE)


def runtime_source() -> str:
    """One self-contained module that needs torch alone; it defines `kernelopt_model(Model, kernels)`."""
    parts = ['"""KernelOPT runtime, generated: stitches verified kernels into torch.compile\'s program."""\n\n'
             "from __future__ import annotations\n", _module_text(_ANYWHERE[0]), "if torch_minor() in ADAPTERS:\n"]
    parts += [textwrap.indent(_module_text(name), "    ") for name in _KNOWN_TORCH]
    parts += [_module_text(name) for name in _ANYWHERE[1:]]
    return "\n".join(parts)


def _module_text(name: str) -> str:
    text = (pathlib.Path(__file__).resolve().parent / f"{name}.py").read_text()
    return f"# ---- {name}.py\n\n" + _OWN.sub("", _FUTURE.sub("", text))
