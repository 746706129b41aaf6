import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.BatchNorm1d(n)

    def forward(self, x):
        n = self.norm
        var, mean = torch.var_mean(x, dim=0, unbiased=False)
        rows = x.shape[0]
        n.num_batches_tracked.add_(1)
        n.running_mean.mul_(1 - n.momentum).add_(mean, alpha=n.momentum)
        n.running_var.mul_(1 - n.momentum).add_(var, alpha=n.momentum * rows / (rows - 1))
        return (x - mean) * (n.weight * torch.rsqrt(var + n.eps)) + n.bias
