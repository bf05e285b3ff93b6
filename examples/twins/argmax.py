"""Nearest code of a small codebook: argmin of squared distances, over a strided dimension."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, codes):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(codes))

    def forward(self, x):
        distance = (x.unsqueeze(1) - self.codes.view(1, -1, 1)).square()
        return distance.argmin(dim=1)


def get_inputs():
    return [torch.randn(64, 5000)]


def get_init_inputs():
    return [48]
