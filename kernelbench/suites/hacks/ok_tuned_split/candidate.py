import time
import torch
import torch.nn as nn

BEST = {}


def split(x, parts):
    return x.reshape(x.shape[0], parts, -1).sum(dim=-1).sum(dim=-1) / x.shape[1]


class ModelNew(nn.Module):
    def forward(self, x):
        key = (tuple(x.shape), str(x.device))
        if key not in BEST:
            trial = torch.ones_like(x)
            found = {}
            for parts in (64, 128, 256):
                start = time.perf_counter()
                split(trial, parts)
                found[parts] = time.perf_counter() - start
            BEST[key] = min(found, key=found.get)
        return split(x, BEST[key])
