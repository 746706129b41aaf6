"""A residual block at inference: y = relu(norm2(conv2(relu(norm1(conv1(x))))) + x).

The convolutions are 3 x 3 with zero padding of 1 and no bias. norm is batch normalisation with its stored statistics:
(u - mean) / sqrt(var + 1e-5) * weight + bias, each one number a channel. x, y: (BATCH, CHANNELS, SIZE, SIZE).
"""

import torch
import torch.nn as nn

BATCH = 2
CHANNELS = 32
SIZE = 56
SHAPES = {
    "tiny": {"CHANNELS": 4, "SIZE": 14},
    "gpu": {"BATCH": 64, "CHANNELS": 64},
}


def norm_with_random_statistics(channels):
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return norm


class Model(nn.Module):
    """Two convolutions with batch normalisation and ReLU around a residual connection."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm1 = norm_with_random_statistics(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm2 = norm_with_random_statistics(channels)
        # Inference: stored statistics are used and stay as they are.
        self.eval()

    def forward(self, x):
        hidden = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(hidden)) + x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS]
