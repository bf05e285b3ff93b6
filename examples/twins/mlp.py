"""A gated perceptron from plain matrix products, SiLU written out."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(width, hidden) / width**0.5)
        self.up = nn.Parameter(torch.randn(width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(hidden, width) / hidden**0.5)

    def forward(self, x):
        g = x @ self.gate
        return (g / (1.0 + torch.exp(-g)) * (x @ self.up)) @ self.down


def get_inputs():
    return [torch.randn(200, 800)]


def get_init_inputs():
    return [800, 2000]
