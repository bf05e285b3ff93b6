"""Mean absolute value of every row: one read of memory, little can be won."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().mean(dim=1)


def get_inputs():
    return [torch.randn(5000, 3000)]


def get_init_inputs():
    return []
