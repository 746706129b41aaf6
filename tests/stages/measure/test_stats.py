import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.measure.stats import binomial_cdf, is_gain, loses, speedup, upper_bound
from kernelwright.stages.types import Ratio

times = st.floats(0.001, 1000.0)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=20))
def test_the_interval_holds_the_median_and_swapping_sides_inverts_it(pairs: list[tuple[float, float]]) -> None:
    base, candidate = [a for a, _ in pairs], [b for _, b in pairs]
    forward, backward = speedup(base, candidate), speedup(candidate, base)
    assert forward.low <= forward.median <= forward.high
    assert forward.low == pytest.approx(1 / backward.high)
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


def innovations(rng: np.random.Generator, tail: str, size: tuple[int, int]) -> np.ndarray:
    if tail == "heavy":
        return rng.standard_t(2, size)
    if tail == "spikes":  # a neighbour that wakes up now and then
        return 0.2 * rng.standard_normal(size) + (rng.random(size) < 0.15) * rng.exponential(3, size)
    return rng.standard_normal(size)


def equal_contenders(tail: str, noise: float, memory: float, rounds: int, races: int) -> tuple[np.ndarray, np.ndarray]:
    """Times of a module beside itself: one series of regions with memory, dealt out in mirrored order."""
    rng = np.random.default_rng(rounds)
    series = innovations(rng, tail, (races, 2 * rounds))
    for i in range(1, 2 * rounds):
        series[:, i] += memory * series[:, i - 1]
    times = np.exp(np.clip(noise * series, -3, 3))
    mirrored = np.repeat(rng.random((races, (rounds + 1) // 2)) < 0.5, 2, axis=1)[:, :rounds] ^ (
        np.arange(rounds) % 2 == 1
    )
    first, second = times[:, 0::2], times[:, 1::2]
    return np.where(mirrored, second, first), np.where(mirrored, first, second)


@pytest.mark.parametrize("tail", ["normal", "heavy", "spikes"])
@pytest.mark.parametrize("noise", [0.03, 0.3])
@pytest.mark.parametrize("rounds", [5, 8, 15, 20])
def test_noise_is_not_sold_as_a_gain(tail: str, noise: float, rounds: int) -> None:
    base, same = equal_contenders(tail, noise, 0.5, rounds, 1500)
    false_wins = sum(is_gain(speedup(b, s)) for b, s in zip(base, same, strict=True))
    assert false_wins < 15  # 1 %


def test_one_round_says_nothing_about_noise() -> None:
    assert speedup([2.0], [1.0]) == Ratio(2.0, 0.0, math.inf)


def test_a_gain_of_a_tenth_is_found_in_little_noise() -> None:
    base, same = equal_contenders("normal", 0.02, 0.0, 15, 200)
    found = sum(is_gain(speedup(1.1 * b, s)) for b, s in zip(base, same, strict=True))
    assert found > 190


@pytest.mark.parametrize(("tail", "noise"), [("normal", 0.05), ("heavy", 0.1), ("normal", 0.3)])
def test_racing_keeps_good_candidates_and_drops_clear_losers(tail: str, noise: float) -> None:
    base, same = equal_contenders(tail, noise, 0.5, 15, 800)

    def dropped(slowness: float) -> float:
        return sum(
            any(loses(b[:k], slowness * s[:k], 1.25) for k in range(1, 16)) for b, s in zip(base, same, strict=True)
        ) / len(base)

    assert dropped(1.0) <= 0.01
    assert dropped(1.25) <= 0.05
    assert dropped(3.0) > 0.9


def test_racing_waits_for_a_few_rounds_and_loses_a_clear_loser_then() -> None:
    slow = [2.0, 2.1, 1.9, 2.0]
    assert not loses([1.0] * 3, slow[:3], 1.25)
    assert loses([1.0] * 4, slow, 1.25)
    assert not loses([1.0] * 4, slow, 2.5)


def test_a_gain_needs_the_lower_end_above_two_percent() -> None:
    assert not is_gain(Ratio(1.10, 1.02, 1.2))
    assert is_gain(Ratio(1.10, 1.021, 1.2))


def test_samples_must_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="3 baseline samples beside 2"):
        speedup([1.0, 1.0, 1.0], [1.0, 1.0])


@given(st.integers(1, 400), st.data(), st.floats(0.5, 0.999))
def test_the_upper_bound_is_the_rate_at_which_so_few_successes_are_just_as_rare(
    trials: int, data: st.DataObject, confidence: float
) -> None:
    successes = data.draw(st.integers(0, trials))
    bound = upper_bound(successes, trials, confidence)
    assert successes / trials <= bound <= 1.0
    if successes < trials:
        assert binomial_cdf(successes, trials, bound) == pytest.approx(1 - confidence, abs=1e-6)
        assert bound <= upper_bound(successes + 1, trials, confidence)


def test_the_upper_bound_of_no_success_is_the_closed_form() -> None:
    assert upper_bound(0, 500) == pytest.approx(1 - 0.05 ** (1 / 500))
    assert upper_bound(3, 3) == 1.0
    with pytest.raises(ValueError, match="4 of 3"):
        upper_bound(4, 3)
