import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.measure.stats import is_gain, speedup
from kernelwright.stages.types import Ratio

times = st.floats(0.001, 1000.0)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=20))
def test_the_interval_holds_the_median_and_swapping_sides_inverts_it(pairs: list[tuple[float, float]]) -> None:
    base, candidate = [a for a, _ in pairs], [b for _, b in pairs]
    forward, backward = speedup(base, candidate), speedup(candidate, base)
    assert forward.low <= forward.high
    assert forward.median * backward.median == pytest.approx(1.0)
    assert forward == speedup(base, candidate)


@given(st.lists(times, min_size=2, max_size=20))
def test_a_module_beside_itself_is_never_a_gain(samples: list[float]) -> None:
    ratio = speedup(samples, samples)
    assert (ratio.low, ratio.median, ratio.high) == (1.0, 1.0, 1.0)
    assert not is_gain(ratio)


def test_drift_that_hits_both_sides_of_a_round_cancels() -> None:
    drift = np.linspace(1.0, 3.0, 15)
    ratio = speedup(list(2.0 * drift), list(1.0 * drift))
    assert ratio.low == pytest.approx(2.0, rel=0.5)
    assert ratio.median == pytest.approx(2.0)


def test_noise_is_not_sold_as_a_gain() -> None:
    rng = np.random.default_rng(7)
    false_wins = sum(
        is_gain(speedup(list(rng.lognormal(0, 0.05, 15)), list(rng.lognormal(0, 0.05, 15)))) for _ in range(400)
    )
    assert false_wins <= 12


def test_a_gain_needs_the_lower_end_above_two_percent() -> None:
    assert not is_gain(Ratio(1.10, 1.02, 1.2))
    assert is_gain(Ratio(1.10, 1.021, 1.2))


def test_samples_must_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="3 baseline samples beside 2"):
        speedup([1.0, 1.0, 1.0], [1.0, 1.0])
