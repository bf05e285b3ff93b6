"""Layer norm by mean and variance arithmetic, with a residual."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(width) + 0.5)
        self.shift = nn.Parameter(torch.rand(width) - 0.5)

    def forward(self, x, residual):
        h = x + residual
        mean = h.mean(dim=-1, keepdim=True)
        centred = h - mean
        var = (centred * centred).mean(dim=-1, keepdim=True)
        return centred * torch.rsqrt(var + 1e-5) * self.gain + self.shift


def get_inputs():
    return [torch.randn(12, 1000, 768), torch.randn(12, 1000, 768)]


def get_init_inputs():
    return [768]
