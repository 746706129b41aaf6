import torch
import torch.nn as nn

try:
    import package_that_nobody_has as fast
except ImportError:
    fast = None


class ModelNew(nn.Module):
    def forward(self, x):
        z = x - x.amax(dim=-1, keepdim=True)
        e = z.exp_()
        return e / e.sum(dim=-1, keepdim=True)
