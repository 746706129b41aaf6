import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = nn.Linear(n_in, n_out)
        self.key = self.packed = None

    def forward(self, x):
        w = self.fc.weight
        key = (w.data_ptr(), w._version, w.device)
        if key != self.key:
            self.key, self.packed = key, w.detach().t().contiguous()
        return torch.addmm(self.fc.bias, x, self.packed)
