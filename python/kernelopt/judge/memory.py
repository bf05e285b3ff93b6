"""Flat storages of a group's buffers while its loop bodies are evaluated."""

import torch

from . import dtypes


def extent(size, stride):
    """Elements of storage that a strided tensor spans, from its first element on."""
    if any(n == 0 for n in size):
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(size, stride))


class Memory:
    """Storages by real memory. Views of other buffers (`base`) and mutation names (`mutates`) share one storage.

    `buffers` is the `buffers` object of a Program, `mode` one of dtypes.MODES. Floating storages that nothing has
    written hold NaN, others a fixed odd value, so that a missing write cannot look right by luck.
    """

    def __init__(self, buffers, mode, device="cpu"):
        self.buffers = buffers
        self.mode = mode
        self.device = torch.device(device)
        self._storages = {}
        self._extents = {}
        for name in buffers:
            root, offset = self.root(name)
            meta = buffers[name]
            end = offset + extent(meta["size"], meta["stride"])
            self._extents[root] = max(self._extents.get(root, 0), end)

    def meta(self, name):
        try:
            return self.buffers[name]
        except KeyError:
            raise ValueError(f"buffer {name!r} is not in the program") from None

    def dtype(self, name):
        return dtypes.parse(self.meta(name)["dtype"])

    def root(self, name):
        """The buffer that owns the memory of `name`, and the offset in elements of `name` in it."""
        offset = 0
        for _ in range(len(self.buffers) + 1):
            meta = self.meta(name)
            parent = meta.get("base") or meta.get("mutates")
            if not parent or parent == name:
                return name, offset
            if self.meta(parent)["dtype"] != meta["dtype"]:
                raise ValueError(f"buffer {name!r} reinterprets {parent!r} as another dtype")
            if meta.get("base"):
                offset += meta.get("offset") or 0
            name = parent
        raise ValueError(f"buffer {name!r} is its own base")

    def extent_of(self, root):
        """Elements of the storage of a buffer that owns one."""
        return self._extents[root]

    def keep_only(self, names):
        """Lets go of every storage that holds none of `names`."""
        roots = {self.root(name)[0] for name in names}
        self._storages = {root: storage for root, storage in self._storages.items() if root in roots}

    def bytes(self):
        """Bytes of all storages."""
        return sum(storage.numel() * storage.element_size() for storage in self._storages.values())

    def storage(self, name):
        """The flat storage that `name` addresses from element 0 on; made on first use."""
        root, offset = self.root(name)
        if root not in self._storages:
            dtype = dtypes.storage_dtype(self.dtype(root), self.mode)
            meta = self.meta(root)
            value = meta.get("value")
            if value is not None:
                fill = dtypes.number(value)
            elif dtype.is_floating_point:
                fill = float("nan")
            else:
                fill = True if dtype == torch.bool else 77
            self._storages[root] = torch.full((self._extents[root],), fill, dtype=dtype, device=self.device)
        storage = self._storages[root]
        return storage[offset:] if offset else storage

    def write(self, name, tensor):
        """Gives `name` the values of `tensor` (any strides, the buffer's size)."""
        view = self.tensor(name)
        if tensor.shape != view.shape:
            raise ValueError(f"tensor of size {list(tensor.shape)} where {name} has {list(view.shape)}")
        # Only the elements of the buffer itself: the gaps may belong to another one of the same memory.
        for dim, step in enumerate(view.stride()):
            if step == 0 and view.shape[dim] > 1:
                view, tensor = view.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1)
        view.copy_(tensor)

    def tensor(self, name):
        """A view of `name` with its size and stride."""
        meta = self.meta(name)
        return self.storage(name).as_strided(meta["size"], meta["stride"], self.root(name)[1])
