"""The one view of a run that the terminal, the report and JSON render: built by folding events, pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kernelwright.agent.outcome import Outcome
from kernelwright.agent.ui.events import Evaluated, Event, Proposed, Stopped
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive import Record
from kernelwright.stages.execute.job import JobResult, Progress
from kernelwright.stages.measure.stats import is_gain
from kernelwright.stages.types import Candidate, Environment, Measurement, Ratio, Status

NOT_COMPILED = (Status.COMPILE_ERROR, Status.STATIC_REJECT)


@dataclass(frozen=True)
class Row:
    """One candidate's fate so far."""

    candidate: Candidate
    result: JobResult | None = None
    confirmed: JobResult | None = None
    """Its second measurement, on fresh inputs."""

    @property
    def latest(self) -> JobResult | None:
        """The second measurement when there is one."""
        return self.confirmed or self.result

    @property
    def measurement(self) -> Measurement | None:
        """The latest times, if it was correct."""
        return self.latest.measurement if self.latest else None

    @property
    def over_eager(self) -> Ratio | None:
        """Speedup over eager, if it was measured."""
        return self.measurement.speedups.get("eager") if self.measurement else None

    @property
    def status(self) -> str:
        """The verdict's word, `slower` for a correct candidate that was screened out, `proposed` before any verdict."""
        if self.latest is None:
            return "proposed"
        screened = self.measurement is not None and self.measurement.screened_out
        return "slower" if screened else self.latest.verdict.status.value


@dataclass(frozen=True)
class Funnel:
    """How many candidates came how far."""

    proposed: int
    compiled: int
    correct: int
    faster: int
    """With the interval's lower end above the threshold for a gain."""


@dataclass(frozen=True)
class RunView:
    """A run at one moment."""

    run: str
    problem: Problem
    device: str
    max_candidates: int
    time_s: float
    generation: int = 0
    rows: Mapping[str, Row] = field(default_factory=dict)
    """By candidate hash, in the order of proposal."""
    stages: Mapping[str, str] = field(default_factory=dict)
    """What is going on: job key to stage."""
    judged: tuple[str, ...] = ()
    """Hashes in the order of their verdicts."""
    stop: str = ""

    @property
    def funnel(self) -> Funnel:
        """Counts over all rows."""
        results = [r.result for r in self.rows.values() if r.result]
        correct = [r for r in results if r.verdict.status is Status.CORRECT]
        return Funnel(
            proposed=len(self.rows),
            compiled=sum(r.verdict.status not in NOT_COMPILED for r in results),
            correct=len(correct),
            faster=sum(gains(r) for r in correct),
        )

    @property
    def incumbent(self) -> Row | None:
        """The fastest row that was measured to the end, second measurements first."""
        measured = [r for r in self.rows.values() if r.over_eager and r.status == "correct"]
        confirmed = [r for r in measured if r.confirmed]
        return max(confirmed or measured, key=lambda r: r.over_eager.median if r.over_eager else 0.0, default=None)

    @property
    def rejections(self) -> list[Row]:
        """Rows that were turned down, the latest first."""
        rows = [self.rows[h] for h in reversed(self.judged)]
        return [r for r in rows if r.status not in ("correct", "proposed")]

    @property
    def environment(self) -> Environment | None:
        """Where it ran, once something has."""
        return next((r.latest.environment for r in self.rows.values() if r.latest), None)

    @property
    def library_ops(self) -> tuple[str, ...]:
        """Operators that stay library calls in the incumbent (or else in the first candidate)."""
        row = self.incumbent or next(iter(self.rows.values()), None)
        return row.candidate.library_ops if row else ()


def gains(result: JobResult) -> bool:
    """Whether a result is a gain over eager by our rule."""
    measurement = result.measurement
    if measurement is None or measurement.screened_out or "eager" not in measurement.speedups:
        return False
    return is_gain(measurement.speedups["eager"])


def fold(view: RunView, event: Event) -> RunView:
    """The view after one more event."""
    if isinstance(event, Proposed):
        new = {c.hash: Row(c) for c in event.candidates if c.hash not in view.rows}
        return replace(view, generation=event.generation, rows={**view.rows, **new})
    if isinstance(event, Progress):
        return replace(view, stages={**view.stages, event.key: event.stage})
    if isinstance(event, Evaluated):
        row = view.rows.get(event.candidate.hash, Row(event.candidate))
        row = replace(row, confirmed=event.result) if event.confirmed else replace(row, result=event.result)
        stages = {key: stage for key, stage in view.stages.items() if key != event.result.key}
        return replace(
            view,
            rows={**view.rows, event.candidate.hash: row},
            stages=stages,
            judged=(*view.judged, event.candidate.hash),
        )
    assert isinstance(event, Stopped)
    return replace(view, stop=event.reason)


def fold_records(view: RunView, outcome: Outcome) -> RunView:
    """The view with everything that the archive knows of the run."""

    def of(records: Iterable[Record], confirmed: bool) -> Iterable[Event]:
        return (Evaluated(r.candidate, r.result, confirmed) for r in records)

    for event in (*of(outcome.searched, False), *of(outcome.confirmed, True)):
        view = fold(view, event)
    return view


def ratio_text(ratio: Ratio) -> str:
    """`3.31x [3.20, 3.61]`."""
    return f"{ratio.median:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"
