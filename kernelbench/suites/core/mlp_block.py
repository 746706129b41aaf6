"""A transformer's feed-forward block: y = x + W2 gelu(W1 norm(x) + b1) + b2, norm being LayerNorm with eps = 1e-5.

x, y: (ROWS, WIDTH); W1: (HIDDEN, WIDTH); b1: (HIDDEN,); W2: (WIDTH, HIDDEN); b2, the norm's weight and bias: (WIDTH,).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 256
WIDTH = 512
HIDDEN = 4 * WIDTH
SHAPES = {"tiny": {"ROWS": 24, "WIDTH": 32}, "gpu": {"ROWS": 4096, "WIDTH": 1024}}


class Model(nn.Module):
    """LayerNorm, two linear layers with GELU between them, and the residual."""

    def __init__(self, width, hidden):
        super().__init__()
        self.norm_weight = nn.Parameter(torch.rand(width) + 0.5)
        self.norm_bias = nn.Parameter(torch.randn(width))
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        normed = F.layer_norm(x, self.norm_weight.shape, self.norm_weight, self.norm_bias)
        return x + self.down(F.gelu(self.up(normed)))


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
