"""A 1 x 1 convolution, instance norm by hand and a leaky clamp, with a skip connection."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, x):
        h = self.conv(x)
        mean = h.mean(dim=(2, 3), keepdim=True)
        var = (h - mean).square().mean(dim=(2, 3), keepdim=True)
        h = (h - mean) * torch.rsqrt(var + 1e-5)
        return x + torch.where(h > 0, h, 0.1 * h)


def get_inputs():
    return [torch.randn(10, 48, 80, 88)]


def get_init_inputs():
    return [48]
