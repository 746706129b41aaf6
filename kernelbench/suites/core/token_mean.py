"""Mean over the middle dimension: y[b, c] = 1/TOKENS sum_t x[b, t, c].

x: (BATCH, TOKENS, CHANNELS); y: (BATCH, CHANNELS).
"""

import torch
import torch.nn as nn

BATCH = 16
TOKENS = 512
CHANNELS = 512
SHAPES = {
    "tiny": {"BATCH": 2, "TOKENS": 30, "CHANNELS": 50},
    "gpu": {"BATCH": 64, "TOKENS": 1024, "CHANNELS": 1024},
}


class Model(nn.Module):
    """Mean over tokens, a strided reduction."""

    def forward(self, x):
        return torch.mean(x, dim=1)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, CHANNELS)]


def get_init_inputs():
    return []
