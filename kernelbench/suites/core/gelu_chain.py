"""A gated activation with a residual: y = gelu(x * scale + shift) * sigmoid(gate) + x.

gelu is the tanh form, 0.5 u (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3))). x, gate, y: (ROWS, COLS); scale, shift: (COLS,).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 1024
COLS = 2048
SHAPES = {"tiny": {"ROWS": 16, "COLS": 250}, "gpu": {"ROWS": 8192, "COLS": 4096}}


class Model(nn.Module):
    """Per-column affine map, tanh-GELU, sigmoid gate and residual."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
        self.shift = nn.Parameter(torch.randn(width))

    def forward(self, x, gate):
        activated = F.gelu(torch.addcmul(self.shift, x, self.scale), approximate="tanh")
        return torch.addcmul(x, activated, torch.sigmoid(gate))


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
