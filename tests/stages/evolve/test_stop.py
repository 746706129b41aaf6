"""The rules that end a search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.evolve.member import Member
from kernelwright.stages.evolve.stop import near_speed_of_light, no_gain, reason_to_stop, target_reached
from tests.stages.evolve.lineage import histories, member


def fastest_of(*speedups: float | None) -> list[Member]:
    return [member(str(g), s, generation=g) for g, s in enumerate(speedups)]


def test_a_target_is_reached_by_what_was_timed_to_the_end() -> None:
    history = [*fastest_of(1.2, None, 1.9), member("rough", 9.0, screened_out=True)]
    assert target_reached(history, 2.0) == ""
    assert target_reached(history, None) == ""
    assert target_reached([*history, member("fast", 2.5)], 2.0) == "the target of 2x is reached: 2.50x"


def test_the_speed_of_light_counts_for_the_fastest_only() -> None:
    history = [member("quick", 3.0, light=0.8), member("slow", 2.0, light=0.99)]
    assert near_speed_of_light(history) == ""
    assert "96%" in near_speed_of_light([*history, member("quicker", 3.5, light=0.96)])
    assert near_speed_of_light([*history, member("unknown", 5.0)]) == ""


@pytest.mark.parametrize(
    ("speedups", "stops"),
    [
        ((1.5, 1.5, 1.5), True),
        ((1.5, 1.4, 1.52), True),
        ((1.5, 1.4, 1.6), False),
        ((1.5, 1.6), False),
        ((None, None, None), True),
        ((None, None, 1.01), False),
        ((1.0, 2.0, None, None), True),
    ],
)
def test_generations_without_a_gain_end_it(speedups: tuple[float | None, ...], stops: bool) -> None:
    assert (no_gain(fastest_of(*speedups), 2) != "") is stops


@given(histories(), st.integers(1, 5))
def test_more_patience_never_stops_earlier(history: list[Member], patience: int) -> None:
    if no_gain(history, patience + 1):
        assert no_gain(history, patience)


def test_the_first_good_news_is_the_reason() -> None:
    history = fastest_of(3.0, None, None)
    assert reason_to_stop(history, target=2.0, patience=2).startswith("the target")
    assert reason_to_stop(history, target=4.0, patience=2) == "2 generations brought nothing faster"
    assert reason_to_stop(history, target=4.0, patience=3) == ""
