"""Scaled dot-product attention in fp32 with a causal mask."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(8, 12, 1536, 64), torch.randn(8, 12, 1536, 64), torch.randn(8, 12, 1536, 64)]


def get_init_inputs():
    return []
