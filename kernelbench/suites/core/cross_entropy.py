"""Mean cross entropy of class scores: loss = 1/ROWS sum_r (log sum_c exp(x[r, c]) - x[r, target[r]]).

x: (ROWS, CLASSES); target: (ROWS,) of int64 in [0, CLASSES); loss: a scalar.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 1024
CLASSES = 4096
SHAPES = {"tiny": {"ROWS": 16, "CLASSES": 250}, "gpu": {"ROWS": 8192, "CLASSES": 8192}}


class Model(nn.Module):
    """Log-softmax and negative log-likelihood, averaged over rows."""

    def forward(self, x, target):
        return F.cross_entropy(x, target)


def get_inputs():
    return [torch.randn(ROWS, CLASSES), torch.randint(CLASSES, (ROWS,))]


def get_init_inputs():
    return []
