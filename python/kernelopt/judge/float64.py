"""The float64 run of a model: every floating value of its own types is computed as float64 (DESIGN section 6).

Casting parameters and inputs is not enough, since models also name types (`x.float()`, `torch.zeros(n)`); so the run goes
through a dispatch mode that reads every narrower floating type as float64. Random ops keep the model's type and are widened
afterwards: they must draw what eager drew.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NARROW = (torch.float32, torch.float16, torch.bfloat16)


def widen(tensor):
    """The tensor as float64 if it has a narrower floating type."""
    return tensor.to(torch.float64) if isinstance(tensor, torch.Tensor) and tensor.dtype in NARROW else tensor


class Float64Mode(TorchDispatchMode):
    """Runs every op with narrower floating tensors and `dtype` arguments read as float64.

    `narrow` is the model's own floating type, in which random numbers are drawn.
    """

    def __init__(self, narrow=torch.float32):
        super().__init__()
        self.narrow = narrow

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._random(func, args, kwargs)
        mutated = {
            number
            for number, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        }

        def wide(value):
            if isinstance(value, torch.dtype) and value in NARROW:
                return torch.float64
            return widen(value)

        names = [argument.name for argument in func._schema.arguments]
        # A tensor that is written keeps its type: a copy would lose the write.
        args = [arg if number in mutated else tree_map(wide, arg) for number, arg in enumerate(args)]
        kwargs = {
            key: value if names.index(key) in mutated else tree_map(wide, value) for key, value in kwargs.items()
        }
        return tree_map(self._result(func), func(*args, **kwargs))

    def _result(self, func):
        # Results that alias an argument must stay that alias; factories without a dtype give the default type.
        aliases = any(result.alias_info is not None for result in func._schema.returns)
        return (lambda value: value) if aliases else widen

    def _random(self, func, args, kwargs):
        def draw(value):
            if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
                return value.to(self.narrow)
            return self.narrow if value is torch.float64 else value

        written = func._schema.arguments and func._schema.arguments[0].alias_info is not None
        if written and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float64:
            drawn = func(args[0].to(self.narrow), *tree_map(draw, list(args[1:])), **tree_map(draw, kwargs))
            return args[0].copy_(drawn)
        return tree_map(widen, func(*tree_map(draw, list(args)), **tree_map(draw, kwargs)))


def widen_state(model):
    """Casts parameters, buffers and plain tensor attributes of `model` to float64 in place. Returns the model."""
    model.to(torch.float64)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                setattr(module, name, widen(value))
    return model
