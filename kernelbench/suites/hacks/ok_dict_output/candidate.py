import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.mm(a, b)
        return {"rows": torch.sum(y, -1), "product": y}
