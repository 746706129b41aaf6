import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(n_out, n_in))
        self.shift = nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return torch.addmm(self.shift, x, self.kernel.t())
