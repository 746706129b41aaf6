"""A judged candidate as the search sees it: where it was proposed, and how fast it turned out to be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.types import Candidate, Status

UNKNOWN = "unknown"
"""The bottleneck of what was not profiled."""


@dataclass(frozen=True)
class Member:
    """A candidate of the run with its result. The rest of this package is built from lists of these alone."""

    candidate: Candidate
    result: JobResult
    generation: int
    slot: int
    """Its place within its generation."""
    bottleneck: str = UNKNOWN
    """What its profile says that limits it: `memory`, `compute`, `latency`, `launch`, `occupancy` or `unknown`."""

    @property
    def hash(self) -> str:
        """The candidate's hash."""
        return self.candidate.hash

    @property
    def speedup(self) -> float | None:
        """Over eager; None unless it is correct and was timed. Rough where timing ended early."""
        measurement = self.result.measurement
        if self.result.verdict.status is not Status.CORRECT or measurement is None:
            return None
        eager = measurement.speedups.get("eager")
        return eager.median if eager is not None and eager.median > 0 else None

    @property
    def fitness(self) -> float | None:
        """`speedup` where it was timed to the end: what selection goes by. None has no place in the population."""
        measurement = self.result.measurement
        return None if measurement is None or measurement.screened_out else self.speedup

    @property
    def speed_of_light(self) -> float | None:
        """The share of the speed of light that it reaches, 1.0 is all of it; None where that was not worked out."""
        measurement = self.result.measurement
        if self.fitness is None or measurement is None or measurement.speed_of_light is None:
            return None
        return measurement.speed_of_light.fraction

    @property
    def directive(self) -> str:
        """The name before the colon of what it set out to do (`fusion: keep the row in registers`), else empty."""
        name, colon, _ = self.candidate.directive.partition(":")
        return name.strip() if colon and not self.candidate.template else ""


def best(members: Iterable[Member]) -> Member | None:
    """The fastest that was timed to the end, the earliest of equals; None where there is none."""
    standing = [m for m in members if m.fitness is not None]
    return max(standing, key=_fitness, default=None)


def gain_over_parent(member: Member, by_hash: Mapping[str, Member]) -> float | None:
    """What a step has paid: log(speedup / the best parent's speedup), and 0 where the child is slower, or wrong.

    Selection drops a child that is no faster, so all that it has cost is its trial. None where no parent was timed.
    """
    parents = [by_hash[h].speedup for h in member.candidate.parents if h in by_hash]
    before = max((s for s in parents if s is not None), default=None)
    if before is None:
        return None
    return max(0.0, math.log((member.speedup or before) / before))


def _fitness(member: Member) -> float:
    assert member.fitness is not None
    return member.fitness
