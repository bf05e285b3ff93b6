"""Batch norm with the batch's own statistics (training mode: running averages are updated) and ReLU."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(16, 64, 80, 80)]


def get_init_inputs():
    return [64]
