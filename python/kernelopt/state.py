"""Tensors in nests, copies that keep their layout, and the state of a model: what worker and judge need to run a model
twice from the same start (DESIGN sections 3 and 8)."""

import copy

import torch


def map_tensors(function, value):
    """The same nest of dicts, lists and tuples with `function` applied to each tensor."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        result = copy.copy(value)
        for key, item in value.items():
            result[key] = map_tensors(function, item)
        return result
    if isinstance(value, tuple):
        items = [map_tensors(function, item) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return tuple(items) if type(value) is tuple else type(value)(items)
    if isinstance(value, list):
        return [map_tensors(function, item) for item in value]
    return value


def memory_share(device, part, host):
    """Bytes that are `part` of a GPU's memory; `host` for the CPU."""
    if torch.device(device).type != "cuda":
        return host
    return int(torch.cuda.get_device_properties(torch.device(device)).total_memory * part)


def tensors_of(value):
    """Every tensor in a nest of dicts, lists and tuples, in order."""
    found = []
    map_tensors(lambda tensor: found.append(tensor) or tensor, value)
    return found


def copy_inputs(value, device=None, dtype=None):
    """A deep copy of inputs, moved to `device` and with floating tensors cast to `dtype` (each None: as it is).

    Sizes, strides and storage offsets stay, whatever the layout (expanded, channels_last, gaps), and tensors that share
    memory share it in the copy as well: whole storages are copied, once each. Other leaves are deep-copied."""
    storages = {}

    def copied(tensor):
        if tensor.layout != torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            clone = tensor.detach().clone()
            wanted = dtype if dtype is not None and clone.is_floating_point() else clone.dtype
            return clone.to(device=device or clone.device, dtype=wanted).requires_grad_(tensor.requires_grad)
        flat = _whole_storage(tensor)
        wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        target = torch.device(device) if device is not None else tensor.device
        key = (tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes(), tensor.device)
        # Views of other dtypes of one storage can share a copy only while nothing is cast.
        key += (None,) if wanted == tensor.dtype else (tensor.dtype,)
        if key not in storages:
            storages[key] = torch.empty_like(flat, device=target, dtype=wanted).copy_(flat)
        whole = storages[key]
        result = torch.empty(0, dtype=wanted, device=target)
        result.set_(whole.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
        return result.requires_grad_(tensor.requires_grad) if tensor.requires_grad else result

    def other(item):
        return item if isinstance(item, torch.Tensor) else copy.deepcopy(item)

    return map_tensors(copied, _map_others(other, value))


def _map_others(function, value):
    if isinstance(value, dict):
        result = copy.copy(value)
        for key, item in value.items():
            result[key] = _map_others(function, item)
        return result
    if type(value) in (list, tuple):
        return type(value)(_map_others(function, item) for item in value)
    if isinstance(value, tuple):
        return value
    return function(value)


def _whole_storage(tensor):
    storage = tensor.untyped_storage()
    with torch.no_grad():
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            storage, 0, (storage.nbytes() // tensor.element_size(),), (1,)
        )


def restore_inputs(value, pristine):
    """Copies the values of `pristine` (a `copy_inputs` of `value`'s original) back into `value`'s memory."""
    done = set()
    for tensor, original in zip(tensors_of(value), tensors_of(pristine)):
        key = tensor.untyped_storage().data_ptr()
        if key in done:
            continue
        done.add(key)
        with torch.no_grad():
            if tensor.layout == torch.strided and tensor.dtype == original.dtype:
                _whole_storage(tensor).copy_(_whole_storage(original))
            else:
                tensor.copy_(original)


def same_bits(a, b):
    """Whether two tensors are equal, NaN to NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    if not (a.is_floating_point() or a.is_complex()):
        return False
    return bool(torch.all((a == b) | (torch.isnan(a) & torch.isnan(b))))


class ModelState:
    """Puts a model back to the state it had when this was made: buffers by value and in place, plain Python attributes
    (numbers, strings, containers of those) by copy, and attributes that came since go; parameters only where `parameters` is
    true, for models that write them in `forward`."""

    _SKIPPED = ("_parameters", "_buffers", "_modules", "training", "forward", "_compiled_call_impl")

    def __init__(self, model, parameters=False):
        self._model, self._parameters = model, parameters
        self._tensors = [
            (store, name, tensor, None if tensor is None else tensor.detach().clone())
            for module in model.modules()
            for store, name, tensor in _stores(module, parameters)
        ]
        self._plain = [
            (module, name, copy.deepcopy(value))
            for module in model.modules()
            for name, value in vars(module).items()
            if name not in self._SKIPPED and not name.endswith("_hooks") and _is_plain(value)
        ]
        self._names = [(module, set(vars(module))) for module in model.modules()]

    def _new_attributes(self):
        return [
            (module, name)
            for module, known in self._names
            for name in vars(module)
            if name not in known and name not in self._SKIPPED
        ]

    def changed(self):
        """Whether anything differs from that state."""
        for store, name, tensor, value in self._tensors:
            now = store.get(name)
            if now is not tensor or (now is not None and not same_bits(now, value)):
                return True
        if self._new_attributes():
            return True
        return any(name not in vars(module) or vars(module)[name] != value for module, name, value in self._plain)

    def restore(self):
        """Back to that state; tensors keep their addresses."""
        with torch.no_grad():
            for store, name, tensor, value in self._tensors:
                if tensor is not None:
                    tensor.copy_(value)
                store[name] = tensor
        for module, name in self._new_attributes():
            delattr(module, name)
        for module, name, value in self._plain:
            if name not in vars(module) or vars(module)[name] != value:
                setattr(module, name, copy.deepcopy(value))

    def take_from(self, pristine):
        """Puts the model into the state of `pristine`, a copy of it that never ran, and remembers that state."""
        others = [item for module in pristine.modules() for item in _stores(module, self._parameters)]
        with torch.no_grad():
            for (store, name, tensor, value), (_, _, wanted) in zip(self._tensors, others, strict=True):
                if tensor is not None:
                    value.copy_(wanted)
        twins = dict(zip(self._model.modules(), pristine.modules(), strict=True))
        self._plain = [(module, name, copy.deepcopy(vars(twins[module])[name])) for module, name, _ in self._plain
                       if name in vars(twins[module])]
        self._names = [(module, set(vars(twins[module]))) for module, _ in self._names]
        self.restore()


def _stores(module, parameters):
    """(dict, name, tensor) of a module's own buffers, and parameters if asked for."""
    stores = (module._buffers, module._parameters) if parameters else (module._buffers,)
    return [(store, name, tensor) for store in stores for name, tensor in store.items()]


def _is_plain(value):
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes))
