"""Token and position embeddings, summed, normalised, and the marked positions gathered."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, vocab, length, width):
        super().__init__()
        self.token = nn.Embedding(vocab, width)
        self.position = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, marked):
        place = torch.arange(ids.shape[1], device=ids.device)
        h = self.norm(self.token(ids) + self.position(place))
        index = marked.unsqueeze(-1).expand(-1, -1, h.shape[-1])
        return h, h.gather(1, index)


def get_inputs():
    return [torch.randint(0, 20000, (16, 512)), torch.randint(0, 512, (16, 128))]


def get_init_inputs():
    return [20000, 512, 768]
