"""Softmax over long rows, written out with max, exp and sum."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        peak = x.amax(dim=-1, keepdim=True)
        e = torch.exp(x - peak)
        return e / e.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(96, 70000)]


def get_init_inputs():
    return []
