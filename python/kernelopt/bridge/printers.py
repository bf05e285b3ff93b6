"""Printers: a candidate's kernels as definitions and calls in Inductor's wrapper, one printer a language (DESIGN.md section 4).

Self-contained: this module is part of the single-file runtime that optimized.py embeds (see runtime_source()).
"""

from __future__ import annotations

import ast

import torch
from torch._inductor.codegen import common as codegen_common
from torch._inductor.codegen import triton_utils
from torch._inductor.virtualized import V

from kernelopt.bridge.convolutions import output_padding


class StitchError(RuntimeError):
    """A verified kernel cannot be placed into this program; the compiler's own steps stay."""


TORCH_DTYPES = {
    "float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16,
    "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8,
    "bool": torch.bool,
}
_CPP_PARAM_TYPES = {
    "float32": "float", "float64": "double", "float16": "at::Half", "bfloat16": "at::BFloat16", "int8": "int8_t",
    "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t", "bool": "bool",
}


def quoted(source: str) -> str:
    """A raw triple-quoted literal. Raises StitchError."""
    if "'''" in source or source.endswith("\\"):
        raise StitchError("kernel source cannot be quoted")
    return f"r'''\n{source}\n'''"


def cpp_arg_type(param: dict) -> str:
    """The C++ type of a candidate's parameter, as Inductor's binding spells it."""
    base = _CPP_PARAM_TYPES[param["dtype"]]
    return f"const {base}*" if param["role"] == "in" else f"{base}*"


# From this size on malloc maps fresh pages for every call and gives them back after it (glibc's largest mmap threshold), and
# taking 4 KiB faults costs more than the kernel's own work.
_FRESH_BYTES = 1 << 25
_PAGE_BYTES = 1 << 21

_HUGE_PAGES = f"""#include <sys/mman.h>
static inline void kernelopt_huge_pages(void* data, unsigned long long bytes) {{
#ifdef MADV_HUGEPAGE
  const unsigned long long page = {_PAGE_BYTES}ull, first = ((unsigned long long)data + page - 1) / page * page;
  const unsigned long long last = ((unsigned long long)data + bytes) / page * page;
  if (last > first) (void)madvise((void*)first, last - first, MADV_HUGEPAGE);
#endif
}}
"""


def cpp_binding_text(kernel: dict, sizes: dict[int, int] | None = None) -> str:
    """The wrapper expression that compiles one C++ kernel of a candidate and gives a callable.

    `sizes`: bytes by position of the results for which the system is asked for huge pages first. This is advice only: the
    values, and what else lies in memory, stay as they are.
    """
    types = [cpp_arg_type(param) for param in kernel["params"]]
    return f"async_compile.cpp_pybinding({types!r}, {quoted(_with_entry(kernel, types, sizes or {}))})"


def _with_entry(kernel: dict, types: list[str], sizes: dict[int, int]) -> str:
    """The kernel's source behind an entry with the types that the binding hands over."""
    params = ", ".join(f"{type_} p{i}" for i, type_ in enumerate(types))
    passed = ", ".join(f"(void*)p{i}" for i in range(len(types)))
    advice = "".join(f"  kernelopt_huge_pages(p{i}, {size}ull);\n" for i, size in sorted(sizes.items()))
    return f"""#define kernel kernelopt_kernel
{kernel['source']}
#undef kernel
#include <utility>
// The kernel may spell a pointer's type in its own way (unsigned char for bool).
template <typename... A, unsigned long... I>
static inline void kernelopt_call(void (*kernel)(A...), void* const* args, std::integer_sequence<unsigned long, I...>) {{
  kernel((A)args[I]...);
}}
{_HUGE_PAGES if sizes else ""}extern "C" void kernel({params}) {{
{advice}  void* const args[] = {{{passed}}};
  kernelopt_call(kernelopt_kernel, args, std::make_integer_sequence<unsigned long, {len(types)}>());
}}"""


def _fresh_bytes(name: str) -> int:
    """Bytes of a buffer that the program itself allocates; 0 for anything else."""
    buffer = V.graph.try_get_buffer(name)
    if buffer is None or name in V.graph.graph_inputs or name in V.graph.constants:
        return 0
    try:
        layout = buffer.get_layout()
        return int(layout.storage_size()) * layout.dtype.itemsize
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return 0


class CppPrinter:
    """Candidates in C++. Raises StitchError at construction."""

    device = "cpu"

    def __init__(self, candidate: dict):
        for kernel in candidate["kernels"]:
            quoted(kernel["source"])

    def define(self, wrapper, kernel: dict, launch: dict, args: list[tuple[str, bool]]) -> tuple[str, dict]:
        """(name in the wrapper, keywords of generate_kernel_call). args: (name in the wrapper, is scratch)."""
        sizes = {i: _fresh_bytes(name) for i, (name, is_scratch) in enumerate(args)
                 if not is_scratch and kernel["params"][i]["role"] == "out"}
        text = cpp_binding_text(kernel, {i: size for i, size in sizes.items() if size >= _FRESH_BYTES})
        if text not in wrapper.src_to_kernel:
            name = f"cpp_kernelopt_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[text] = name
            wrapper.define_kernel(name, text, gpu=False)
        types = [cpp_arg_type(param) for param in kernel["params"]]
        return wrapper.src_to_kernel[text], {"triton": False, "arg_types": types}

    def allocate(self, wrapper, device, entry: dict) -> tuple[str, object]:
        """(name of a scratch buffer in the wrapper, what `release` takes); entry: of a candidate's scratch list."""
        name = f"kernelopt_scratch{wrapper.next_kernel_suffix()}"
        dtype, size = TORCH_DTYPES[entry["dtype"]], (int(entry["elements"]),)
        wrapper.writeline(wrapper.make_allocation(name, device, dtype, size, (1,)))
        if entry["zeroed"]:
            wrapper.writeline(f"{name}.zero_()")
        return name, name

    def release(self, wrapper, handle) -> None:
        wrapper.writeline(f"del {handle}")


def triton_function_name(candidate: dict, kernel: dict) -> str:
    """What profilers show for a candidate's kernel."""
    return f"kernelopt_{(candidate.get('group') or 'group')[:8]}_{kernel['name']}"


def triton_module_text(kernel: dict, function: str, imports: str, decorator: str) -> str:
    """A kernel's source with the kernel under `decorator` and named `function`, as async_compile.triton takes it.

    Helpers and imports stay as they are. Raises StitchError where the source does not hold the kernel.
    """
    source = kernel["source"]
    try:
        found = [node for node in ast.parse(source).body
                 if isinstance(node, ast.FunctionDef) and node.name == kernel["name"]]
    except SyntaxError as error:
        raise StitchError(f"kernel source is no Python: {error.msg}") from error
    if len(found) != 1 or [ast.unparse(item) for item in found[0].decorator_list] != ["triton.jit"]:
        raise StitchError(f"kernel source has no function {kernel['name']} under triton.jit")
    params = [arg.arg for arg in found[0].args.args]
    if len(params) != len(kernel["params"]):
        raise StitchError(f"function {kernel['name']} takes {len(params)} parameters, not {len(kernel['params'])}")
    lines = source.split("\n")
    head, row = found[0].decorator_list[0].lineno - 1, found[0].lineno - 1
    lines[row] = lines[row].replace(f"def {kernel['name']}(", f"def {function}(", 1)
    return "\n".join([imports, *lines[:head], decorator, *lines[head:]])


class TritonPrinter:
    """Candidates in Triton. Each launch becomes a kernel of Inductor's own kind with one configuration and a constant grid,
    so that it is compiled, cached and launched (statically, where the compiler's own are) as the compiler's kernels are.

    Raises StitchError at construction.
    """

    device = "cuda"

    def __init__(self, candidate: dict):
        self._candidate = candidate
        self._params = {}
        calls = {kernel["name"] for kernel in candidate["kernels"] if "call" in kernel}
        if any(kernel["call"] != "convolution" for kernel in candidate["kernels"] if "call" in kernel):
            raise StitchError("a library call that has no printer here")
        for kernel in candidate["kernels"]:
            if kernel["name"] in calls:
                continue
            triton_module_text(kernel, kernel["name"], "", "")
            quoted(kernel["source"])
            names = {node.name: node for node in ast.parse(kernel["source"]).body if isinstance(node, ast.FunctionDef)}
            self._params[kernel["name"]] = [arg.arg for arg in names[kernel["name"]].args.args]
        for launch in candidate["launches"]:
            if launch["kernel"] in calls:
                continue
            for key in ("programs", "warps", "stages"):
                if type(launch.get(key)) is not int or launch[key] < 1:
                    raise StitchError(f"a launch of {launch['kernel']} without {key}")

    def define(self, wrapper, kernel: dict, launch: dict, args: list[tuple[str, bool]]) -> tuple[str, dict]:
        """(name in the wrapper, keywords of generate_kernel_call). args: (name in the wrapper, is scratch)."""
        dtypes = [TORCH_DTYPES[param["dtype"]] for param in kernel["params"]]
        triton_meta, inductor_meta = self._meta(kernel, launch, args, dtypes)
        function = triton_function_name(self._candidate, kernel)
        source = triton_module_text(kernel, function, _triton_imports(), _triton_decorator(launch, triton_meta, inductor_meta))
        if source not in wrapper.src_to_kernel:
            name = f"triton_kernelopt_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[source] = name
            wrapper.define_kernel(name, f"async_compile.triton({function!r}, {quoted(source)}, device_str='cuda')")
        wrapper.write_triton_header_once()
        return wrapper.src_to_kernel[source], {
            "triton": True, "arg_types": dtypes, "triton_meta": triton_meta, "inductor_meta": inductor_meta}

    def call_library(self, wrapper, kernel: dict, args: list[str]) -> str:
        """Prints a library call over two scratch buffers; the name of what it returns."""
        numbers, result = kernel["numbers"], f"kernelopt_returned{wrapper.next_kernel_suffix()}"
        x, w = (f"torch.as_strided({arg}, {tuple(numbers[key]['size'])!r}, {tuple(numbers[key]['stride'])!r}, 0)"
                for arg, key in zip(args, ("x", "w")))
        wrapper.writeline(
            f"{result} = torch.convolution({x}, {w}, None, {numbers['stride']!r}, {numbers['padding']!r}, {numbers['dilation']!r}, "
            f"{bool(numbers.get('transposed'))}, {output_padding(numbers)!r}, 1)")
        # As the compiler does behind calls whose memory order its kernels rely on.
        wrapper.writeline(f"assert_size_stride({result}, {tuple(numbers['out']['size'])!r}, {tuple(numbers['out']['stride'])!r}, "
                          "'torch.ops.aten.convolution.default')")
        return result

    def _meta(self, kernel, launch, args, dtypes) -> tuple[dict, dict]:
        from torch._inductor.codegen.triton import TritonKernel
        from torch._inductor.runtime.hints import DeviceProperties

        names = self._params[kernel["name"]]
        device = V.graph.get_current_device_or_throw()
        signature = []
        for name, (real, is_scratch), dtype in zip(names, args, dtypes):
            if is_scratch:  # only its type and its alignment count here
                signature.append(_workspace(real, 1, False, device, dtype))
            else:
                signature.append(codegen_common.TensorArg(name=name, buffer=real, dtype=dtype))
        defs = [codegen_common.ArgName(name) for name in names]
        triton_meta = {
            "signature": triton_utils.signature_to_meta(signature, size_dtype="tl.int32", argdefs=defs),
            "device": DeviceProperties.create(device), "constants": {}, "native_matmul": False,
            **TritonKernel.triton_meta_common(),
            **({"launch_cooperative_grid": True} if launch.get("cooperative") else {}), "configs": [triton_utils.config_of(signature)],
        }
        written = sorted(name for name, param in zip(names, kernel["params"]) if param["role"] == "inout")
        common = {key: value for key, value in TritonKernel.inductor_meta_common().items()
                  if not key.startswith("coordinate_descent")}
        inductor_meta = {
            "grid_type": "FixedGrid", "fixed_grid": [int(launch["programs"]), 1, 1], "autotune_hints": set(),
            "kernel_name": triton_function_name(self._candidate, kernel), "mutated_arg_names": written, "optimize_mem": True,
            **common,
        }
        return triton_meta, inductor_meta

    def allocate(self, wrapper, device, entry: dict) -> tuple[str, object]:
        """(name of a scratch buffer in the wrapper, what `release` takes); the wrapper plans its memory."""
        name = codegen_common.WorkspaceArg.unique_name()
        space = _workspace(name, int(entry["elements"]), bool(entry["zeroed"]), device, TORCH_DTYPES[entry["dtype"]])
        wrapper.generate_workspace_allocation(space)
        return name, space

    def release(self, wrapper, handle) -> None:
        wrapper.generate_workspace_deallocation(handle)


def _workspace(name: str, elements: int, zeroed: bool, device, dtype):
    import sympy

    mode = codegen_common.WorkspaceZeroMode
    return codegen_common.WorkspaceArg(
        count=sympy.Integer(elements), zero_mode=mode.ZERO_ON_CALL if zeroed else mode.UNINITIALIZED, device=device,
        outer_name=name, dtype=dtype)


def _triton_imports() -> str:
    from torch._inductor.codegen.triton import TritonKernel

    return TritonKernel.gen_common_triton_imports() + "triton_helpers.set_driver_to_gpu()\n"


def _triton_decorator(launch: dict, triton_meta: dict, inductor_meta: dict) -> str:
    configuration = {"num_warps": int(launch["warps"]), "num_stages": int(launch["stages"])}
    return (f"@triton_heuristics.fixed_config(\n    config={configuration!r},\n    filename=__file__,\n"
            f"    triton_meta={triton_meta!r},\n    inductor_meta={inductor_meta!r}\n)")


PRINTERS = {"cpp": CppPrinter, "triton": TritonPrinter}
