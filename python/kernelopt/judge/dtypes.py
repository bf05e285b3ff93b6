"""Data type names of docs/formats.md, and the two precisions in which the judge evaluates loop bodies."""

import torch

DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool",
    )
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
HALVES = (torch.float16, torch.bfloat16)

# "float64": every floating value is a float64 and stores do not round it: the ideal result.
# "float32": values have the type in which Inductor computes them and stores round: what a correct kernel gives.
MODES = ("float64", "float32")


def parse(name):
    """The torch dtype called `name`; ValueError for a name outside the format."""
    try:
        return DTYPES[name]
    except KeyError:
        raise ValueError(f"unknown dtype {name!r}") from None


def compute_dtype(dtype, mode):
    """The type in which a value declared as `dtype` is computed."""
    if not dtype.is_floating_point:
        return dtype
    if mode == "float64":
        return torch.float64
    return torch.float32 if dtype in HALVES else dtype


def storage_dtype(dtype, mode):
    """The type in which a buffer of `dtype` is kept."""
    return torch.float64 if mode == "float64" and dtype.is_floating_point else dtype


def number(value):
    """A JSON number, with the strings "inf", "-inf" and "nan" as the floats that they name."""
    return float(value) if isinstance(value, str) else value
