"""Row sums: y[r] = sum_c x[r, c].

x: (ROWS, COLS); y: (ROWS,).
"""

import torch
import torch.nn as nn

ROWS = 2048
COLS = 4096
SHAPES = {"tiny": {"ROWS": 16, "COLS": 250}, "gpu": {"ROWS": 8192, "COLS": 8192}}


class Model(nn.Module):
    """Sum over the last dimension."""

    def forward(self, x):
        return torch.sum(x, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
