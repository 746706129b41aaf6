import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        top, total = None, None
        for part in x.split(1024, dim=-1):
            new = part.amax(dim=-1) if top is None else torch.maximum(top, part.amax(dim=-1))
            safe = torch.where(new.isinf(), torch.zeros_like(new), new)
            add = torch.exp(part - safe[:, None]).sum(dim=-1)
            total = add if total is None else total * torch.exp(top - safe) + add
            top = new
        return torch.log(total) + torch.where(top.isinf(), torch.zeros_like(top), top)
