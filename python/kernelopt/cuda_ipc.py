"""Device memory shared between worker and judge through CUDA IPC (DESIGN section 2), by the driver's own calls.

A Block is an allocation of its own, apart from torch's allocator: whoever opens the handle maps this block and nothing beside
it. Readers copy and unmap at once, so that no candidate ever runs while another process's memory is mapped beside its own.
"""

import ctypes
import functools
import os

import torch


_PAGE = 2 << 20


class _Handle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_byte * 64)]


@functools.cache
def _driver():
    library = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.POINTER(ctypes.c_uint64)
    library.cuMemAlloc_v2.argtypes = [pointer, ctypes.c_size_t]
    library.cuMemFree_v2.argtypes = [ctypes.c_uint64]
    library.cuIpcGetMemHandle.argtypes = [ctypes.POINTER(_Handle), ctypes.c_uint64]
    library.cuIpcOpenMemHandle_v2.argtypes = [pointer, _Handle, ctypes.c_uint]
    library.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
    return library


def enabled():
    """Whether tensors on a GPU cross as handles: where CUDA works and KERNELOPT_CUDA_IPC is not 0."""
    return os.environ.get("KERNELOPT_CUDA_IPC", "1") != "0" and torch.cuda.is_available()


class _Bytes:
    """Device bytes at an address, for torch.as_tensor; `owner` lives as long as the tensor."""

    def __init__(self, address, count, owner):
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None
        }


class Block:
    """An allocation, of which `count` bytes are meant, and its handle (hex); freed with the object."""

    def __init__(self, address, count, handle):
        self.address, self.count, self.handle = address, count, handle

    def tensor(self):
        """The bytes as a tensor."""
        return torch.as_tensor(_Bytes(self.address, self.count, self), device="cuda")

    def __del__(self):
        try:
            _driver().cuMemFree_v2(self.address)
        except (OSError, TypeError, AttributeError):  # the interpreter is going
            pass


def allocate(count):
    """A Block, or None where the driver gives no memory or no handle."""
    address, handle = ctypes.c_uint64(), _Handle()
    # The driver maps whole pages of 2 MiB into the other process: no two blocks may share one.
    rounded = -(-max(count, 1) // _PAGE) * _PAGE
    torch.zeros(1, device="cuda")  # makes the context current in this thread
    if _driver().cuMemAlloc_v2(ctypes.byref(address), rounded) != 0:
        torch.cuda.empty_cache()
        if _driver().cuMemAlloc_v2(ctypes.byref(address), rounded) != 0:
            return None
    if _driver().cuIpcGetMemHandle(ctypes.byref(handle), address) != 0:
        _driver().cuMemFree_v2(address)
        return None
    return Block(address.value, count, bytes(handle.data).hex())


def copy_of(handle, count):
    """The first `count` bytes behind another process's handle, as a tensor of this process. Raises RuntimeError."""
    torch.zeros(1, device="cuda")
    address, opened = ctypes.c_uint64(), _Handle()
    ctypes.memmove(opened.data, bytes.fromhex(handle), 64)
    lazy_peer_access = 1
    status = _driver().cuIpcOpenMemHandle_v2(ctypes.byref(address), opened, lazy_peer_access)
    if status != 0:
        raise RuntimeError(f"the driver does not open shared device memory (error {status}); set KERNELOPT_CUDA_IPC=0")
    try:
        copy = torch.as_tensor(_Bytes(address.value, count, None), device="cuda").clone()
        torch.cuda.synchronize()
        return copy
    finally:
        _driver().cuIpcCloseMemHandle(address.value)
