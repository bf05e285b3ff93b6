"""A two-layer perceptron: its matrix products take nearly all of the time."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return [1024, 3072]
