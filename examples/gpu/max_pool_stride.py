"""Max pooling 3x3 with stride 2, the stem of a residual network."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(96, 64, 224, 224)]


def get_init_inputs():
    return []
