"""What every proposer is: given the problem and what has been tried, it names candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.translate.graph import OpInfo
from kernelwright.stages.types import Candidate


@dataclass(frozen=True)
class Trial:
    """A candidate of this run with what its evaluation gave."""

    candidate: Candidate
    result: JobResult
    generation: int = 0
    """When it was proposed; -1: handed in from outside."""
    slot: int = 0
    """Its place within its generation."""


@dataclass(frozen=True)
class Context:
    """All that a proposal may depend on. The same context gives the same proposals: a killed run repeats them."""

    problem: Problem
    info: OpInfo
    device: str
    generation: int
    slots: int
    """How many candidates are wanted at most."""
    seed: int
    history: Sequence[Trial]
    """Every evaluated candidate of this run, in the order of proposal."""


class Proposer(Protocol):
    """One file each in this folder."""

    name: str

    def propose(self, context: Context) -> list[Candidate]:
        """At most `context.slots` candidates, none of which is in the history; none at all when there is no more."""
        ...
