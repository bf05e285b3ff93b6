"""A post-norm block with RMS norm, attention and GELU all written out."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.wq = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.wk = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.wv = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(width, 3 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(3 * width, width) / (3 * width) ** 0.5)
        self.gain1 = nn.Parameter(torch.rand(width) + 0.5)
        self.gain2 = nn.Parameter(torch.rand(width) + 0.5)

    def rms(self, x, gain):
        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-6) * gain

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(x @ self.wq), self.split(x @ self.wk), self.split(x @ self.wv)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        e = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
        mixed = (e / e.sum(dim=-1, keepdim=True)) @ v
        x = self.rms(x + mixed.transpose(1, 2).reshape(x.shape), self.gain1)
        h = x @ self.up
        h = 0.5 * h * (1.0 + torch.erf(h * 0.7071067811865476))
        return self.rms(x + h @ self.down, self.gain2)


def get_inputs():
    return [torch.randn(3, 300, 240)]


def get_init_inputs():
    return [240, 6]
