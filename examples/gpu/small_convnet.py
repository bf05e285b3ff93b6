"""A small convolutional network at batch 1: bound by launches, not by work."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, cin = [], 3
        for cout in (16, 16, 24, 24, 32, 32, 48, 48):
            layers += [nn.Conv2d(cin, cout, 3, padding=1, stride=2 if cout != cin and cin != 3 else 1), nn.BatchNorm2d(cout), nn.SiLU()]
            cin = cout
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(cin, classes)
        self.eval()

    def forward(self, x):
        return self.head(self.body(x).mean(dim=(2, 3)))


def get_inputs():
    return [torch.randn(1, 3, 128, 128)]


def get_init_inputs():
    return [100]
