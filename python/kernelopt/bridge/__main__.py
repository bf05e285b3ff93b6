"""`python -m kernelopt.bridge dump MODEL.py OUT.json`: the Program documents of a model in KernelBench format.

OUT.json holds the first graph; further graphs go to OUT.1.json and so on.
"""

import argparse
import importlib.util
import json
import pathlib
import sys

import torch

from kernelopt.bridge.capture import capture


def _load(path: str, device: str):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    with torch.device(device):
        torch.manual_seed(0)
        model = module.Model(*(module.get_init_inputs() if hasattr(module, "get_init_inputs") else []))
        torch.manual_seed(0)
        return model, module.get_inputs()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kernelopt.bridge")
    commands = parser.add_subparsers(dest="command", required=True)
    dump = commands.add_parser("dump", help="write the Program documents of a model")
    dump.add_argument("model")
    dump.add_argument("out")
    dump.add_argument("--mode", default="default")
    dump.add_argument("--device", default="cpu")
    options = parser.parse_args()

    model, inputs = _load(options.model, options.device)
    result = capture(model, inputs, options.mode)
    out = pathlib.Path(options.out)
    for program in result.programs:
        path = out if program["graph"] == 0 else out.with_suffix(f".{program['graph']}{out.suffix}")
        path.write_text(json.dumps(program, indent=1, allow_nan=False) + "\n")
        generated = [step for step in program["steps"] if step["kind"] == "generated"]
        refused = [f"{step['name']}: {step['refused']}" for step in generated if step["refused"]]
        print(f"graph {program['graph']}: {len(program['steps'])} steps, {len(generated)} generated, "
              f"{len(refused)} refused -> {path}")
        for line in refused:
            print(f"  {line}")
    for entry in result.refused:
        print(f"graph {entry['graph']} refused: {entry['reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
