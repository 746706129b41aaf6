"""LayerNorm: y[r, c] = (x[r, c] - mean_r) / sqrt(var_r + eps) * weight[c] + bias[c], with eps = 1e-5.

mean_r and var_r are the mean and the biased variance of row r. x, y: (ROWS, COLS); weight, bias: (COLS,).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 2048
COLS = 2048
SHAPES = {"tiny": {"ROWS": 16, "COLS": 250}, "gpu": {"ROWS": 8192, "COLS": 4096}}


class Model(nn.Module):
    """Normalisation of each row to mean 0 and variance 1, then a learned scale and shift."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, eps=1e-5)


def get_inputs():
    # A mean away from 0, so that a variance computed without subtracting it is wrong.
    return [torch.randn(ROWS, COLS) + 0.5]


def get_init_inputs():
    return [COLS]
