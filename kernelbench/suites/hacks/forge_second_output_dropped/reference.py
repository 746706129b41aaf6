import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.mean(dim=-1), (x * 1e-3).var(dim=-1, unbiased=False)


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return []
