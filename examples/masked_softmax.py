"""Softmax over masked, scaled attention scores; masked keys get exactly zero."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, scores, keep):
        logits = (scores * self.scale).masked_fill(~keep, float("-inf"))
        return torch.softmax(logits, dim=-1)


def get_inputs():
    keep = torch.rand(8, 1, 640, 640) > 0.3
    keep[..., 0] = True
    return [torch.randn(8, 4, 640, 640), keep]


def get_init_inputs():
    return [0.125]
