"""Outputs that say where a value lies (argmax, topk, sort): judged by the oracle's value at the place chosen.

Among equal values any place is right, and among values that the task's precision cannot tell apart too. What must agree
is the series of values found there; where the reference gives a position once, it may come once only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelwright.stages.types import Check
from kernelwright.stages.verify.upcast import Indexed

FACTOR = 8.0
"""As for values: how many times eager's own shortfall a candidate's may be."""
FLOOR_EPS = 64.0
"""Units of the dtype's epsilon, relative to the largest finite value, by which values that were computed may differ."""


@dataclass(frozen=True)
class IndexRule:
    """What one index output is measured by."""

    pointed: Indexed
    wanted: torch.Tensor
    """The oracle's values where its own indices point, float64."""
    bound: float


def index_rule(pointed: Indexed, exact: torch.Tensor, eager: torch.Tensor, dtype: torch.dtype) -> IndexRule | None:
    """The rule for an output whose oracle is `exact`; None when its indices do not fit what they seem to point to.

    Args:
        pointed: What the oracle's run showed.
        exact: The oracle's indices.
        eager: The reference's indices in its own precision; how far short of the oracle's values they fall sets the
            bound.
        dtype: The floating dtype that the task computes in.
    """
    if exact.numel() != eager.numel() or exact.numel() != torch.Size(pointed.shape).numel():
        return None
    wanted, outside = values_at(pointed, exact)
    if outside.any():
        return None
    found, outside = values_at(pointed, eager)
    own = (found - wanted).abs().nan_to_num(0.0, 0.0, 0.0)
    finite = pointed.source[pointed.source.isfinite()].abs() if pointed.source.numel() else pointed.source
    peak = float(finite.max()) if finite.numel() else 0.0
    shortfall = float(own.max()) if own.numel() else 0.0
    return IndexRule(pointed, wanted, max(FACTOR * shortfall, FLOOR_EPS * torch.finfo(dtype).eps * peak))


def values_at(pointed: Indexed, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(the source's values where `indices` point, which of them point outside), both of `pointed.shape`."""
    source, index, dim = _as_gather(pointed, indices)
    size = source.shape[dim]
    outside = (index < 0) | (index >= size)
    if size == 0:
        return torch.zeros(index.shape, dtype=source.dtype, device=source.device), outside
    return source.gather(dim, index.clamp(0, size - 1)), outside


def compare_indices(name: str, output: torch.Tensor, rule: IndexRule) -> list[Check]:
    """Checks of one index output."""
    found, outside = values_at(rule.pointed, output)
    wanted = rule.wanted
    off = (found - wanted).abs()
    near = (off <= rule.bound) | (found == wanted) | wanted.isnan()
    wrong = int((outside | ~near).sum())
    detail = f"{wrong} of {output.numel()} indices point outside, or to another value than the right one"
    checks = [Check(f"{name}: values at the indices", wrong == 0, wrong, 0, detail if wrong else "")]
    if rule.pointed.distinct:
        _, index, dim = _as_gather(rule.pointed, output)
        repeats = int((index.sort(dim).values.diff(dim=dim) == 0).sum())
        checks.append(Check(f"{name}: no index twice", repeats == 0, repeats, 0))
    return checks


def _as_gather(pointed: Indexed, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Source, indices and dimension in the form that `gather` takes."""
    source, index = pointed.source, indices.reshape(pointed.shape).long()
    if pointed.dim is None:
        return source.reshape(-1), index.reshape(-1), 0
    if pointed.flat:
        return source.flatten(pointed.dim), index.flatten(pointed.dim), source.dim() + pointed.dim
    dim = pointed.dim % max(source.dim(), 1)
    if source.dim() == 0:
        return source.reshape(1), index.reshape(-1), 0
    return source, index, dim
