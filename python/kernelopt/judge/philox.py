"""Random numbers of the loop IR: Philox-4x32-10 as Inductor's CPU code (ATen's engine) and Triton draw them."""

import math

import torch

_LOW = 0xFFFFFFFF
_KEY_A, _KEY_B = 0x9E3779B9, 0xBB67AE85
_MUL_A, _MUL_B = 0xD2511F53, 0xCD9E8D57
_SCALE = 4.6566127342e-10


def _mulhilo(factor, value):
    # 32 x 32 bits in signed int64: cut the value into halves so that no product passes 2^48.
    low = factor * (value & 0xFFFF)
    high = factor * (value >> 16)
    total = (high & 0xFFFF) * 65536 + low
    return (high >> 16) + (total >> 32), total & _LOW


def _words(seed, offset, wide_seed):
    """The four 32-bit outputs (as int64 tensors) for each offset."""
    seed, offset = torch.broadcast_tensors(seed.to(torch.int64), offset.to(torch.int64))
    zero = torch.zeros_like(offset)
    c0, c1, c2, c3 = offset & _LOW, zero, zero, zero
    key0 = seed & _LOW
    key1 = (seed >> 32) & _LOW if wide_seed else zero
    for _ in range(10):
        hi0, lo0 = _mulhilo(_MUL_A, c0)
        hi1, lo1 = _mulhilo(_MUL_B, c2)
        c0, c1, c2, c3 = hi1 ^ c1 ^ key0, lo1, hi0 ^ c3 ^ key1, lo0
        key0, key1 = (key0 + _KEY_A) & _LOW, (key1 + _KEY_B) & _LOW
    return c0, c1, c2, c3


def _uniform_cpu(word):
    return (word & 0x7FFFFFFF).to(torch.float32) * torch.tensor(_SCALE, dtype=torch.float32, device=word.device)


def _uniform_triton(word):
    signed = torch.where(word >= 1 << 31, word - (1 << 32), word)
    return torch.where(signed < 0, -signed - 1, signed).to(torch.float32) * _SCALE


def rand(seed, offset, device):
    """Uniform float32 in [0, 1)."""
    if device == "cpu":
        return _uniform_cpu(_words(seed & _LOW, offset, False)[0])
    return _uniform_triton(_words(seed, offset, True)[0])


def randn(seed, offset, device):
    """Normal float32 by Box-Muller."""
    if device == "cpu":
        first, second, _, _ = _words(seed & _LOW, offset, False)
        u1, u2 = 1 - _uniform_cpu(first), 1 - _uniform_cpu(second)
        return (torch.sqrt(-2.0 * torch.log(u1).double()) * torch.cos(2.0 * math.pi * u2.double())).float()
    first, second, _, _ = _words(seed, offset, True)
    u1, u2 = _uniform_triton(first).clamp(min=1.0e-7), _uniform_triton(second)
    return torch.sqrt(-2.0 * torch.log(u1)) * torch.cos(2.0 * math.pi * u2)
