"""Causal attention over given queries, keys and values, softmax written out."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("keep", torch.ones(length, length).tril().bool())

    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = torch.where(self.keep, scores, torch.full_like(scores, -1e30))
        e = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
        return (e / e.sum(dim=-1, keepdim=True)) @ v


def get_inputs():
    return [torch.randn(3, 6, 450, 48) for _ in range(3)]


def get_init_inputs():
    return [450]
