import torch
import torch.nn as nn
import torch.nn.functional as F


ROWS = 128
COLS = 4096
SHAPES = {"odd": {"COLS": 4099}, "tiny": {"ROWS": 8, "COLS": 320}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.sigmoid(x) * x


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
