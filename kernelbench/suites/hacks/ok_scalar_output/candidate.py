import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        d = x - y
        return (d * d).sum(dim=-1).sum() / d.numel()
