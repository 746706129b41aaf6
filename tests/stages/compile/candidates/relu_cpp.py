"""A complete C++ candidate: ReLU in one pass over the data pointers."""

import ctypes
import functools
import hashlib
import os
from pathlib import Path

import torch

CPP_FLAGS = ["-O3", "-march=native", "-fopenmp", "-Wall"]
CPP_SOURCE = r"""
#include <cstdint>
extern "C" void relu(const float* x, float* y, int64_t n) {
    #pragma omp parallel for simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}
"""


@functools.cache
def _library():
    """The library that Kernelwright built for this source and these flags."""
    digest = hashlib.sha256("\n".join([*CPP_FLAGS, CPP_SOURCE]).encode()).hexdigest()[:32]
    return ctypes.CDLL(str(Path(os.environ["KERNELWRIGHT_BUILD"]) / f"{digest}.so"))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        _library().relu(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(x.numel()))
        return y
