"""Inductor's CUDA code generator without a GPU: fake tensors and the properties of an H200. Text only, nothing can run."""

import contextlib
import types
from unittest import mock

import torch
from torch._inductor import config
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from kernelopt.bridge.session import GraphRecord, SessionCarrier, install_hooks

_LIMITS = {"multi_processor_count": 132, "major": 9, "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048,
           "max_threads_per_block": 1024, "warp_size": 32}


@contextlib.contextmanager
def h200():
    """Makes Inductor believe in one H200."""
    properties = types.SimpleNamespace(name="NVIDIA H200", minor=0, total_memory=141 << 30, L2_cache_size=50 << 20,
                                       shared_memory_per_block_optin=232448, gcnArchName="", **_LIMITS)

    def create(device):
        return DeviceProperties(type="cuda", index=0, cc=90, **_LIMITS)

    replaced = {
        "torch.cuda.get_device_properties": lambda *args: properties,
        "torch.cuda.get_device_capability": lambda *args: (9, 0),
        "torch.cuda.current_device": lambda: 0,
        "torch._inductor.runtime.hints.DeviceProperties.create": staticmethod(create),
        "torch._inductor.runtime.triton_helpers.set_driver_to_gpu": lambda: None,
        "torch._inductor.scheduler.has_triton": lambda *args: True,
        "torch.utils._triton.triton_hash_with_backend": lambda: "no device",
    }
    with contextlib.ExitStack() as stack:
        for target, value in replaced.items():
            stack.enter_context(mock.patch(target, value))
        yield


def compile_text(function, inputs, session, devices=None, **patches):
    """The GraphRecord of `function` over fake tensors like `inputs` on the GPU (or on `devices`), compiled under `session`."""
    install_hooks()
    with FakeTensorMode() as mode:
        fakes = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
                 for x, device in zip(inputs, devices or ["cuda"] * len(inputs))]
        with h200():
            module = make_fx(function, decomposition_table=select_decomp_table())(*fakes)
    record = session._current = GraphRecord(0)
    session.graphs.append(record)
    # Compiling in helper processes would need a device there.
    own = {"_post_fusion_custom_pass": SessionCarrier(session, "test"), "fx_graph_cache": False, "compile_threads": 1, **patches}
    with h200(), torch.no_grad(), config.patch(own):
        with V.set_fake_mode(mode), V.set_debug_handler(DebugContext()), V.set_extern_kernel_nodes([]):
            graph = GraphLowering(module, example_inputs=fakes, is_inference=True)
            with V.set_graph_handler(graph):
                graph.run(*fakes)
                graph.codegen()
    return record
