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
#include <cmath>
extern "C" void bias_gelu(float* y, const float* bias, int64_t rows, int64_t columns) {
  #pragma omp parallel for
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      const float v = y[i * columns + j] + bias[j];
      y[i * columns + j] = 0.5f * v * (1.0f + std::erf(v * 0.70710678118654752f));
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
    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = nn.Linear(n_in, n_out)

    def forward(self, x):
        y = torch.mm(x, self.fc.weight.t())
        rows, columns = (ctypes.c_int64(n) for n in y.shape)
        library().bias_gelu(pointer(y), pointer(self.fc.bias), rows, columns)
        return y
