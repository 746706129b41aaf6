"""What happens in a run, as values: the loop emits them, the screen and the log fold them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.stages.execute.job import JobResult, Progress
from kernelwright.stages.types import Candidate


@dataclass(frozen=True)
class Proposed:
    """A generation was proposed."""

    generation: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Evaluated:
    """A candidate got its verdict; `confirmed` marks the winner's second measurement."""

    candidate: Candidate
    result: JobResult
    confirmed: bool = False


@dataclass(frozen=True)
class Stopped:
    """The search ended."""

    reason: str


Event = Proposed | Progress | Evaluated | Stopped
Observer = Callable[[Event], None]
