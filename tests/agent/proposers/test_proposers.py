"""What every proposer is held to: new candidates, no more than asked for, and the same ones for the same context."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelwright.agent.proposers.base import Context, Proposer, Trial
from kernelwright.agent.proposers.builtin import BuiltinProposer
from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.translate import translate
from kernelwright.stages.types import Candidate, Environment, Measurement, Ratio, Status, Timing, Verdict

PROPOSERS: dict[str, Callable[[], Proposer]] = {"builtin": BuiltinProposer}
"""Add yours: a function that makes one."""

every_proposer = pytest.mark.parametrize("make", PROPOSERS.values(), ids=PROPOSERS)

HERE = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11", 2)


def judged(candidate: Candidate, number: int) -> Trial:
    """Every third candidate is wrong, the others are faster the later they come."""
    verdict, measurement = Verdict(Status.INCORRECT, "largest error"), None
    if number % 3:
        speedup = 1.0 + number / 10
        timing = Timing((1.0 / speedup,), 1.0 / speedup, 1)
        verdict = Verdict(Status.CORRECT)
        measurement = Measurement(timing, {}, {"eager": Ratio(speedup, speedup, speedup)}, "")
    return Trial(candidate, JobResult(str(number), candidate.hash, verdict, HERE, measurement=measurement))


def generations(proposer: Proposer, slots: int) -> list[list[Candidate]]:
    """Ask until there is no more, each time with the results of what came before."""
    problem = from_spec("core/softmax")
    context = Context(problem, translate(problem), "cpu", generation=0, slots=slots, seed=7, history=[])
    found: list[list[Candidate]] = []
    while proposed := proposer.propose(context):
        found.append(proposed)
        history = [*context.history, *(judged(c, len(context.history) + i) for i, c in enumerate(proposed))]
        context = replace(context, generation=context.generation + 1, history=history)
    return found


@every_proposer
def test_no_candidate_comes_twice_and_no_generation_is_too_large(make: Callable[[], Proposer]) -> None:
    found = generations(make(), slots=3)
    assert all(len(generation) <= 3 for generation in found)
    hashes = [candidate.hash for generation in found for candidate in generation]
    assert hashes
    assert len(hashes) == len(set(hashes))


@every_proposer
def test_the_same_context_gives_the_same_candidates(make: Callable[[], Proposer]) -> None:
    """A killed run asks again: what it is given must be what it was given."""
    assert generations(make(), slots=4) == generations(make(), slots=4)


@every_proposer
def test_a_new_process_goes_on_as_the_old_one_would_have(make: Callable[[], Proposer]) -> None:
    undisturbed = generations(make(), slots=4)
    problem = from_spec("core/softmax")
    history = [judged(c, i) for i, c in enumerate(c for g in undisturbed[:2] for c in g)]
    context = Context(problem, translate(problem), "cpu", generation=2, slots=4, seed=7, history=history)
    assert make().propose(context) == undisturbed[2]


@every_proposer
def test_a_candidate_names_its_proposer_and_what_it_set_out_to_do(make: Callable[[], Proposer]) -> None:
    proposer = make()
    for candidate in generations(proposer, slots=4)[0]:
        assert candidate.proposer == proposer.name
        assert candidate.directive
        assert "class ModelNew" in candidate.source
