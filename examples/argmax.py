"""Most likely class of every pixel: argmax over a strided dimension."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)


def get_inputs():
    return [torch.randn(16, 128, 8192)]


def get_init_inputs():
    return []
