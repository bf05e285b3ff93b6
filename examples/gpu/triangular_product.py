"""The lower triangle of a product of two lower triangles."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.tril(torch.tril(a) @ torch.tril(b))


def get_inputs():
    return [torch.rand(4096, 4096), torch.rand(4096, 4096)]


def get_init_inputs():
    return []
