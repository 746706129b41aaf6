from concurrent.futures import ThreadPoolExecutor
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = a.new_empty(a.shape[0], b.shape[1])
        with ThreadPoolExecutor(max_workers=4) as pool:
            list(pool.map(lambda i: torch.mm(a[i : i + 64], b, out=out[i : i + 64]), range(0, a.shape[0], 64)))
        return out
