import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        parts = x.view(x.shape[0], 64, -1).sum(dim=-1).half()
        total = parts[:, 0]
        for i in range(1, 64):
            total = total + parts[:, i]
        return total.float() / x.shape[1]
