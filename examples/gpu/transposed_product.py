"""A product of two transposed views: neither operand lies in the order in which it is multiplied."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a.T @ b.T


def get_inputs():
    return [torch.rand(4096, 2048), torch.rand(8192, 4096)]


def get_init_inputs():
    return []
