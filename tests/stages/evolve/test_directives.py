"""Directives: which ones make sense where, and that what pays is chosen more."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.stages.evolve import bandit
from kernelwright.stages.evolve.bandit import Pull
from kernelwright.stages.evolve.directives import DIRECTIVES, Directive, applicable, choose, pulls
from kernelwright.stages.evolve.member import Member
from kernelwright.stages.types import Backend
from tests.stages.evolve.lineage import histories, member

LINEAR = ("aten.linear.default",)
SOFTMAX = ("aten.softmax.int",)
every_directive = pytest.mark.parametrize("directive", DIRECTIVES.values(), ids=DIRECTIVES)


def names(*where: object) -> set[str]:
    return {d.name for d in applicable(*where)}  # type: ignore[arg-type]


@every_directive
def test_an_entry_can_be_chosen_and_says_what_to_do(directive: Directive) -> None:
    assert directive.name == directive.name.strip().lower()
    assert ":" not in directive.name
    assert 40 < len(directive.sentence) < 400
    assert directive.sentence.endswith(".")
    assert directive.applies("unknown", Backend.TRITON, "cuda", LINEAR)
    assert directive.bottlenecks <= {"memory", "compute", "latency", "launch", "occupancy"}


@pytest.mark.parametrize("bottleneck", ["memory", "compute", "latency", "launch", "occupancy", "unknown"])
@pytest.mark.parametrize("backend", list(Backend))
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_there_is_always_something_to_try(bottleneck: str, backend: Backend, device: str) -> None:
    assert len(applicable(bottleneck, backend, device, ())) >= 3


def test_what_a_device_or_problem_has_not_is_not_asked_for() -> None:
    assert "descriptors" not in names("memory", Backend.CPP, "cpu", LINEAR)
    assert "descriptors" in names("memory", Backend.TRITON, "cuda", LINEAR)
    assert "persistent" not in names("compute", Backend.TRITON, "cuda", SOFTMAX)
    assert "persistent" in names("compute", Backend.TRITON, "cuda", LINEAR)
    assert "fusion" not in names("compute", Backend.CPP, "cpu", LINEAR)


@given(histories(), st.text(max_size=8))
def test_the_same_history_and_seed_give_the_same_directive(history: list[Member], seed: str) -> None:
    chosen = [choose("memory", Backend.CPP, "cpu", SOFTMAX, list(history), seed) for _ in range(2)]
    assert chosen[0] == chosen[1]
    assert chosen[0].applies("memory", Backend.CPP, "cpu", SOFTMAX)


def test_slots_of_one_generation_try_different_things() -> None:
    chosen = {choose("memory", Backend.CPP, "cpu", SOFTMAX, [], f"7/0/{slot}").name for slot in range(12)}
    assert len(chosen) >= 3


def test_a_gain_is_over_the_parent_and_a_failure_gains_nothing() -> None:
    parent = member("parent", 2.0)
    history = [
        parent,
        member("faster", 4.0, directive="dtype: x", parents=[parent]),
        member("slower", 1.0, directive="fusion: x", parents=[parent]),
        member("wrong", None, directive="fusion: y", parents=[parent]),
        member("tuned", 3.0, directive="tuning: x", parents=[parent]),
        member("orphan", 3.0, directive="dtype: z"),
    ]
    assert [(p.arm, round(p.gain, 3)) for p in pulls(history)] == [("dtype", 0.693), ("fusion", 0.0), ("fusion", 0.0)]


def play(means: list[float], rounds: int, made: list[Pull], seed: int) -> list[Pull]:
    """Each arm gains its mean, give or take 0.05, as arms named 0, 1, ..."""
    draw, made = random.Random(seed), list(made)
    for _ in range(rounds):
        arm = bandit.choose([str(i) for i in range(len(means))], made, draw)
        made.append(Pull(arm, draw.gauss(means[int(arm)], 0.05)))
    return made


@settings(max_examples=15)
@given(st.permutations([0.0, 0.02, 0.05, 0.1, 0.3]), st.integers(0, 99))
def test_the_regret_is_far_below_that_of_choosing_blindly(means: list[float], seed: int) -> None:
    rounds = 150
    regret = sum(max(means) - means[int(p.arm)] for p in play(means, rounds, [], seed))
    blind = rounds * (max(means) - sum(means) / len(means))
    assert regret < blind / 2


@settings(max_examples=10)
@given(st.integers(0, 99))
def test_what_no_longer_pays_is_left(seed: int) -> None:
    early = play([0.4, 0.0, 0.0], 60, [], seed)
    late = play([0.0, 0.0, 0.4], 120, early, seed)[-60:]
    assert Counter(p.arm for p in late).most_common(1)[0][0] == "2"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 2)), max_size=30))
def test_a_belief_lies_within_what_was_seen_and_narrows_with_each_pull(seen: list[tuple[str, float]]) -> None:
    made = [Pull(arm, gain) for arm, gain in seen]
    held = bandit.beliefs("abc", made, discount=1.0)
    gains = [p.gain for p in made] or [0.0]
    assert all(min(gains) - 1e-9 <= b.mean <= max(gains) + 1e-9 for b in held.values())
    counts = Counter(p.arm for p in made)
    by_count = sorted("abc", key=lambda arm: counts[arm])
    assert held[by_count[0]].deviation >= held[by_count[2]].deviation


def test_no_arm_is_an_error() -> None:
    with pytest.raises(ValueError, match="no arm"):
        bandit.choose([], [], random.Random(0))
