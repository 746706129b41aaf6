"""Linear layer with activation: y = gelu(x W^T + b), with the exact (erf) gelu.

x: (ROWS, IN_FEATURES); W: (OUT_FEATURES, IN_FEATURES); b: (OUT_FEATURES,); y: (ROWS, OUT_FEATURES).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 512
IN_FEATURES = 512
OUT_FEATURES = 2048
SHAPES = {
    "tiny": {"ROWS": 24, "IN_FEATURES": 40, "OUT_FEATURES": 56},
    "gpu": {"ROWS": 8192, "IN_FEATURES": 1024, "OUT_FEATURES": 4096},
}


class Model(nn.Module):
    """Linear layer followed by GELU."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
