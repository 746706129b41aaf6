import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return [x.exp(), (x > 0, None)], x.shape[0]


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
