"""Product with a diagonal matrix: C = diag(d) B, that is C[r, c] = d[r] B[r, c].

d: (ROWS,); B, C: (ROWS, COLS). Written as the scaling of rows that it is: a reference that forms diag(d) does ROWS
times the work, and beating it would prove nothing.
"""

import torch
import torch.nn as nn

ROWS = 2048
COLS = 2048
SHAPES = {"tiny": {"ROWS": 16, "COLS": 250}, "gpu": {"ROWS": 8192, "COLS": 4096}}


class Model(nn.Module):
    """Scaling of each row by its own factor."""

    def forward(self, d, b):
        return d.unsqueeze(1) * b


def get_inputs():
    return [torch.randn(ROWS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
