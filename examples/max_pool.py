"""Max pooling with overlapping 4 x 4 windows, stride 1."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel, padding):
        super().__init__()
        self.pool = nn.MaxPool2d(kernel, stride=1, padding=padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(8, 32, 128, 128)]


def get_init_inputs():
    return [4, 1]
