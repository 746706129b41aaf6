import torch
import torch.nn as nn
import torch.nn.functional as F
import triton


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.run = torch.compile(F.gelu)

    def forward(self, x):
        return self.run(x)
