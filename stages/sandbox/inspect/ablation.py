"""Whether two results of the same call differ by more than their noise: how an ablation is read."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.stages.sandbox import tree

LEAST_CHANGE = 1e-4
"""Relative change that counts, in float32 and wider: a hundred times what rounding in another order does, so that a
decoy's result added with a weight that vanishes within the tolerance is no contribution."""
EPS_COUNT = 16.0
"""For narrower dtypes, whose eps is larger than that: this many of them."""
NOISE_FACTOR = 16.0
"""Over what two equal calls differ by (atomics add in another order each time)."""


class Snapshot:
    """Everything that a call left: its output, its arguments and the module's state, copied."""

    def __init__(self, output: Any, others: list[torch.Tensor]) -> None:
        """Raises TypeError for an output that cannot be described."""
        tensors: list[torch.Tensor] = []
        self.structure = tree.flatten(output, tensors)
        self.tensors = [t.detach().clone() for t in (*tensors, *others)]


def noise_between(a: Snapshot, b: Snapshot) -> list[float]:
    """For each tensor, the largest change between two equal calls, relative as in `differ`."""
    return [_change(x, y) for x, y in zip(a.tensors, b.tensors, strict=False)]


def differ(base: Snapshot, other: Snapshot, noise: list[float]) -> bool:
    """Whether `other` is another result than `base`."""
    if not tree.same_structure(base.structure, other.structure) or len(base.tensors) != len(other.tensors):
        return True
    pairs = zip(base.tensors, other.tensors, noise, strict=False)
    return any(_change(a, b) > max(_least(a.dtype), NOISE_FACTOR * usual) for a, b, usual in pairs)


def _least(dtype: torch.dtype) -> float:
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return max(LEAST_CHANGE, EPS_COUNT * torch.finfo(dtype).eps)


def _change(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference of two elements over their magnitude plus the tensor's median magnitude; inf for other forms
    and for a nan or infinity at another place."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if torch.equal(a, b):
        return 0.0
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return float((a != b).any())
    a, b = (t if t.dtype in (torch.float64, torch.complex128) else _wide(t) for t in (a, b))
    same = (a == b) | (a.isnan() & b.isnan())
    finite = a.isfinite() & b.isfinite()
    if not bool((same | finite).all()):
        return float("inf")
    size = torch.where(finite, a.abs(), 0)
    scale = size + size.flatten().median()
    change = torch.where(same, 0, (a - b).abs()) / scale.clamp_min(torch.finfo(scale.dtype).tiny)
    return float(change.nan_to_num(0.0).max())


def _wide(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.complex64) if t.dtype.is_complex else t.to(torch.float32)
