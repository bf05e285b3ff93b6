"""A gated activation over half a gigabyte: at the memory floor already, little can be won."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, gate):
        return F.gelu(x) * torch.sigmoid(gate) + 0.5 * x


def get_inputs():
    return [torch.randn(8192, 16384), torch.randn(8192, 16384)]


def get_init_inputs():
    return []
