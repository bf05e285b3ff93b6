#!/usr/bin/env python3
"""Architecture check, run as a test (DESIGN.md sections 2, 5 and 7).

Fails, with one line a finding, when
- a source of a module includes a header of a module that CMakeLists.txt does not list among its dependencies, directly
  or through others (an upward include), or an existing include path is misspelt;
- CMakeLists.txt lists a dependency that is not declared before its user;
- fusion, plan, codegen or search name an ATen operator or a model family: what is chosen there follows from loop IR alone.

    tools/check_layers.py [--root FOLDER]
"""

import argparse
import re
import sys
from pathlib import Path

MODULE = re.compile(r"^\s*kernelopt_module\(([^)]*)\)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*"(kernelopt/[^"]+)"')
# A challenge to a library call knows what the call computes, and says so; nothing else may.
CHALLENGES = (
    "plan/challenges.*", "plan/convolution*", "plan/product*", "plan/kernel_plan.*", "codegen/triton/convolution_kernel.*",
    "codegen/triton/product_kernel.*", "codegen/triton/printer.cc", "search/challenge_sources.*",
)
STEERING_FREE = ("fusion", "plan", "codegen", "search")
# Operators as ATen or its functional API spells them. Loop-level reductions such as `online_softmax_reduce` are ops of the
# IR, named by its table, and are not meant; nor is "online softmax", the name of that reduction's algorithm.
OPERATOR = re.compile(
    r"aten\.|aten::|torch\.ops|(?<![a-z_])(?:(?<!online )(?<!online_)_?(?:log_)?softmax(?!_reduce)|_?native_layer_norm|layer_?norm|group_?norm|batch_?norm|"
    r"instance_?norm|rms_?norm|(?:max|avg|adaptive_avg|adaptive_max)_pool\d?d?|convolution|conv[123]d|addmm|bmm|"
    r"scaled_dot_product\w*|gelu|silu|hardtanh|leaky_relu|embedding|resnet\w*|unet|lstm|transformer)(?![a-z_])")


def modules(text):
    """Declared modules in order, each with its direct dependencies."""
    found = {}
    for match in MODULE.finditer(text):
        words = match.group(1).split()
        if words and not words[0].startswith("$") and words[0] != "name":
            found[words[0]] = words[1:]
    return found


def closure(found):
    below = {}
    for name, direct in found.items():
        below[name] = set(direct)
        for other in direct:
            below[name] |= below.get(other, set())
    return below


def code_of(text):
    """The text with comments blanked, line numbers kept."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def check(root):
    findings = []
    text = (root / "CMakeLists.txt").read_text()
    found = modules(text)
    if not found:
        return ["CMakeLists.txt: no kernelopt_module"]
    declared = set()
    for name, direct in found.items():
        for other in direct:
            if other in found and other not in declared:
                findings.append(f"CMakeLists.txt: {name} depends on {other}, which is declared after it")
        declared.add(name)
    below = closure(found)
    source_root = root / "src" / "kernelopt"
    for path in sorted(source_root.rglob("*")):
        if path.suffix not in (".h", ".cc"):
            continue
        module = path.relative_to(source_root).parts[0]
        shown = path.relative_to(root)
        if module not in found:
            findings.append(f"{shown}: module {module} is not in CMakeLists.txt")
            continue
        raw = path.read_text()
        for number, line in enumerate(raw.splitlines(), 1):
            include = INCLUDE.match(line)
            if not include:
                continue
            target = include.group(1)
            other = target.split("/")[1]
            if not (root / "src" / target).exists():
                findings.append(f"{shown}:{number}: {target} does not exist")
            elif other != module and other not in below[module]:
                findings.append(f"{shown}:{number}: {module} must not include {target} ({other} is not below it)")
        challenges = any(shown.match(pattern) for pattern in CHALLENGES)
        if module in STEERING_FREE and not challenges and not path.name.endswith("_test.cc"):
            for number, line in enumerate(code_of(raw).splitlines(), 1):
                operator = OPERATOR.search(line)
                if operator:
                    findings.append(f"{shown}:{number}: operator name \"{operator.group()}\" in {module}")
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    findings = check(parser.parse_args().root)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
