"""The embedded default: where it starts, where it looks, and that it looks everywhere in the end.

What every proposer must do (no repeats, no more than asked for) is in proposers/test_proposers.py.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.agent.proposers.base import Context, Trial
from kernelwright.agent.proposers.builtin import BuiltinProposer
from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.generate import templates_for
from kernelwright.stages.generate.template import Template
from kernelwright.stages.translate import translate
from kernelwright.stages.translate.graph import OpInfo
from kernelwright.stages.types import (
    Backend,
    Candidate,
    Environment,
    Measurement,
    Ratio,
    Scalar,
    Status,
    Timing,
    Verdict,
)

MACHINE = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)
Speed = Callable[[Candidate], float | None]
"""How much faster than eager a candidate is in a world that a test makes up; None: it is wrong."""


@cache
def known(name: str) -> tuple[Problem, OpInfo]:
    problem = from_spec(f"core/{name}", shape="tiny")
    return problem, translate(problem)


def templates(name: str, device: str) -> list[Template]:
    return templates_for(*known(name), device)


def points(template: Template) -> set[str]:
    """The hash of every different source that a template can write."""
    choices = itertools.product(*template.space.values())
    return {template.candidate(dict(zip(template.space, values, strict=True))).hash for values in choices}


def context(name: str, device: str, seed: int, slots: int, history: Sequence[Trial], generation: int) -> Context:
    return Context(*known(name), device, generation, slots, seed, history)


def judged(candidate: Candidate, speed: Speed) -> Trial:
    speedup = speed(candidate)
    if speedup is None:
        return Trial(candidate, JobResult("key", candidate.hash, Verdict(Status.INCORRECT, "no"), MACHINE))
    timing = Timing((1.0 / speedup,), 1.0 / speedup, 1)
    measurement = Measurement(timing, {}, {"eager": Ratio(speedup, speedup, speedup)}, "made up")
    return Trial(candidate, JobResult("key", candidate.hash, Verdict(Status.CORRECT), MACHINE, measurement=measurement))


def searched(
    proposer: BuiltinProposer, name: str, device: str, seed: int, slots: int, speed: Speed, generations: int
) -> list[Trial]:
    """The history after so many generations, or fewer when there is no more to try."""
    history: list[Trial] = []
    for generation in range(generations):
        proposed = proposer.propose(context(name, device, seed, slots, tuple(history), generation))
        if not proposed:
            break
        history += [judged(candidate, speed) for candidate in proposed]
    return history


def even(candidate: Candidate) -> float | None:
    """All the same."""
    return 2.0


def number(value: Scalar) -> float:
    assert not isinstance(value, str)
    return float(value)


@pytest.mark.parametrize(("name", "device"), [("softmax", "cpu"), ("softmax", "cuda"), ("matmul_bias_gelu", "cuda")])
def test_the_first_generation_begins_with_every_templates_default(name: str, device: str) -> None:
    offered = templates(name, device)
    proposed = BuiltinProposer().propose(context(name, device, seed=3, slots=6, history=(), generation=0))
    assert len(proposed) == 6
    assert proposed[: len(offered)] == [template.candidate(template.default) for template in offered]


def test_fewer_slots_than_templates_take_the_first_templates() -> None:
    first, _ = templates("matmul_bias_gelu", "cuda")
    proposed = BuiltinProposer().propose(context("matmul_bias_gelu", "cuda", 3, slots=1, history=(), generation=0))
    assert [candidate.template for candidate in proposed] == [first.name]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31), slots=st.integers(1, 7), generations=st.integers(1, 4))
def test_a_resumed_search_goes_on_as_if_it_had_never_stopped(seed: int, slots: int, generations: int) -> None:
    def speed(candidate: Candidate) -> float | None:
        return None if candidate.tunables["rows"] == 2 else 1.0 + int(candidate.hash[:4], 16) / 65536

    living = BuiltinProposer()
    history = tuple(searched(living, "softmax", "cuda", seed, slots, speed, generations))
    asked = context("softmax", "cuda", seed, slots, history, generations)
    expected = living.propose(asked)
    assert BuiltinProposer().propose(asked) == expected
    assert living.propose(asked) == expected


@pytest.mark.parametrize(("name", "device", "slots"), [("softmax", "cpu", 4), ("softmax", "cuda", 7)])
def test_every_choice_is_tried_once_and_then_there_is_no_more(name: str, device: str, slots: int) -> None:
    (template,) = templates(name, device)
    proposer = BuiltinProposer()
    history = searched(proposer, name, device, 5, slots, even, generations=100)
    hashes = [trial.candidate.hash for trial in history]
    assert len(hashes) == len(set(hashes))
    assert set(hashes) == points(template)
    assert proposer.propose(context(name, device, 5, slots, history, 99)) == []


def test_what_the_generator_cannot_write_has_no_candidate() -> None:
    assert templates("cumsum", "cpu") == []
    assert BuiltinProposer().propose(context("cumsum", "cpu", 1, 4, (), 0)) == []


@pytest.mark.parametrize("better", ["triton.fused", "triton.gemm"])
def test_most_slots_go_to_the_better_template(better: str) -> None:
    def speed(candidate: Candidate) -> float | None:
        return 3.0 if candidate.template == better else 0.7

    history = searched(BuiltinProposer(), "matmul_bias_gelu", "cuda", 1, 6, speed, generations=3)
    later = [trial.candidate.template for trial in history[6:]]
    assert len(later) == 12
    assert later.count(better) > len(later) / 2
    assert set(later) == {"triton.fused", "triton.gemm"}, "the other one is not given up"


def test_an_exhausted_template_leaves_its_slots_to_the_others() -> None:
    small, large = templates("matmul_bias_gelu", "cuda")

    def speed(candidate: Candidate) -> float | None:
        return 3.0 if candidate.template == small.name else 0.7

    generations = 2 * len(points(small)) // 6 + 2
    history = searched(BuiltinProposer(), "matmul_bias_gelu", "cuda", 1, 6, speed, generations)
    assert len(history) == 6 * generations
    assert {t.candidate.hash for t in history if t.candidate.template == small.name} == points(small)
    assert any(t.candidate.template == large.name for t in history[-6:])


def test_the_best_choice_is_found_sooner_than_by_chance() -> None:
    def speed(candidate: Candidate) -> float | None:
        rows, warps = number(candidate.tunables["rows"]), number(candidate.tunables["num_warps"])
        return 4.0 / (1.0 + abs(rows - 16.0) / 4.0 + abs(warps - 8.0) / 4.0)

    tries = []
    for seed in range(30):
        history = searched(BuiltinProposer(), "softmax", "cuda", seed, 4, speed, generations=100)
        tries.append(next(n for n, t in enumerate(history, 1) if speed(t.candidate) == 4.0))
    by_chance = (len(points(templates("softmax", "cuda")[0])) + 1) / 2
    assert sum(tries) / len(tries) < 0.8 * by_chance


def test_choices_that_failed_are_avoided() -> None:
    def speed(candidate: Candidate) -> float | None:
        if candidate.template != "triton.gemm":
            return 0.7
        return None if candidate.tunables["precision"] == "ieee" else 2.0

    gemms: list[Trial] = []
    for seed in range(12):
        history = searched(BuiltinProposer(), "matmul_bias_gelu", "cuda", seed, 6, speed, generations=4)
        gemms += [trial for trial in history[6:] if trial.candidate.template == "triton.gemm"]
    wrong = sum(speed(trial.candidate) is None for trial in gemms)
    assert wrong < 0.4 * len(gemms), "by chance half of them would fail"


def test_children_name_the_fastest_of_their_template_as_parent() -> None:
    proposer = BuiltinProposer()
    speeds = iter([1.5, None, 2.5, 2.0])
    first = proposer.propose(context("softmax", "cuda", 2, 4, (), 0))
    assert {candidate.parents for candidate in first} == {()}
    history = [judged(candidate, lambda _: next(speeds)) for candidate in first]
    second = proposer.propose(context("softmax", "cuda", 2, 4, history, 1))
    assert {candidate.parents for candidate in second} == {(first[2].hash,)}


def test_back_ends_can_be_chosen() -> None:
    asked = context("softmax", "cpu", 1, 4, (), 0)
    assert {c.backend for c in BuiltinProposer([Backend.CPP]).propose(asked)} == {Backend.CPP}
    assert BuiltinProposer([Backend.TRITON]).propose(asked) == []
