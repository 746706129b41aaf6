import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"B": b}, num_warps=w) for b, w in ((512, 4), (1024, 4), (2048, 8))], key=["n"])
@triton.jit
def chain(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.maximum(v * 2.0 + 1.0, 0.0) - v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        chain[lambda meta: (triton.cdiv(n, meta["B"]),)](x, y, n)
        return y
