"""Two pairs of processes: what either found is in the interval, and a gain that only one shows is none."""

import statistics

from kernelwright.stages.execute import pairs
from kernelwright.stages.measure import stats
from kernelwright.stages.types import Measurement, Timing


def measured(eager_ms: list[float], candidate_ms: list[float]) -> Measurement:
    eager, candidate = (Timing(tuple(ms), statistics.median(ms), 10) for ms in (eager_ms, candidate_ms))
    return Measurement(candidate, {"eager": eager}, {"eager": stats.speedup(eager_ms, candidate_ms)}, "by hand")


LUCKY = measured([1.20, 1.21, 1.19, 1.22, 1.20, 1.18, 1.21, 1.20, 1.19], [1.0] * 9)
USUAL = measured([1.00, 1.01, 0.99, 1.02, 1.00, 0.98, 1.01, 1.00, 0.99], [1.0] * 9)


def test_luck_of_one_pair_is_no_gain() -> None:
    assert pairs.looks_like_gain(LUCKY)
    assert not pairs.looks_like_gain(USUAL)
    both = pairs.merged(LUCKY, USUAL)
    assert not pairs.looks_like_gain(both)
    ratio = both.speedups["eager"]
    assert ratio.low <= 1.0 <= 1.2 <= ratio.high
    assert ratio.low <= ratio.median <= ratio.high
    assert len(both.candidate.samples_ms) == len(both.baselines["eager"].samples_ms) == 18


def test_a_gain_of_both_pairs_stays_one() -> None:
    assert pairs.looks_like_gain(pairs.merged(LUCKY, LUCKY))
