import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = nn.Linear(n_in, n_out)

    def forward(self, x):
        w = self.fc.weight
        step = w.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        return F.linear(x, torch.round(w / step) * step, self.fc.bias)
