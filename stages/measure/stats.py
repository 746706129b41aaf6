"""Statistics of interleaved timings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelwright.stages.types import Ratio

RESAMPLES = 2000
CONFIDENCE = 0.95
MEANINGFUL = 1.02
"""A gain counts only when the interval's lower end is above this."""


def speedup(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> Ratio:
    """Ratio of medians (baseline over candidate) with a percentile bootstrap interval.

    Sample i of both was taken in the same round, so rounds are resampled, not samples: drift that hits both sides of
    a round cancels. Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. The generator is seeded,
    so that the same samples always give the same interval.
    """
    base, cand = np.asarray(baseline_ms), np.asarray(candidate_ms)
    if base.shape != cand.shape or base.size == 0:
        raise ValueError(f"{base.size} baseline samples beside {cand.size} of the candidate")
    rounds = np.random.default_rng(0).integers(0, base.size, size=(RESAMPLES, base.size))
    ratios = np.median(base[rounds], axis=1) / np.median(cand[rounds], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Ratio(float(np.median(base) / np.median(cand)), float(low), float(high))


def is_gain(ratio: Ratio) -> bool:
    """Whether the speedup is real by our rule."""
    return ratio.low > MEANINGFUL
