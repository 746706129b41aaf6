import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return [torch.exp(x), (torch.gt(x, 0), None)], x.shape[0]
