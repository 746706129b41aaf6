import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = None

    def forward(self, a, b):
        if self.out is None:
            self.out = a.new_empty(a.shape[0], b.shape[1])
        torch.mm(a, b, out=self.out)
        return self.out
