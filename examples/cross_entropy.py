"""Cross-entropy of 1024 tokens over a vocabulary of 16,384."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels)


def get_inputs():
    return [torch.randn(1024, 16384), torch.randint(0, 16384, (1024,))]


def get_init_inputs():
    return []
