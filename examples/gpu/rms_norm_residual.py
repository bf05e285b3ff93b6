"""Residual add and RMS norm, as a decoder layer does between its halves."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = 1e-6

    def forward(self, x, residual):
        h = x + residual
        return h * torch.rsqrt(h.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight, h


def get_inputs():
    return [torch.randn(16384, 5120), torch.randn(16384, 5120)]


def get_init_inputs():
    return [5120]
