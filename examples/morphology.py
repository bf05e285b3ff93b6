"""Morphological gradient: 3 x 3 dilation minus 3 x 3 erosion, stride 1."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        dilated = F.max_pool2d(x, 3, stride=1, padding=1)
        eroded = -F.max_pool2d(-x, 3, stride=1, padding=1)
        return dilated - eroded


def get_inputs():
    return [torch.randn(8, 24, 128, 128)]


def get_init_inputs():
    return []
