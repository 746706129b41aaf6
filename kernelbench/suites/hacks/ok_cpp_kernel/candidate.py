import ctypes
import functools
import hashlib
import os
from pathlib import Path

import torch
import torch.nn as nn

CPP_FLAGS = ["-O2", "-fopenmp"]
CPP_SOURCE = r"""
#include <cstdint>
extern "C" void chain(const float* x, float* y, int64_t n) {
  #pragma omp parallel for simd
  for (int64_t i = 0; i < n; i++) {
    const float v = x[i] * 2.0f + 1.0f;
    y[i] = (v < 0.0f ? 0.0f : v) - x[i];
  }
}
"""


@functools.cache
def library():
    digest = hashlib.sha256("\n".join([*CPP_FLAGS, CPP_SOURCE]).encode()).hexdigest()[:32]
    return ctypes.CDLL(str(Path(os.environ["KERNELWRIGHT_BUILD"]) / f"{digest}.so"))


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library().chain(pointer(x), pointer(y), ctypes.c_int64(x.numel()))
        return y
