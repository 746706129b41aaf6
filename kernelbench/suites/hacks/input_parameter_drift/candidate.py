import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = nn.Linear(n_in, n_out)

    def forward(self, x):
        y = self.fc(x)
        self.fc.weight.data.mul_(1.0001)
        return y
