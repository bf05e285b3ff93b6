"""Three linear layers with SiLU between them."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(widths, widths[1:])])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.silu(layer(x))
        return self.layers[-1](x)


def get_inputs():
    return [torch.randn(2048, 2048)]


def get_init_inputs():
    return [[2048, 6144, 6144, 1024]]
