"""One job format for every way of evaluating: in a local worker, in a bundle on another machine, later over Ray.

Standard library only: it travels to bare GPU machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kernelwright.kernelbench.problem import Precision, Problem
from kernelwright.stages.profile.report import Profile
from kernelwright.stages.types import Candidate, Compilation, Environment, Measurement, OwnWork, Verdict


@dataclass(frozen=True)
class Effort:
    """How much to spend on one candidate."""

    thorough: bool = True
    """False: only the cases that catch most, where verification must be quick."""
    detailed: bool = False
    """Also what only people look at: kernels' shares of device time, warm times, replay as a CUDA graph."""
    screen_rounds: int = 4
    """Interleaved rounds from which on a candidate that surely loses to the incumbent is dropped; 0: never."""
    rounds: int = 15
    """Interleaved rounds in all; each gives one sample of the candidate and of every baseline."""
    pairs: int = 1
    """Pairs of fresh processes, of candidate and eager, that must show a gain over eager for it to be one."""
    region_ms: float = 20.0
    """A timed region repeats the call until it lasts at least this long."""
    timeout_s: float = 60.0
    """Wall time that building and verifying may take before the verdict is `hang`."""


class Purpose(StrEnum):
    """What a job is for."""

    JUDGE = "judge"
    """A verdict, and times."""
    PROFILE = "profile"
    """What limits the candidate. It is called, and neither compared nor timed beside others: the verdict of one that
    runs is `unknown`."""


@dataclass(frozen=True)
class Job:
    """Evaluate one candidate of one problem on one device."""

    key: str
    """Names the result: unique within the run (`run/generation/slot`)."""
    problem: Problem
    candidate: Candidate
    device: str
    """`cpu` or `cuda`."""
    seed: int
    effort: Effort = field(default_factory=Effort)
    baselines: tuple[str, ...] = ("eager", "compile")
    precision: Precision | None = None
    """None: what the problem itself says, else `strict`."""
    no_library: bool = False
    """Refuse a candidate whose answer a library call computes."""
    timed: bool = True
    """False: only verify."""
    incumbent_ms_over_eager: float | None = None
    """The incumbent's time as a fraction of eager's: what screening compares with. None: nothing is screened out."""
    purpose: Purpose = Purpose.JUDGE


@dataclass(frozen=True)
class JobResult:
    """What evaluating a job gave. `measurement` is None unless the verdict is `correct`."""

    key: str
    candidate_hash: str
    verdict: Verdict
    environment: Environment
    compilation: Compilation | None = None
    measurement: Measurement | None = None
    work: OwnWork | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage: `compile`, `verify`, `baselines`, `measure`, `profile`."""
    profile: Profile | None = None
    """Of a job whose purpose it is."""


@dataclass(frozen=True)
class Progress:
    """A job entered a stage: `compile`, `prepare` (inputs and right answers), `verify`, `baselines`, `measure`
    or `profile`."""

    key: str
    stage: str


class Executor(Protocol):
    """Evaluates jobs somewhere. Results come as they are made, in any order, each exactly once."""

    def run(self, jobs: Iterable[Job], on_progress: Callable[[Progress], None]) -> Iterator[JobResult]:
        """Yield one result a job. A candidate's failure is a result; only `EnvironmentFault` is raised."""
        ...

    def close(self) -> None:
        """Stop every process that the executor started."""
        ...
