"""Softmax over the rows of a matrix of a size that no CPU test would allocate: 1 GiB in, 1 GiB out."""

import torch

ROWS, COLUMNS = 65536, 4096


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
