from concurrent.futures import ThreadPoolExecutor
import torch
import torch.nn as nn

POOL = ThreadPoolExecutor(max_workers=2)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)

        def work(start):
            part = x[start : start + 256]
            torch.sub(torch.relu(part * 2.0 + 1.0), part, out=out[start : start + 256])

        for job in [POOL.submit(work, start) for start in range(0, x.shape[0], 256)]:
            job.result()
        return out
