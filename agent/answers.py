"""What the tools answer to a coding agent: typed, small, and made of what the referee found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from kernelwright.agent.comparison import Benched
from kernelwright.agent.evidence import Line, lines
from kernelwright.agent.outcome import Outcome
from kernelwright.agent.submission import Submission
from kernelwright.agent.ui.view import RunView
from kernelwright.agent.verification import Verified
from kernelwright.stages.archive import Record
from kernelwright.stages.archive.reads import Listed
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.measure.stats import is_gain
from kernelwright.stages.profile.report import Profile
from kernelwright.stages.static import read
from kernelwright.stages.types import Environment, Measurement, Ratio, Status

LATEST = 10
"""Candidates that a run's status names."""
CLOSEST = 3
"""Passed checks that an answer names."""


class Answer(BaseModel):
    """A part of an answer. The docstrings of its fields are what the client reads in the tool's schema."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Speedup(Answer):
    """A baseline's time over the candidate's, with a 95 % interval."""

    median: float
    low: float
    high: float


class CheckLine(Answer):
    """One check, with its figure beside its bound."""

    group: str
    name: str
    figure: float | None
    """What was found; null where the check has no number, or where it is not finite."""
    bound: float | None
    """What is allowed."""
    detail: str


class Times(Answer):
    """Milliseconds a call, and speedups over the baselines that were timed in the same rounds."""

    candidate_ms: float
    baselines_ms: dict[str, float]
    speedups: dict[str, Speedup]
    gain: bool
    """Whether the interval over eager lies above 1.02: the only speedup that counts."""
    screened_out: bool
    """Timing ended early: the candidate is clearly slower than the run's fastest."""
    speed_of_light: float | None
    """The fraction of the least time that the device could take; 1.0 is the limit."""


class Judgement(Answer):
    """What the referee found out about one candidate."""

    verdict: Status
    """Only `correct` may be used."""
    message: str
    """What is wrong and where; empty for `correct`."""
    failed: list[CheckLine]
    """The first failed check of each kind."""
    closest: list[CheckLine]
    """Passed checks that came closest to their bounds."""
    checks: int
    """How many checks were made; the first that fails ends them."""
    times: Times | None
    """Null unless the candidate is correct and was timed."""
    machine: str


class Verification(Judgement):
    """The verdict on a candidate that leaves no trace."""

    backend: str
    notes: list[str]
    """What reading the source found worth a second look; it decides nothing."""
    seed: int
    """Given again, it draws the same inputs."""


class Ranked(Answer):
    """One candidate of a comparison."""

    name: str
    verdict: Status
    message: str
    rank: int | None
    """1 is the fastest; those that cannot be told apart share a rank. Null: not timed."""
    times: Times | None


class Comparison(Answer):
    """Candidates side by side, the fastest first, the refused ones last."""

    candidates: list[Ranked]
    indistinguishable: list[tuple[str, str]]
    """Pairs of which neither is faster than the other beyond doubt."""
    gains: list[str]
    """Those that are faster than eager beyond doubt."""
    machine: str


class Profiled(Answer):
    """What limits a candidate. It was seen in the candidate's own process: advice, never a score."""

    bottleneck: str
    """`memory`, `compute`, `latency`, `launch`, `occupancy` or `unknown`."""
    tier: str | None
    """The most telling source of figures that answered."""
    summary: str
    """Metrics, longest kernels, advice, and which sources gave nothing."""


class Found(Answer):
    """A judged candidate of the archive."""

    hash: str
    problem: str
    device: str
    backend: str
    directive: str
    """What its author set out to do."""
    verdict: Status
    confirmed: bool
    """Whether it was measured again on other inputs."""
    over_eager: Speedup | None
    candidate_ms: float | None
    run: str
    source: str | None
    """Only where sources were asked for."""


class SearchResult(Answer):
    """What the archive holds, the largest speedup over eager first."""

    candidates: list[Found]
    more: bool
    """Whether there are others like these beyond the limit."""


class Submitted(Judgement):
    """What the archive holds of a candidate that was handed in."""

    run: str
    hash: str
    generation: int
    """-1: handed in. A search numbers its generations from 0."""
    slot: int
    new: bool
    """False where the run had judged this source before: nothing was measured again."""
    confirmed: bool
    """Whether it was measured a second time on other inputs, since it would be the run's winner."""
    winner: bool
    """Whether it is the run's winner now."""


class Standing(Answer):
    """One candidate of a run, in a line."""

    hash: str
    directive: str
    verdict: Status
    message: str
    """The first line of it."""
    over_eager: Speedup | None


class RunStatus(Answer):
    """Where a run stands."""

    run: str
    problem: str
    device: str
    status: str
    """`running` (or killed while it ran, or open for candidates) or `done`."""
    stop: str
    """Why the search ended; empty while it has not."""
    proposed: int
    judged: int
    correct: int
    winner: Standing | None
    """Null until a gain was seen twice, the second time on other inputs."""
    fastest: Standing | None
    """The fastest that was seen, whether or not its gain is beyond doubt."""
    latest: list[Standing]
    """The candidates judged last, the newest first."""
    folder: str
    """Holds the reports, and the winner as `best_model.py`."""


def speedup_of(ratio: Ratio | None) -> Speedup | None:
    """The same three numbers."""
    return None if ratio is None else Speedup(median=ratio.median, low=ratio.low, high=ratio.high)


def times_of(measurement: Measurement | None) -> Times | None:
    """What a measurement comes to."""
    if measurement is None:
        return None
    over_eager, light = measurement.speedups.get("eager"), measurement.speed_of_light
    return Times(
        candidate_ms=measurement.candidate.median_ms,
        baselines_ms={name: timing.median_ms for name, timing in measurement.baselines.items()},
        speedups={name: Speedup(median=r.median, low=r.low, high=r.high) for name, r in measurement.speedups.items()},
        gain=not measurement.screened_out and over_eager is not None and is_gain(over_eager),
        screened_out=measurement.screened_out,
        speed_of_light=light.fraction if light else None,
    )


def verification_of(verified: Verified) -> Verification:
    """The answer of `verify`."""
    candidate = verified.job.candidate
    return Verification(
        **_judgement(verified.result),
        backend=candidate.backend.value,
        notes=[f"line {note.line}: {note.sentence}" for note in read(candidate.source).warnings],
        seed=verified.job.seed,
    )


def comparison_of(benched: Benched) -> Comparison:
    """The answer of `bench`."""
    return Comparison(
        candidates=[
            Ranked(
                name=entry.name,
                verdict=entry.result.verdict.status,
                message=entry.result.verdict.message,
                rank=entry.rank,
                times=times_of(entry.result.measurement),
            )
            for entry in benched.entries
        ],
        indistinguishable=list(benched.indistinguishable),
        gains=[entry.name for entry in benched.gains],
        machine=_machine(benched.entries[0].result.environment),
    )


def profiled_of(profile: Profile) -> Profiled:
    """The answer of `profile`."""
    return Profiled(
        bottleneck=profile.finding.bottleneck.value,
        tier=profile.tier.value if profile.tier else None,
        summary=profile.summary(),
    )


def search_result_of(found: Sequence[Listed], limit: int, sources: dict[str, str]) -> SearchResult:
    """The answer of `search_archive`; `found` may hold one more than `limit`."""
    return SearchResult(
        candidates=[_found(row, sources.get(row.hash)) for row in found[:limit]], more=len(found) > limit
    )


def submitted_of(submission: Submission) -> Submitted:
    """The answer of `submit_candidate`."""
    return Submitted(
        **_judgement(submission.counts),
        run=submission.run,
        hash=submission.candidate.hash,
        generation=submission.place.generation,
        slot=submission.place.slot,
        new=submission.new,
        confirmed=submission.confirmed is not None,
        winner=submission.winner,
    )


def run_status_of(view: RunView, outcome: Outcome, status: str, proposed: int, folder: Path) -> RunStatus:
    """The answer of `run_status`."""
    records = sorted(outcome.searched, key=lambda record: record.created_at, reverse=True)
    best = outcome.best_seen
    return RunStatus(
        run=view.run,
        problem=f"{view.problem.origin}:{view.problem.shape}" if view.problem.shape else view.problem.origin,
        device=view.device,
        status=status,
        stop=view.stop,
        proposed=proposed,
        judged=len(records),
        correct=sum(record.result.verdict.status is Status.CORRECT for record in records),
        winner=_standing(outcome.winner) if outcome.winner else None,
        fastest=_standing(best) if best else None,
        latest=[_standing(record) for record in records[:LATEST]],
        folder=str(folder),
    )


def _judgement(result: JobResult) -> dict[str, Any]:
    """The fields of `Judgement`."""
    checks, kinds = result.verdict.checks, lines(result.verdict.checks)
    bounded = [line for line in kinds if line.passed and line.figure is not None and line.bound]
    bounded.sort(key=lambda line: (line.figure or 0.0) / (line.bound or 1.0), reverse=True)
    return {
        "verdict": result.verdict.status,
        "message": result.verdict.message,
        "failed": [_check_line(line) for line in kinds if not line.passed],
        "closest": [_check_line(line) for line in bounded[:CLOSEST]],
        "checks": len(checks),
        "times": times_of(result.measurement),
        "machine": _machine(result.environment),
    }


def _check_line(line: Line) -> CheckLine:
    return CheckLine(
        group=line.group,
        name=line.name,
        figure=_finite(line.figure),
        bound=_finite(line.bound),
        detail=line.detail,
    )


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _machine(environment: Environment) -> str:
    return f"{environment.device_name} ({environment.device}), torch {environment.torch}"


def _found(row: Listed, source: str | None) -> Found:
    return Found(
        hash=row.hash,
        problem=f"{row.problem}:{row.shape}" if row.shape else row.problem,
        device=row.device,
        backend=row.backend.value,
        directive=row.directive or row.template,
        verdict=row.status,
        confirmed=row.stage == "confirm",
        over_eager=speedup_of(row.speedup),
        candidate_ms=row.median_ms,
        run=row.run,
        source=source,
    )


def _standing(record: Record) -> Standing:
    verdict, measurement = record.result.verdict, record.result.measurement
    return Standing(
        hash=record.candidate.hash,
        directive=record.candidate.directive or record.candidate.template,
        verdict=verdict.status,
        message=next(iter(verdict.message.splitlines()), ""),
        over_eager=speedup_of(measurement.speedups.get("eager")) if measurement else None,
    )
