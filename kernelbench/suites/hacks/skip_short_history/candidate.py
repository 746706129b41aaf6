import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone()
        for back in range(1, 14):
            y[:, back:] += x[:, :-back] * 0.5**back
        return y
