"""Distillation loss: KL divergence of two temperature-scaled distributions."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher):
        t = self.temperature
        return F.kl_div(F.log_softmax(student / t, dim=-1), F.softmax(teacher / t, dim=-1), reduction="batchmean") * t * t


def get_inputs():
    return [torch.randn(8192, 16384), torch.randn(8192, 16384)]


def get_init_inputs():
    return [2.0]
