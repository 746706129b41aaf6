import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
        self.gate = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return x + self.gate * torch.tanh(self.fc(x))


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [256]
