"""Statistics of interleaved timings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from kernelwright.stages.types import Ratio

CONFIDENCE = 0.95
MEANINGFUL = 1.02
"""A gain counts only when the interval's lower end is above this."""
ONE_SIDED_ERROR = 0.005
"""Nominal chance that the interval lies wholly above the truth. A 95 % interval may err by 0.025 on each side; rounds
are not independent, and a search looks at many candidates, so this one is stricter than it has to be."""
RANKS_FROM = 8
"""Fewer rounds than this have too few sign patterns (2**n) for a rank interval of that error."""
STUDENT_T = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707)
"""Quantiles of Student's t at 1 - ONE_SIDED_ERROR for 1 to 6 degrees of freedom."""
RACING_FROM = 4
"""Rounds before which `loses` drops nothing."""

Floats = npt.NDArray[np.float64]


def speedup(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> Ratio:
    """Ratio of medians (baseline over candidate) with an interval that holds the true ratio in at least 95 %.

    Sample i of both was taken in the same round, so the interval is made of the rounds' log ratios: drift that hits
    both sides of a round cancels. From 8 rounds on it is the Hodges-Lehmann interval, the inversion of Wilcoxon's
    signed-rank test (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 2014, section 3.3): it needs the
    log ratios to be symmetric about the truth, which two contenders with the same noise are, and no shape of the noise.
    Below 8 it is Student's interval, which errs less than it says under heavy tails, widened to all rounds' ratios.

    Not the bootstrap: with 5 to 10 rounds the percentile interval of two equal contenders lay above 1.02 in 2 to 3 %
    of simulated comparisons under strong noise; this one in less than 0.6 % (tests/stages/measure/test_stats.py). One
    round says nothing about noise: its interval is [0, inf].
    """
    base, cand = _paired(baseline_ms, candidate_ms)
    median = float(np.median(base) / np.median(cand))
    low, high = _interval(np.log(base / cand))
    # The ratio of medians, which the times beside it show too, may lie outside of an interval of the rounds' ratios.
    return Ratio(median, min(low, median), max(high, median))


def is_gain(ratio: Ratio) -> bool:
    """Whether the speedup is real by our rule."""
    return ratio.low > MEANINGFUL


def loses(baseline_ms: Sequence[float], candidate_ms: Sequence[float], factor: float) -> bool:
    """Whether the candidate is surely slower than `factor` times the baseline: time to drop it.

    The interval of candidate over baseline must lie wholly above `factor`, so noise keeps a candidate and never drops
    it. Asked after every round from the fourth to the fifteenth, it drops a candidate that is exactly `factor` times
    slower in at most 5 % of races, and one that is as fast as the baseline at `factor` 1.25 in at most 1 %, under noise
    of 3 to 30 % with normal and heavy tails (simulated in the test).
    """
    if len(candidate_ms) < RACING_FROM:
        return False
    return speedup(candidate_ms, baseline_ms).low > factor


def upper_bound(successes: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The largest rate that `successes` of `trials` still allow, at one-sided `confidence`.

    Clopper and Pearson, Biometrika 26 (1934): the rate p at which so few successes have probability 1 - confidence.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} of {trials}")
    if successes == trials:
        return 1.0
    low, high = successes / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_cdf(successes, trials, middle) > 1 - confidence else (low, middle)
    return high


def binomial_cdf(most: int, trials: int, rate: float) -> float:
    """Probability of at most `most` successes in `trials`, each with probability `rate`."""
    if rate in (0.0, 1.0):
        return 1.0 if rate == 0.0 or most >= trials else 0.0

    def log_term(k: int) -> float:
        ways = math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        return ways + k * math.log(rate) + (trials - k) * math.log1p(-rate)

    return min(1.0, math.fsum(math.exp(log_term(k)) for k in range(most + 1)))


def _paired(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> tuple[Floats, Floats]:
    base, cand = np.asarray(baseline_ms, dtype=np.float64), np.asarray(candidate_ms, dtype=np.float64)
    if base.shape != cand.shape or base.size == 0:
        raise ValueError(f"{base.size} baseline samples beside {cand.size} of the candidate")
    return base, cand


def _interval(log_ratios: Floats) -> tuple[float, float]:
    """Ends of the interval of the ratio."""
    n = log_ratios.size
    if n == 1:
        return 0.0, math.inf
    ends: Callable[[Floats], tuple[float, float]] = _student if n < RANKS_FROM else _hodges_lehmann
    low, high = ends(log_ratios)
    return math.exp(low), _exp(high)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _student(log_ratios: Floats) -> tuple[float, float]:
    n = log_ratios.size
    half = STUDENT_T[n - 2] * float(np.std(log_ratios, ddof=1)) / math.sqrt(n)
    middle = float(np.mean(log_ratios))
    return min(middle - half, float(log_ratios.min())), max(middle + half, float(log_ratios.max()))


def _hodges_lehmann(log_ratios: Floats) -> tuple[float, float]:
    i, j = np.triu_indices(log_ratios.size)
    walsh = np.sort((log_ratios[i] + log_ratios[j]) / 2)
    place = _signed_rank_quantile(log_ratios.size)
    return float(walsh[place - 1]), float(walsh[-place])


@cache
def _signed_rank_quantile(n: int) -> int:
    """The largest k with P(T < k) at most ONE_SIDED_ERROR, where T is Wilcoxon's signed-rank sum of n rounds."""
    ways = np.ones(1)
    for rank in range(1, n + 1):
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))
    return int(np.searchsorted(np.cumsum(ways / 2.0**n), ONE_SIDED_ERROR, side="right"))
