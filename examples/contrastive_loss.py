"""A loss over pairs of feature vectors: cosine similarity, margin, mean."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, label):
        cosine = F.cosine_similarity(a, b, dim=1)
        loss = torch.where(label > 0, 1.0 - cosine, torch.relu(cosine - self.margin))
        return loss.mean()


def get_inputs():
    return [torch.randn(8192, 1024), torch.randn(8192, 1024), torch.randint(0, 2, (8192,))]


def get_init_inputs():
    return [0.2]
