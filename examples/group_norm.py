"""Group norm and SiLU over a batch of feature maps."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(8, 64, 128, 128)]


def get_init_inputs():
    return [8, 64]
