"""Causal attention: y[b, h, i] = sum_{j <= i} softmax_j(q[b, h, i] . k[b, h, j] / sqrt(HEAD)) v[b, h, j].

q, k, v, y: (BATCH, HEADS, TOKENS, HEAD).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 1
HEADS = 8
TOKENS = 512
HEAD = 64
SHAPES = {
    "tiny": {"HEADS": 2, "TOKENS": 33, "HEAD": 16},
    "gpu": {"BATCH": 4, "HEADS": 16, "TOKENS": 2048},
}


class Model(nn.Module):
    """Scaled dot-product attention with a causal mask."""

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, HEAD) for _ in range(3)]


def get_init_inputs():
    return []
