"""Builds one Triton kernel for one architecture; needs triton and no device. Runs in the worker and in its compile helpers
(`python -m kernelopt.worker.triton_build`), which share Triton's cache, so that what a helper built the worker only loads.

A helper reads one JSON request a line on its input and answers one line: `{"path", "folder", "arch", "jobs": [job]}` ->
`{"jobs": [resources]}` or `{"error": {"kind", "message", "detail"}}`. A job is {"name", "types", "aligned", "warps", "stages"}, and
"cooperative" where the launch is.
"""

import functools
import importlib.util
import json
import os
import sys
import traceback

from kernelopt.worker.cubin import ResourcesUnknown, read_resources

_SIGNATURE = {
    "float32": "*fp32", "float64": "*fp64", "float16": "*fp16", "bfloat16": "*bf16", "int8": "*i8", "int16": "*i16",
    "int32": "*i32", "int64": "*i64", "uint8": "*u8", "bool": "*i1",
}


@functools.lru_cache(maxsize=256)
def module_of(path):
    """The module of a source that triton_source.check accepted."""
    spec = importlib.util.spec_from_file_location("kernelopt_triton_" + os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def job(kernel, launch, aligned=None):
    """The build job of a candidate's kernel; `aligned` says per parameter whether it is divisible by 16 (default: all)."""
    types = [param["dtype"] for param in kernel["params"]]
    item = {"name": kernel["name"], "types": types, "aligned": list(aligned or [True] * len(types)), "warps": int(launch["warps"]),
            "stages": int(launch["stages"])}
    return {**item, "cooperative": True} if launch.get("cooperative") else item


def build(path, arch, item, folder):
    """Triton's CompiledKernel, from the cache in `folder` where it is there. Raises what Triton raises.

    Device assertions stay, as the compiler keeps its own for indices that data decides."""
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(module_of(path), item["name"])
    if len(function.arg_names) != len(item["types"]):
        raise ValueError(f"{item['name']} takes {len(function.arg_names)} parameters, not {len(item['types'])}")
    signature = dict(zip(function.arg_names, (_SIGNATURE[name] for name in item["types"])))
    attrs = {(i,): [["tt.divisibility", 16]] for i, is_aligned in enumerate(item["aligned"]) if is_aligned}
    source = ASTSource(fn=function, signature=signature, constexprs={}, attrs=attrs)
    with knobs.cache.scope():
        knobs.cache.dir = folder
        return triton.compile(
            source, target=GPUTarget("cuda", arch, 32),
            options={"num_warps": item["warps"], "num_stages": item["stages"], "debug": "device_assert" in function.src,
                     "sanitize_overflow": False, "launch_cooperative_grid": item.get("cooperative", False)},
        )


def resources(compiled):
    """{registers, stack_bytes, shared_bytes (a program)}, which needs no device. Raises ResourcesUnknown. Triton's shared memory is all
    dynamic: the binary does not say it."""
    return {**read_resources(compiled.asm["cubin"]), "shared_bytes": compiled.metadata.shared}


def describe_error(error):
    """(one-line message, detail): Triton wraps the first cause, which says what is wrong, in errors that say where."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    lines = [line.strip() for line in str(root).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("^", "at "))]
    kind = type(root).__name__
    return f"{kind}: {said[-1] if said else kind}", "".join(traceback.format_exception(error))[-20000:]


def serve(requests, replies):
    """Answers requests until end of file."""
    for line in requests:
        request = json.loads(line)
        try:
            done = [resources(build(request["path"], request["arch"], item, request["folder"])) for item in request["jobs"]]
            reply = {"jobs": done}
        except ResourcesUnknown as error:
            reply = {"error": {"kind": "environment", "message": " ".join(str(error).split()), "detail": ""}}
        except Exception as error:
            message, detail = describe_error(error)
            reply = {"error": {"kind": "candidate", "message": message, "detail": detail}}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def main():
    from kernelopt import protocol

    protocol.prepare_process()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the replies
    serve(sys.stdin, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
