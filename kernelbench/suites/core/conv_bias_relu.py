"""Convolution with activation: y = max(conv(x, W) + b, 0), a 3 x 3 kernel with zero padding of 1.

x: (BATCH, IN_CHANNELS, SIZE, SIZE); W: (OUT_CHANNELS, IN_CHANNELS, 3, 3); b: (OUT_CHANNELS,);
y: (BATCH, OUT_CHANNELS, SIZE, SIZE).
"""

import torch
import torch.nn as nn

BATCH = 4
IN_CHANNELS = 32
OUT_CHANNELS = 64
SIZE = 56
SHAPES = {
    "tiny": {"BATCH": 2, "IN_CHANNELS": 3, "OUT_CHANNELS": 5, "SIZE": 14},
    "gpu": {"BATCH": 64, "IN_CHANNELS": 64, "OUT_CHANNELS": 128},
}


class Model(nn.Module):
    """Convolution, bias and ReLU."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
