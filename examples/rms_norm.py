"""RMS norm followed by a gated activation, as in recent language models."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)

    def forward(self, x, gate):
        return self.norm(x) * torch.sigmoid(gate)


def get_inputs():
    return [torch.randn(4, 1024, 2048), torch.randn(4, 1024, 2048)]


def get_init_inputs():
    return [2048]
