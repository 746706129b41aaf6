"""Matrix product: C[m, n] = sum_k A[m, k] B[k, n].

A: (M, K); B: (K, N); C: (M, N).
"""

import torch
import torch.nn as nn

M = 768
K = 1024
N = 768
SHAPES = {"tiny": {"M": 48, "K": 40, "N": 56}, "gpu": {"M": 4096, "K": 2048, "N": 4096}}


class Model(nn.Module):
    """Product of two matrices."""

    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
