"""The archive: the only source of truth for problems, candidates, verdicts, times and lineage.

Every method is one transaction. Writing the same thing twice changes nothing, so that work which a kill interrupted can
be done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive.database import open_engine, writing
from kernelwright.stages.archive.models import (
    SEARCH,
    Base,
    CandidateRow,
    LineageRow,
    MeasurementRow,
    PrecheckRow,
    ProblemRow,
    ProposalRow,
    RunRow,
    VerdictRow,
)
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.translate.graph import OpInfo
from kernelwright.stages.types import Candidate, Check, Compilation, Measurement


@dataclass(frozen=True)
class Record:
    """A candidate and the result of one of its evaluations."""

    candidate: Candidate
    result: JobResult
    run: str
    stage: str
    created_at: datetime


@dataclass(frozen=True)
class RunInfo:
    """A run's row."""

    id: str
    problem_hash: str
    device: str
    settings: dict[str, Any]
    status: str
    stop: str
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Described:
    """What is stored of a problem's translation."""

    signature: str
    functional: str
    flops: int
    bytes_least: int
    captured_by: str


class Archive:
    """An open archive. Safe to use from several threads and processes at once."""

    def __init__(self, where: str | Path) -> None:
        self.engine = open_engine(where)
        self._writing = writing(self.engine)
        self._problems: dict[str, str] = {}
        """Problem hash by run: it never changes, and every write needs it."""

    @classmethod
    def open(cls, where: str | Path) -> Archive:
        """Open or create. Raises UsageError when the file is no archive or comes from a newer version."""
        return cls(where)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    # Writing

    def add_problem(self, problem: Problem, info: OpInfo) -> None:
        """Store a problem with what translation found; a known one stays as it is."""
        with Session(self._writing) as session, session.begin():
            if session.get(ProblemRow, problem.hash) is None:
                session.add(
                    ProblemRow(
                        hash=problem.hash,
                        name=problem.name,
                        origin=problem.origin,
                        shape=problem.shape,
                        source=problem.source,
                        signature=info.signature,
                        functional=info.functional,
                        flops=info.flops,
                        bytes_least=info.bytes_least,
                        captured_by=info.captured_by,
                        created_at=_now(),
                    )
                )

    def start_run(self, run: str, problem: Problem, device: str, settings: dict[str, Any]) -> None:
        """Open a run."""
        with Session(self._writing) as session, session.begin():
            session.add(
                RunRow(
                    id=run,
                    problem_hash=problem.hash,
                    device=device,
                    settings=settings,
                    status="running",
                    stop="",
                    started_at=_now(),
                )
            )

    def finish_run(self, run: str, stop: str) -> None:
        """Mark a run as done; `stop` says why its search ended."""
        with Session(self._writing) as session, session.begin():
            row = session.get_one(RunRow, run)
            row.status, row.stop, row.ended_at = "done", stop, _now()

    def add_proposals(self, run: str, generation: int, candidates: Sequence[Candidate], attempt: int = 0) -> None:
        """Store a generation of a run, its slots in order. What is there already stays."""
        if not candidates:
            return
        with self._writing.begin() as connection:
            problem_hash = self._problem_of(connection, run)
            add_candidates(connection, problem_hash, candidates)
            place = {"run_id": run, "generation": generation, "attempt": attempt, "problem_hash": problem_hash}
            rows = [place | {"slot": slot, "candidate_hash": c.hash} for slot, c in enumerate(candidates)]
            connection.execute(_insert_new(connection, ProposalRow), rows)

    def add_result(self, run: str, result: JobResult, stage: str = SEARCH) -> bool:
        """Store a verdict with its evidence and times. False when this run has one for the candidate and stage."""
        key = {"run_id": run, "candidate_hash": result.candidate_hash, "stage": stage}
        with self._writing.begin() as connection:
            verdict = _verdict_values(result) | {"problem_hash": self._problem_of(connection, run)}
            if connection.execute(_insert_new(connection, VerdictRow), key | verdict).rowcount == 0:
                return False
            if result.measurement is not None:
                connection.execute(
                    _insert_new(connection, MeasurementRow), key | _measurement_values(result.measurement)
                )
            return True

    def _problem_of(self, connection: Connection, run: str) -> str:
        if run not in self._problems:
            query = select(RunRow.problem_hash).where(RunRow.id == run)
            self._problems[run] = connection.execute(query).scalar_one()
        return self._problems[run]

    def add_precheck(
        self, problem: Problem, candidate: Candidate, compilation: Compilation, checks: Sequence[Check]
    ) -> None:
        """Store what a machine without the device found out about a candidate; a newer finding replaces an older."""
        with Session(self._writing) as session, session.begin():
            add_candidates(session.connection(), problem.hash, [candidate])
            session.merge(
                PrecheckRow(
                    problem_hash=problem.hash,
                    candidate_hash=candidate.hash,
                    passed=compilation.ok and all(c.passed for c in checks),
                    checks=to_json(checks),
                    compilation=to_json(compilation),
                    created_at=_now(),
                )
            )

    # Reading

    def run(self, run: str) -> RunInfo:
        """A run by its id. Raises UsageError when there is none."""
        with Session(self.engine) as session:
            row = session.get(RunRow, run)
            if row is None:
                raise UsageError(f"no run {run} in this archive")
            return _run_info(row)

    def runs(self) -> list[RunInfo]:
        """All runs, the newest first."""
        with Session(self.engine) as session:
            return [_run_info(row) for row in session.scalars(select(RunRow).order_by(RunRow.started_at.desc()))]

    def problem(self, problem_hash: str) -> Problem:
        """A problem by its hash. Raises UsageError when there is none."""
        with Session(self.engine) as session:
            row = session.get(ProblemRow, problem_hash)
            if row is None:
                raise UsageError(f"no problem {problem_hash[:12]} in this archive")
            return Problem(row.name, row.source, row.origin, row.shape)

    def described(self, problem_hash: str) -> Described:
        """What translation found out about a problem. Raises UsageError when the problem is not here."""
        with Session(self.engine) as session:
            row = session.get(ProblemRow, problem_hash)
            if row is None:
                raise UsageError(f"no problem {problem_hash[:12]} in this archive")
            return Described(row.signature, row.functional, row.flops, row.bytes_least, row.captured_by)

    def proposals(self, run: str) -> list[tuple[int, Candidate]]:
        """Every proposal of a run with its generation, in order."""
        query = (
            select(ProposalRow.generation, CandidateRow)
            .join(ProposalRow, _same_candidate(ProposalRow))
            .where(ProposalRow.run_id == run)
            .order_by(ProposalRow.generation, ProposalRow.slot, ProposalRow.attempt)
        )
        with Session(self.engine) as session:
            return [(generation, candidate_of(row)) for generation, row in session.execute(query)]

    def proposals_of(self, run: str, generation: int) -> list[Candidate]:
        """The candidates of one generation, in the order of their slots."""
        query = _proposed(run).where(ProposalRow.generation == generation)
        with Session(self.engine) as session:
            return [candidate_of(row) for row in session.scalars(query)]

    def pending(self, run: str, generation: int) -> list[Candidate]:
        """Those of a generation that have no verdict yet."""
        with Session(self.engine) as session:
            judged = set(session.scalars(_judged(run, SEARCH)))
        return [c for c in self.proposals_of(run, generation) if c.hash not in judged]

    def results_of(self, run: str, stage: str) -> list[Record]:
        """Every result of a run at one stage, in the order of proposal; once, even where a candidate has two places."""
        query = (
            select(CandidateRow, VerdictRow, MeasurementRow)
            .join(ProposalRow, _same_candidate(ProposalRow))
            .join(
                VerdictRow,
                (VerdictRow.run_id == ProposalRow.run_id) & (VerdictRow.candidate_hash == ProposalRow.candidate_hash),
            )
            .outerjoin(MeasurementRow, _same_verdict())
            .where(ProposalRow.run_id == run, VerdictRow.stage == stage)
            .order_by(ProposalRow.generation, ProposalRow.slot, ProposalRow.attempt)
        )
        with Session(self.engine) as session:
            records = [record_of(*row) for row in session.execute(query)]
        return list({record.candidate.hash: record for record in records}.values())

    def result(self, run: str, candidate_hash: str, stage: str) -> JobResult | None:
        """One result of a run, if it has been made."""
        with Session(self.engine) as session:
            verdict = session.get(VerdictRow, (run, candidate_hash, stage))
            if verdict is None:
                return None
            return result_of(verdict, session.get(MeasurementRow, (run, candidate_hash, stage)))


def candidate_of(row: CandidateRow) -> Candidate:
    """The candidate that a row holds."""
    fields = ("source", "backend", "proposer", "directive", "template", "tunables", "library_ops", "parents")
    return from_json(Candidate, {name: getattr(row, name) for name in fields})


def record_of(candidate: CandidateRow, verdict: VerdictRow, measurement: MeasurementRow | None) -> Record:
    """The record that these rows make up."""
    return Record(
        candidate_of(candidate), result_of(verdict, measurement), verdict.run_id, verdict.stage, verdict.created_at
    )


def result_of(verdict: VerdictRow, measurement: MeasurementRow | None) -> JobResult:
    """The result that these rows make up."""
    return from_json(
        JobResult,
        {
            "key": verdict.key,
            "candidate_hash": verdict.candidate_hash,
            "verdict": {"status": verdict.status, "message": verdict.message, "checks": verdict.checks},
            "environment": verdict.environment,
            "compilation": verdict.compilation,
            "measurement": None if measurement is None else measurement.data,
            "seconds": verdict.seconds,
        },
    )


def _insert_new(connection: Connection, table: type[Base]) -> Any:
    """An insert that leaves rows alone whose key is there already."""
    return _insert_statement(connection.dialect.name, table)


@cache
def _insert_statement(dialect: str, table: type[Base]) -> Any:
    return (postgresql if dialect == "postgresql" else sqlite).insert(table).on_conflict_do_nothing()


def add_candidates(connection: Connection, problem_hash: str, candidates: Sequence[Candidate]) -> None:
    """Store candidates of a problem with their lineage, in the caller's transaction; known ones stay as they are."""
    now = _now()
    rows = [to_json(c) | {"problem_hash": problem_hash, "hash": c.hash, "created_at": now} for c in candidates]
    connection.execute(_insert_new(connection, CandidateRow), rows)
    edges = [{"problem_hash": problem_hash, "child": c.hash, "parent": p} for c in candidates for p in c.parents]
    if edges:
        connection.execute(_insert_new(connection, LineageRow), edges)


def _verdict_values(result: JobResult) -> dict[str, Any]:
    return {
        "status": result.verdict.status.value,
        "message": result.verdict.message,
        "checks": to_json(result.verdict.checks),
        "environment": to_json(result.environment),
        "compilation": to_json(result.compilation),
        "seconds": to_json(result.seconds),
        "key": result.key,
        "created_at": _now(),
    }


def _measurement_values(measurement: Measurement) -> dict[str, Any]:
    over_eager = measurement.speedups.get("eager")
    return {
        "median_ms": measurement.candidate.median_ms,
        "speedup_over_eager": over_eager and over_eager.median,
        "speedup_low": over_eager and over_eager.low,
        "speedup_high": over_eager and over_eager.high,
        "data": to_json(measurement),
    }


def _proposed(run: str) -> Select[CandidateRow]:
    return (
        select(CandidateRow)
        .join(ProposalRow, _same_candidate(ProposalRow))
        .where(ProposalRow.run_id == run)
        .order_by(ProposalRow.generation, ProposalRow.slot, ProposalRow.attempt)
    )


def _judged(run: str, stage: str) -> Select[str]:
    return select(VerdictRow.candidate_hash).where(VerdictRow.run_id == run, VerdictRow.stage == stage)


def _same_candidate(table: type[ProposalRow]) -> Any:
    return (table.problem_hash == CandidateRow.problem_hash) & (table.candidate_hash == CandidateRow.hash)


def _same_verdict() -> Any:
    return (
        (MeasurementRow.run_id == VerdictRow.run_id)
        & (MeasurementRow.candidate_hash == VerdictRow.candidate_hash)
        & (MeasurementRow.stage == VerdictRow.stage)
    )


def _run_info(row: RunRow) -> RunInfo:
    return RunInfo(
        row.id, row.problem_hash, row.device, row.settings, row.status, row.stop, row.started_at, row.ended_at
    )


def _now() -> datetime:
    return datetime.now(UTC)
