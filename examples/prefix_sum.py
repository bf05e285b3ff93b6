"""Running mean of every row: a prefix sum divided by the position."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        return torch.cumsum(x, dim=1) / count


def get_inputs():
    return [torch.randn(1024, 8192)]


def get_init_inputs():
    return []
