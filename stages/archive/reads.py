"""What people ask of an archive: which candidates are there, and what is known about one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive.models import (
    CONFIRM,
    CandidateRow,
    LineageRow,
    MeasurementRow,
    PrecheckRow,
    ProblemRow,
    ProposalRow,
    RunRow,
    VerdictRow,
)
from kernelwright.stages.archive.store import Archive, candidate_of, result_of
from kernelwright.stages.codec import from_json
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.types import Backend, Candidate, Check, Compilation, Ratio, Status

SHORTEST_PREFIX = 4
"""Hexadecimal digits that name a candidate at least."""
NAMED_MATCHES = 8
"""How many candidates the message about an ambiguous prefix names."""

AnyRow = Row[*tuple[Any, ...]]


@dataclass(frozen=True)
class Listed:
    """A candidate in one run, with the verdict and the times that count there."""

    hash: str
    problem: str
    shape: str | None
    """Label of the problem's SHAPES; None for the sizes as they stand in the file."""
    device: str
    backend: Backend
    template: str
    directive: str
    status: Status
    stage: str
    """`confirm` where the candidate was measured again on fresh inputs, else `search`."""
    speedup: Ratio | None
    """Over eager; None where nothing was measured."""
    median_ms: float | None
    screened_out: bool
    """Its times come from a few rounds only, since it was clearly slower than the incumbent."""
    run: str
    created_at: datetime


@dataclass(frozen=True)
class Place:
    """Where a run proposed a candidate."""

    run: str
    generation: int
    slot: int
    attempt: int


@dataclass(frozen=True)
class Evaluation:
    """One verdict on a candidate, with everything that was recorded beside it."""

    problem_hash: str
    run: str
    stage: str
    result: JobResult
    created_at: datetime


@dataclass(frozen=True)
class Precheck:
    """What a machine without the device found out about a candidate."""

    problem_hash: str
    passed: bool
    checks: tuple[Check, ...]
    compilation: Compilation
    created_at: datetime


@dataclass(frozen=True)
class Relative:
    """A parent or a child of a candidate, with the best speedup over eager that counts for it."""

    hash: str
    directive: str
    """Empty when the archive knows of the relative only by its hash."""
    speedup: Ratio | None


@dataclass(frozen=True)
class Shown:
    """All that the archive knows about a candidate."""

    candidate: Candidate
    problems: Mapping[str, Problem]
    """By hash; mostly one. Two shapes of a problem may be given the same source: one candidate of both."""
    proposals: tuple[Place, ...]
    evaluations: tuple[Evaluation, ...]
    """In the order in which they were made."""
    prechecks: tuple[Precheck, ...]
    parents: tuple[Relative, ...]
    children: tuple[Relative, ...]
    created_at: datetime


def listed(
    archive: Archive,
    *,
    problem: str | None = None,
    text: str = "",
    device: str | None = None,
    backend: Backend | None = None,
    status: Status | None = None,
    correct_only: bool = False,
    confirmed_only: bool = False,
    limit: int = 50,
) -> list[Listed]:
    """Judged candidates, the largest speedup over eager first, then the newest; one row a run and candidate.

    `problem` is a name (`softmax`) or what was given to `optimize` (`core/softmax`, a file). Every word of `text` must
    be in the problem's name, or in the candidate's directive, template or source; upper and lower case are alike.
    `confirmed_only` leaves the candidates that were found correct when they were measured again on fresh inputs.
    """
    query = _listing().where(*(_mentions(word) for word in text.split()))
    if problem is not None:
        query = query.where((ProblemRow.name == problem) | (ProblemRow.origin == problem))
    if device is not None:
        query = query.where(RunRow.device == device)
    if backend is not None:
        query = query.where(CandidateRow.backend == backend.value)
    if status is not None:
        query = query.where(VerdictRow.status == status.value)
    if correct_only or confirmed_only:
        query = query.where(VerdictRow.status == Status.CORRECT.value)
    if confirmed_only:
        query = query.where(VerdictRow.stage == CONFIRM)
    query = query.order_by(
        MeasurementRow.speedup_over_eager.desc().nulls_last(), VerdictRow.created_at.desc(), VerdictRow.candidate_hash
    )
    with Session(archive.engine) as session:
        return [_listed(row) for row in session.execute(query.limit(limit))]


def shown(archive: Archive, prefix: str) -> Shown:
    """The candidate whose hash begins with `prefix`: at least four hexadecimal digits.

    Raises UsageError when no candidate's hash begins so, or several do; it names them then.
    """
    with Session(archive.engine) as session:
        candidate_hash = _unique(session, prefix)
        rows = session.execute(
            select(CandidateRow, ProblemRow)
            .join(ProblemRow, ProblemRow.hash == CandidateRow.problem_hash)
            .where(CandidateRow.hash == candidate_hash)
            .order_by(CandidateRow.created_at)
        ).all()
        first: CandidateRow = rows[0][0]
        problems = {row.hash: Problem(row.name, row.source, row.origin, row.shape) for _, row in rows}
        return Shown(
            candidate=candidate_of(first),
            problems=problems,
            proposals=_proposals(session, candidate_hash, problems),
            evaluations=_evaluations(session, candidate_hash),
            prechecks=_prechecks(session, candidate_hash, problems),
            parents=_relatives(session, LineageRow.parent, LineageRow.child == candidate_hash, problems),
            children=_relatives(session, LineageRow.child, LineageRow.parent == candidate_hash, problems),
            created_at=_utc(first.created_at),
        )


def _listing() -> Select[*tuple[Any, ...]]:
    """Every judged candidate of every run, by the verdict that counts; with the columns of `_listed`."""
    return (
        select(
            CandidateRow.hash,
            ProblemRow.name,
            ProblemRow.shape,
            RunRow.device,
            CandidateRow.backend,
            CandidateRow.template,
            CandidateRow.directive,
            VerdictRow.status,
            VerdictRow.stage,
            MeasurementRow.speedup_over_eager,
            MeasurementRow.speedup_low,
            MeasurementRow.speedup_high,
            MeasurementRow.median_ms,
            MeasurementRow.data["screened_out"].as_boolean().label("screened_out"),
            VerdictRow.run_id,
            VerdictRow.created_at,
        )
        .select_from(VerdictRow)
        .join(
            CandidateRow,
            (CandidateRow.problem_hash == VerdictRow.problem_hash) & (CandidateRow.hash == VerdictRow.candidate_hash),
        )
        .join(ProblemRow, ProblemRow.hash == VerdictRow.problem_hash)
        .join(RunRow, RunRow.id == VerdictRow.run_id)
        .outerjoin(MeasurementRow, measured_by(VerdictRow))
        .where(counts())
    )


def _mentions(word: str) -> ColumnElement[bool]:
    columns = (ProblemRow.name, ProblemRow.origin, CandidateRow.directive, CandidateRow.template, CandidateRow.source)
    return or_(*(column.icontains(word, autoescape=True) for column in columns))


def counts() -> ColumnElement[bool]:
    """A verdict counts unless its run has judged the candidate again on fresh inputs."""
    again = aliased(VerdictRow)
    confirmed = select(again.run_id).where(
        again.run_id == VerdictRow.run_id,
        again.candidate_hash == VerdictRow.candidate_hash,
        again.stage == CONFIRM,
    )
    return (VerdictRow.stage == CONFIRM) | ~confirmed.exists()


def measured_by(verdict: type[VerdictRow]) -> ColumnElement[bool]:
    """Joins a verdict's times to it."""
    return and_(
        MeasurementRow.run_id == verdict.run_id,
        MeasurementRow.candidate_hash == verdict.candidate_hash,
        MeasurementRow.stage == verdict.stage,
    )


def _listed(row: AnyRow) -> Listed:
    return Listed(
        hash=row.hash,
        problem=row.name,
        shape=row.shape,
        device=row.device,
        backend=Backend(row.backend),
        template=row.template,
        directive=row.directive,
        status=Status(row.status),
        stage=row.stage,
        speedup=_ratio(row),
        median_ms=row.median_ms,
        screened_out=bool(row.screened_out),
        run=row.run_id,
        created_at=_utc(row.created_at),
    )


def _unique(session: Session, prefix: str) -> str:
    digits = prefix.lower()
    if len(digits) < SHORTEST_PREFIX or not set(digits) <= set("0123456789abcdef"):
        raise UsageError(
            f"{prefix!r} names no candidate: give the first {SHORTEST_PREFIX} or more hexadecimal digits of its hash"
        )
    # A range, which the index answers; `g` follows every hexadecimal digit.
    begins_so = (CandidateRow.hash >= digits) & (CandidateRow.hash < digits + "g")
    grouped = select(CandidateRow.hash, func.min(CandidateRow.directive)).where(begins_so).group_by(CandidateRow.hash)
    found = session.execute(grouped.order_by(CandidateRow.hash).limit(NAMED_MATCHES + 1)).all()
    if not found:
        raise UsageError(f"no candidate's hash begins with {prefix}; `kernelwright archive list` lists them")
    if len(found) > 1:
        raise UsageError(f"{prefix} is ambiguous: {_named(found)}")
    return str(found[0][0])


def _named(found: Sequence[AnyRow]) -> str:
    names = [f"{row[0][:12]} ({row[1]})" for row in found[:NAMED_MATCHES]]
    return ", ".join([*names, "and more"] if len(found) > NAMED_MATCHES else names)


def _proposals(session: Session, candidate_hash: str, problems: Iterable[str]) -> tuple[Place, ...]:
    query = (
        select(ProposalRow.run_id, ProposalRow.generation, ProposalRow.slot, ProposalRow.attempt)
        .join(RunRow, RunRow.id == ProposalRow.run_id)
        .where(ProposalRow.problem_hash.in_(problems), ProposalRow.candidate_hash == candidate_hash)
        .order_by(RunRow.started_at, ProposalRow.generation, ProposalRow.slot, ProposalRow.attempt)
    )
    return tuple(Place(*row) for row in session.execute(query))


def _evaluations(session: Session, candidate_hash: str) -> tuple[Evaluation, ...]:
    query = (
        select(VerdictRow, MeasurementRow)
        .outerjoin(MeasurementRow, measured_by(VerdictRow))
        .where(VerdictRow.candidate_hash == candidate_hash)
        .order_by(VerdictRow.created_at)
    )
    return tuple(
        Evaluation(
            verdict.problem_hash,
            verdict.run_id,
            verdict.stage,
            result_of(verdict, measurement),
            _utc(verdict.created_at),
        )
        for verdict, measurement in session.execute(query)
    )


def _prechecks(session: Session, candidate_hash: str, problems: Iterable[str]) -> tuple[Precheck, ...]:
    query = (
        select(PrecheckRow)
        .where(PrecheckRow.problem_hash.in_(problems), PrecheckRow.candidate_hash == candidate_hash)
        .order_by(PrecheckRow.created_at)
    )
    return tuple(
        Precheck(
            row.problem_hash,
            row.passed,
            tuple(from_json(Check, check) for check in row.checks),
            from_json(Compilation, row.compilation),
            _utc(row.created_at),
        )
        for row in session.scalars(query)
    )


def _relatives(
    session: Session, relative: InstrumentedAttribute[str], of: ColumnElement[bool], problems: Iterable[str]
) -> tuple[Relative, ...]:
    """Those at the other end (`relative`) of the lineage's edges that `of` chooses, the fastest first."""
    query = (
        select(relative, CandidateRow.directive)
        .select_from(LineageRow)
        .outerjoin(
            CandidateRow, (CandidateRow.problem_hash == LineageRow.problem_hash) & (CandidateRow.hash == relative)
        )
        .where(LineageRow.problem_hash.in_(problems), of)
    )
    directives: dict[str, str | None] = {row[0]: row[1] for row in session.execute(query)}
    best = (
        select(
            VerdictRow.candidate_hash,
            MeasurementRow.speedup_over_eager,
            MeasurementRow.speedup_low,
            MeasurementRow.speedup_high,
        )
        .join(MeasurementRow, measured_by(VerdictRow))
        .where(VerdictRow.candidate_hash.in_(directives), VerdictRow.problem_hash.in_(problems), counts())
        .order_by(MeasurementRow.speedup_over_eager)
    )
    speedups = {row.candidate_hash: _ratio(row) for row in session.execute(best)}
    found = [Relative(name, directive or "", speedups.get(name)) for name, directive in directives.items()]
    return tuple(sorted(found, key=lambda r: (-r.speedup.median if r.speedup else 0.0, r.hash)))


def _ratio(row: AnyRow) -> Ratio | None:
    if row.speedup_over_eager is None:
        return None
    return Ratio(row.speedup_over_eager, row.speedup_low, row.speedup_high)


def _utc(moment: datetime) -> datetime:
    """SQLite gives times back without their zone; all of ours are UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
