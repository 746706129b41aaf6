"""A task that any kernel of one pass gains on: twenty passes over memory, by PyTorch one after the other."""

PASSES = 20

PROBLEM = f"""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        for i in range({PASSES}):
            x = torch.clamp(x * 1.25 - 0.125, -1.0 - i, 1.0 + i)
        return x


def get_inputs():
    return [torch.randn(512, 2048)]


def get_init_inputs():
    return []
"""

KERNEL = f'''import ctypes
import functools
import hashlib
import os
from pathlib import Path

import torch
import torch.nn as nn

CPP_FLAGS = ["-O3", "-march=native", "-fopenmp", "-ffp-contract=off"]
CPP_SOURCE = r"""
#include <cstdint>
extern "C" void chain(const float* x, float* y, int64_t n) {{
  #pragma omp parallel for simd
  for (int64_t i = 0; i < n; i++) {{
    float v = x[i];
    for (int k = 0; k < {PASSES}; k++) {{
      v = v * 1.25f - 0.125f;
      v = v < -1.0f - k ? -1.0f - k : v > 1.0f + k ? 1.0f + k : v;
    }}
    y[i] = v;
  }}
}}
"""


@functools.cache
def library():
    digest = hashlib.sha256("\\n".join([*CPP_FLAGS, CPP_SOURCE]).encode()).hexdigest()[:32]
    return ctypes.CDLL(str(Path(os.environ["KERNELWRIGHT_BUILD"]) / f"{{digest}}.so"))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library().chain(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(x.numel()))
        return y
'''
WRONG = KERNEL.replace("- 0.125f", "- 0.25f")
MENDING = """The subtrahend was wrong.
<<<<<<< SEARCH
      v = v * 1.25f - 0.25f;
=======
      v = v * 1.25f - 0.125f;
>>>>>>> REPLACE
"""
MISPLACED = """<<<<<<< SEARCH
      total += weights[i] * values[i];
=======
      total -= weights[i];
>>>>>>> REPLACE
"""


def fenced(source: str) -> str:
    return f"One pass over memory instead of twenty.\n\n```python\n{source}```\n"
