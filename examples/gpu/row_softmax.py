"""Softmax over rows that do not fit in the registers of one program."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(2048, 131072)]


def get_init_inputs():
    return []
