"""Tensors between worker and judge: raw files in the exchange folder, and the tree that names them (docs/protocol.md).

A tree is JSON. Every node is an object with `kind`:

  tensor      path, dtype, size, stride: the file holds the elements between the first and the last one, in memory order;
              with `ipc` (a handle) that memory is on a GPU, `path` is only a name, and the writer keeps it until told
  dict        items: [[key node, value node], ...], type: the class's name
  list, tuple items
  namedtuple  items, fields, type (torch.return_types included)
  value       type (int, float, bool, str, complex), value (non-finite floats as strings, complex as a pair)
  none
  opaque      type, text: something that cannot cross; it equals nothing

Nothing is pickled. Strides survive, stride 0 (expanded) and gaps included; storage offsets and aliasing between leaves do
not. `flatten` gives the structure and the leaves of a Python value, for comparing.
"""

import atexit
import itertools
import os
import tempfile

import torch

from kernelopt import cuda_ipc
from kernelopt.protocol import finite, number

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.bits"))
}


def dtype_name(dtype):
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name):
    """torch.float32 for `float32`. Raises KeyError."""
    return _DTYPES[name]


def span(size, stride):
    """Elements between the first and the last one of a layout, both included; 0 for no elements."""
    if any(extent == 0 for extent in size):
        return 0
    return 1 + sum((extent - 1) * step for extent, step in zip(size, stride))


def folder():
    """The exchange folder: KERNELOPT_EXCHANGE, else one of our own that goes away with the process."""
    global _own_folder
    named = os.environ.get("KERNELOPT_EXCHANGE")
    if named:
        os.makedirs(named, exist_ok=True)
        return named
    if _own_folder is None:
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        _own_folder = tempfile.TemporaryDirectory(prefix="kernelopt-", dir=base)
    return _own_folder.name


_own_folder = None
_counter = itertools.count()
_written = set()
_shared = {}  # path of a leaf in device memory -> cuda_ipc.Block


def write_tensor(tensor):
    """One leaf: shared device memory where the tensor is on a GPU, else a file. Raises OSError where the folder is full."""
    tensor = tensor.detach()
    if tensor.device.type == "cuda" and cuda_ipc.enabled():
        leaf = _share(tensor)
        if leaf is not None:
            return leaf
    if tensor.device.type != "cpu":
        tensor = tensor.to("cpu")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    size, stride = list(tensor.shape), list(tensor.stride())
    elements = span(size, stride)
    count = elements * tensor.element_size()
    path = os.path.join(folder(), f"{os.getpid()}-{next(_counter)}.bin")
    with open(path, "xb") as file:
        _written.add(path)
        if count:
            # Writing through a mapping of a full tmpfs would be SIGBUS; this fails politely.
            os.posix_fallocate(file.fileno(), 0, count)
    if count:
        flat = tensor.as_strided((elements,), (1,)).view(torch.uint8)
        torch.from_file(path, shared=True, size=count, dtype=torch.uint8).copy_(flat)
    return {"kind": "tensor", "path": path, "dtype": dtype_name(tensor.dtype), "size": size, "stride": stride}


def _share(tensor):
    """A leaf in device memory, kept until `remove_files` or exit; None where it cannot be shared."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    size, stride = list(tensor.shape), list(tensor.stride())
    elements = span(size, stride)
    # Memory of its own: the other process sees nothing else of ours through the handle, and later writes do not show.
    flat = cuda_ipc.allocate(elements * tensor.element_size())
    if flat is None:
        return None
    if elements:
        flat.tensor().copy_(tensor.as_strided((elements,), (1,)).view(torch.uint8))
        torch.cuda.synchronize()
    path = f"cuda-ipc:{os.getpid()}-{next(_counter)}"
    _shared[path] = flat
    return {"kind": "tensor", "path": path, "ipc": flat.handle, "dtype": dtype_name(tensor.dtype), "size": size, "stride": stride}


def read_tensor(leaf, device="cpu"):
    """The tensor of a leaf, on `device`. On the CPU a file is mapped privately: writing to it changes nothing elsewhere, and
    the file may be removed while it lives. On a GPU it is a copy of this process's own. Raises ValueError where the file does
    not fit the leaf."""
    if "ipc" in leaf:
        return _read_shared(leaf, device)
    tensor = _read_file(leaf)
    return tensor if torch.device(device).type == "cpu" else _moved(tensor, device)


def _moved(tensor, device):
    """A copy on another device in the same layout, gaps included."""
    flat = tensor.as_strided((span(tensor.shape, tensor.stride()),), (1,)) if tensor.numel() else tensor.reshape(-1)
    return flat.to(device).as_strided(tensor.shape, tensor.stride()) if tensor.numel() else tensor.to(device)


def _read_shared(leaf, device):
    dtype, size, stride = dtype_of(leaf["dtype"]), leaf["size"], leaf["stride"]
    count = span(size, stride) * dtype.itemsize
    if not count:
        return torch.empty_strided(size, stride, dtype=dtype, device=device)
    if leaf["path"] in _shared:  # a process cannot open its own handle
        raw = _shared[leaf["path"]].tensor()[:count].clone()
    else:
        raw = cuda_ipc.copy_of(leaf["ipc"], count)
    return raw.to(device).view(dtype).as_strided(size, stride)


def _read_file(leaf):
    dtype, size, stride = dtype_of(leaf["dtype"]), leaf["size"], leaf["stride"]
    if len(size) != len(stride) or any(step < 0 for step in stride):
        raise ValueError(f"leaf {leaf['path']}: sizes {size} do not fit strides {stride}")
    count = span(size, stride) * dtype.itemsize
    if os.path.getsize(leaf["path"]) != count:
        raise ValueError(f"leaf {leaf['path']}: {os.path.getsize(leaf['path'])} bytes where {count} are expected")
    if not count:
        return torch.empty_strided(size, stride, dtype=dtype)
    raw = torch.from_file(leaf["path"], shared=False, size=count, dtype=torch.uint8)
    return raw.view(dtype).as_strided(size, stride)


def remove_files(tree):
    """Removes the files of every leaf in `tree` (any JSON value) that lie in the exchange folder; returns how many."""
    home = os.path.realpath(folder())
    removed = 0
    for leaf in _tensor_leaves(tree):
        if leaf["path"].startswith("cuda-ipc:"):
            removed += _shared.pop(leaf["path"], None) is not None
            continue
        if os.path.dirname(os.path.realpath(leaf["path"])) != home:
            continue
        try:
            os.unlink(leaf["path"])
            removed += 1
        except FileNotFoundError:
            pass
        _written.discard(leaf["path"])
    return removed


def remove_own_files():
    """Removes every file that this process wrote, and the folder if it made one; runs at exit."""
    global _own_folder
    _shared.clear()
    while _written:
        try:
            os.unlink(_written.pop())
        except FileNotFoundError:
            pass
    if _own_folder is not None:
        _own_folder.cleanup()
        _own_folder = None


atexit.register(remove_own_files)


def _tensor_leaves(tree):
    if isinstance(tree, dict):
        if tree.get("kind") == "tensor" and "path" in tree:
            yield tree
        else:
            for value in tree.values():
                yield from _tensor_leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _tensor_leaves(value)


def type_name(cls):
    """`torch.return_types.topk`, `dict`, `module.Class`: how a class is named in a tree."""
    if cls.__module__ == "builtins":
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_structseq(value):
    return isinstance(value, tuple) and hasattr(type(value), "n_sequence_fields")


def _is_plain_tensor(value):
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized


def write_tree(value):
    """The tree of a Python value; its tensors are written as files."""
    if _is_plain_tensor(value):
        return write_tensor(value)
    if value is None:
        return {"kind": "none"}
    if type(value) in (bool, int, str):
        return {"kind": "value", "type": type(value).__name__, "value": value}
    if type(value) is float:
        return {"kind": "value", "type": "float", "value": finite(value)}
    if type(value) is complex:
        return {"kind": "value", "type": "complex", "value": [finite(value.real), finite(value.imag)]}
    if isinstance(value, dict):
        items = [[write_tree(key), write_tree(item)] for key, item in value.items()]
        return {"kind": "dict", "type": type_name(type(value)), "items": items}
    if isinstance(value, tuple) and (hasattr(value, "_fields") or _is_structseq(value)):
        return {
            "kind": "namedtuple",
            "type": type_name(type(value)),
            "fields": _fields(value),
            "items": [write_tree(item) for item in value],
        }
    if type(value) in (list, tuple):
        return {"kind": type(value).__name__, "items": [write_tree(item) for item in value]}
    return {"kind": "opaque", "type": type_name(type(value)), "text": repr(value)[:200]}


def _fields(value):
    if hasattr(value, "_fields"):
        return list(value._fields)
    names = [name for name in dir(type(value)) if not name.startswith(("_", "n_")) and name not in ("count", "index")]
    # A structseq does not list its fields in order; their values say which is which.
    ordered = []
    for item in value:
        ordered += [name for name in names if getattr(value, name) is item and name not in ordered][:1]
    return ordered


class NamedTuple(tuple):
    """A named tuple whose class this process does not have; `kernelopt_type` is its name."""

    def __new__(cls, name, fields, items):
        self = super().__new__(cls, items)
        self.kernelopt_type, self.kernelopt_fields = name, tuple(fields)
        return self


class Mapping(dict):
    """A dict of a class that this process does not have; `kernelopt_type` is its name."""

    kernelopt_type = "dict"


class Opaque:
    """Something that could not cross; equal to nothing."""

    def __init__(self, name, text):
        self.kernelopt_type, self.text = name, text

    __hash__ = object.__hash__

    def __eq__(self, other):
        return False


def read_tree(node, device="cpu"):
    """The Python value of a tree, its tensors on `device`. Classes other than built-in ones and torch's come back as NamedTuple, Mapping or Opaque
    with the same `flatten`."""
    kind = node["kind"]
    if kind == "tensor":
        return read_tensor(node, device)
    if kind == "none":
        return None
    if kind == "value":
        if node["type"] == "complex":
            return complex(*(number(part) for part in node["value"]))
        return {"int": int, "float": float, "bool": bool, "str": str}[node["type"]](node["value"])
    if kind == "list":
        return [read_tree(item, device) for item in node["items"]]
    if kind == "tuple":
        return tuple(read_tree(item, device) for item in node["items"])
    if kind == "dict":
        pairs = [(read_tree(key, device), read_tree(item, device)) for key, item in node["items"]]
        if node["type"] == "dict":
            return dict(pairs)
        result = Mapping(pairs)
        result.kernelopt_type = node["type"]
        return result
    if kind == "namedtuple":
        items = [read_tree(item, device) for item in node["items"]]
        module, _, name = node["type"].rpartition(".")
        if module == "torch.return_types" and hasattr(torch.return_types, name):
            return getattr(torch.return_types, name)(items)
        return NamedTuple(node["type"], node["fields"], items)
    if kind == "opaque":
        return Opaque(node["type"], node["text"])
    raise ValueError(f"a tree node of kind {kind}")


def flatten(value):
    """(structure, leaves): the structure is a JSON value that is equal exactly for equal container types, keys and key
    order; leaves is a list of (path, leaf) in order, where a leaf is a tensor, a scalar, a string, None or Opaque."""
    leaves = []
    return _flatten(value, "", leaves), leaves


def _flatten(value, path, leaves):
    def at(key):
        return f"{path}/{key}" if path else str(key)

    if isinstance(value, dict):
        name = getattr(value, "kernelopt_type", None) or type_name(type(value))
        return ["dict", name, [[repr(key), _flatten(item, at(key), leaves)] for key, item in value.items()]]
    if isinstance(value, tuple):
        name = getattr(value, "kernelopt_type", None) or type_name(type(value))
        return ["tuple", name, [_flatten(item, at(i), leaves) for i, item in enumerate(value)]]
    if isinstance(value, list):
        return ["list", type_name(type(value)), [_flatten(item, at(i), leaves) for i, item in enumerate(value)]]
    leaves.append((path, value))
    return "leaf"
