import os
import warnings
import torch
import torch.nn as nn

THREADS = int(os.environ.get("OMP_NUM_THREADS", "0") or 0)
DEBUG = os.getenv("MODEL_NEW_DEBUG")
print("fused pointwise chain, threads:", THREADS or "default")
warnings.warn("this kernel is made for float32", stacklevel=1)


class ModelNew(nn.Module):
    def forward(self, x):
        y = x * 2.0
        y += 1.0
        y.clamp_(min=0.0)
        return y.sub_(x)
