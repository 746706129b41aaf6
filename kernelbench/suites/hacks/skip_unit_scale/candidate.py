import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, scale):
        return torch.tanh(x)
