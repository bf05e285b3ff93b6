"""Transposed 3d convolution, soft clamp and scale."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.ConvTranspose3d(cin, cout, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return torch.tanh(self.conv(x)) * 2.0


def get_inputs():
    return [torch.randn(8, 32, 16, 48, 48)]


def get_init_inputs():
    return [32, 48]
