import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        y = torch.empty_like(x)
        state = torch.zeros_like(x[:, 0])
        for i in range(x.shape[1]):
            state = 0.5 * state + x[:, i]
            y[:, i] = state
        return y


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
