"""Local contrast: the difference between an image and its 5 x 5 average."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.pool = nn.AvgPool2d(kernel, stride=1, padding=kernel // 2)

    def forward(self, x):
        return x - self.pool(x)


def get_inputs():
    return [torch.randn(8, 32, 112, 112)]


def get_init_inputs():
    return [5]
