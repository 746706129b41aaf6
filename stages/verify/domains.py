"""What values an argument may take, read off the values that `get_inputs` drew: probes keep to it where they must."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

CHECKED_ON_DEVICE = ("binary_cross_entropy", "multinomial", "bernoulli", "binomial", "poisson", "embedding", "nll_loss")
"""Operators that stop the device (and with it the process's CUDA context) for an argument out of its range."""
SAMPLE = 2**16
"""Elements of a draw that are looked at."""


def checked_on_device(operators: Iterable[str]) -> bool:
    """Whether one of these operators (`aten.mm.default`) stops a GPU for an argument out of its range."""
    return any(word in name for name in operators for word in CHECKED_ON_DEVICE)


class Kind(StrEnum):
    """Ranges that matter to operators."""

    ANY = "any"
    """Signed numbers."""
    POSITIVE = "positive"
    UNIT = "unit"
    """Between 0 and 1."""
    PROBABILITY = "probability"
    """Rows that add up to 1."""
    WHOLE = "whole"
    """Integers or booleans, also when stored as floating numbers; a mask of zeros and minus infinity."""
    FIXED = "fixed"
    """The same values in every draw, all of them one number: a mask of zeros, a scale of ones."""


@dataclass(frozen=True)
class Domain:
    """One argument's range."""

    kind: Kind
    spread: float
    """Standard deviation of the values, or the magnitude where they do not vary."""
    peak: float
    """Largest magnitude that is finite."""

    @property
    def free(self) -> bool:
        """Whether any finite number will do."""
        return self.kind in (Kind.ANY, Kind.FIXED)


def domain(draws: Sequence[torch.Tensor]) -> Domain:
    """The range of an argument, from several draws of it."""
    if not draws[0].is_floating_point() or draws[0].numel() == 0:
        return Domain(Kind.WHOLE, 0.0, 0.0)
    values = torch.cat([d.reshape(-1)[:SAMPLE].double() for d in draws])
    finite = values.isfinite()
    kept = values[finite] if not bool(finite.all()) else values
    if kept.numel() == 0:
        return Domain(Kind.WHOLE, 0.0, 0.0)
    low, high, spread, whole = torch.stack(
        [kept.min(), kept.max(), kept.std(correction=0), (kept == kept.round()).all().double()]
    ).tolist()
    sums = draws[0].double().sum(-1)[..., None] if draws[0].dim() and draws[0].shape[-1] > 1 else None
    if kept.numel() < values.numel():
        kind = Kind.WHOLE
    elif low == high:
        kind = Kind.FIXED
    elif whole:
        kind = Kind.WHOLE
    elif low >= 0 and sums is not None and bool((sums - 1).abs().max() < 1e-2):
        kind = Kind.PROBABILITY
    elif low >= 0 and high <= 1:
        kind = Kind.UNIT
    elif low >= 0:
        kind = Kind.POSITIVE
    else:
        kind = Kind.ANY
    peak = max(abs(low), abs(high))
    return Domain(kind, spread or peak or 1.0, peak or 1.0)
