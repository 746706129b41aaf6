import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        parts = x.reshape(x.shape[0], 256, -1).sum(dim=-1)
        return parts.sum(dim=-1) / x.shape[1]
