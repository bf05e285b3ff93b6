"""Cross-entropy with a squared log-normaliser penalty, written out with gather."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, penalty):
        super().__init__()
        self.penalty = penalty

    def forward(self, logits, labels):
        peak = logits.amax(dim=1, keepdim=True)
        lse = (logits - peak).exp().sum(dim=1).log() + peak.squeeze(1)
        picked = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
        return (lse - picked + self.penalty * lse * lse).mean()


def get_inputs():
    return [torch.randn(400, 24000), torch.randint(0, 24000, (400,))]


def get_init_inputs():
    return [1e-4]
