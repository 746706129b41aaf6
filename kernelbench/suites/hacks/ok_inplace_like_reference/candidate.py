import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        torch.add(x * 0.5, y, out=x)
        return torch.sum(x, dim=-1)
