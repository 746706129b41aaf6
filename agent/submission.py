"""A candidate that somebody hands in to a run: judged like one of the search, and stored beside them.

Whoever hands it in gives text and a note. Verdict and times are the referee's, on inputs drawn anew. A candidate is
known by the hash of its source: handed in twice, it is judged once.
"""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.outcome import fastest, outcome, over_eager
from kernelwright.agent.verification import Watch, judged, with_own_name
from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.archive import CONFIRM, SEARCH, Archive
from kernelwright.stages.archive.reads import Place
from kernelwright.stages.archive.submissions import add_submission
from kernelwright.stages.execute.bundle import confirmation
from kernelwright.stages.execute.job import Effort, Executor, Job, JobResult
from kernelwright.stages.measure.stats import is_gain
from kernelwright.stages.types import Backend, Candidate, Status
from kernelwright.stages.verify.source_form import read_form

if TYPE_CHECKING:
    from kernelwright.agent.run import Opened

PROPOSER = "submitted"
NAME = "source"
"""What the candidate's file is called in messages: its author has it under another name, or under none."""
NO_VERDICT = (Status.ENV_ERROR, Status.UNKNOWN)
"""Nothing was found out about the candidate: it is not stored as judged, and may be handed in again."""


@dataclass(frozen=True)
class Submission:
    """What the archive holds of a candidate that was handed in."""

    run: str
    candidate: Candidate
    place: Place
    result: JobResult
    confirmed: JobResult | None
    """Its second measurement, on other inputs; made of a candidate that would be the run's winner."""
    new: bool
    """False where the run had judged it before."""
    winner: bool
    """Whether it is the run's winner now."""

    @property
    def counts(self) -> JobResult:
        """The result that counts: the second measurement where there is one."""
        return self.confirmed or self.result


def submitted(source: str, note: str, backend: Backend | None = None) -> Candidate:
    """The candidate of a text that was handed in, with its author's note; without a back end, that of the source."""
    return Candidate(source, backend or read_form(source).backend, PROPOSER, directive=note)


def submit(opened: Opened, candidate: Candidate, executor: Executor, watch: Watch) -> Submission:
    """Judge a candidate of a run and store it; what the run has judged already is only looked up.

    Two who hand in the same candidate at once both get the one row that the archive keeps. What is returned is stored.
    Raises EnvironmentFault when the machine could not judge it.
    """
    # It imports torch, for seconds: a server names its tools before.
    from kernelwright.agent.finish import finish

    with Archive.open(opened.settings.archive) as archive:
        place = add_submission(archive, opened.run, candidate)
        known = archive.result(opened.run, candidate.hash, SEARCH)
        job = _job(archive, opened, candidate, place)
        result = known or _stored(archive, opened.run, _run(executor, job, watch), SEARCH)
        confirmed = archive.result(opened.run, candidate.hash, CONFIRM)
        if confirmed is None and _would_win(archive, opened.run, result):
            confirmed = _stored(archive, opened.run, _run(executor, confirmation(job), watch), CONFIRM)
        winner = outcome(archive, opened.run).winner
    with _alone_in(opened.folder):
        finish(opened)
    wins = winner is not None and winner.candidate.hash == candidate.hash
    return Submission(opened.run, candidate, place, result, confirmed, known is None, wins)


def _job(archive: Archive, opened: Opened, candidate: Candidate, place: Place) -> Job:
    best = fastest(archive.results_of(opened.run, SEARCH))
    speed = over_eager(best) if best else None
    return Job(
        key=f"{opened.run}/{place.generation}/{candidate.hash[:12]}",
        problem=opened.problem,
        candidate=candidate,
        device=opened.settings.device,
        # Not the run's seed: that one is in the archive, where the candidate's author may have read it.
        seed=random.SystemRandom().getrandbits(31),
        effort=Effort(rounds=opened.settings.rounds),
        incumbent_ms_over_eager=1.0 / speed if speed else None,
    )


def _run(executor: Executor, job: Job, watch: Watch) -> JobResult:
    result = with_own_name(judged(executor, job, watch), NAME)
    if result.verdict.status in NO_VERDICT:
        raise EnvironmentFault(f"there is no verdict ({result.verdict.status.value}): {result.verdict.message}")
    return result


def _stored(archive: Archive, run: str, result: JobResult, stage: str) -> JobResult:
    """What the archive holds in the end: another may have stored a result of the same candidate meanwhile."""
    if archive.add_result(run, result, stage):
        return result
    kept = archive.result(run, result.candidate_hash, stage)
    assert kept is not None
    return kept


def _would_win(archive: Archive, run: str, result: JobResult) -> bool:
    measurement = result.measurement
    if measurement is None or measurement.screened_out or not is_gain(measurement.speedups["eager"]):
        return False
    winner = outcome(archive, run).winner
    best = over_eager(winner) if winner else None
    return best is None or measurement.speedups["eager"].median > best


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Only one process at a time writes a run's reports."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
