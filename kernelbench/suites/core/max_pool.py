"""Max pooling: y[b, c, i, j] = max over the 3 x 3 window around (2i, 2j) of x[b, c], with stride 2 and padding 1.

x: (BATCH, CHANNELS, SIZE, SIZE), SIZE even; y: (BATCH, CHANNELS, SIZE/2, SIZE/2). What lies outside x never wins.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
CHANNELS = 32
SIZE = 112
SHAPES = {
    "tiny": {"BATCH": 2, "CHANNELS": 5, "SIZE": 20},
    "gpu": {"BATCH": 64, "CHANNELS": 64},
}


class Model(nn.Module):
    """Maximum over overlapping windows."""

    def forward(self, x):
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    # All below zero, so that padding with zeros instead of -inf is wrong.
    return [-torch.rand(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []
