"""Self-attention with a learned relative bias: products around a biased softmax."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(heads, length, length) * 0.1)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5 + self.bias
        return self.out((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(n, t, c))


def get_inputs():
    return [torch.randn(4, 384, 256)]


def get_init_inputs():
    return [256, 8, 384]
