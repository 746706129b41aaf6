"""Tables of the archive. Nested values are JSON columns, written and read through `stages.codec`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, ForeignKey, ForeignKeyConstraint, Index, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SEARCH, CONFIRM = "search", "confirm"
"""Stages of a verdict: made while searching, or when the winner was measured again."""


class Base(DeclarativeBase):
    """Declares how constraints are named, so that migrations can name them too, and what maps to JSON and to UTC."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, datetime: DateTime(timezone=True)}  # noqa: RUF012


class ProblemRow(Base):
    """A reference, and what translation found out about it."""

    __tablename__ = "problems"

    hash: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    origin: Mapped[str]
    shape: Mapped[str | None]
    source: Mapped[str]
    signature: Mapped[str] = mapped_column(index=True)
    functional: Mapped[str]
    flops: Mapped[int] = mapped_column(BigInteger)
    bytes_least: Mapped[int] = mapped_column(BigInteger)
    captured_by: Mapped[str]
    created_at: Mapped[datetime]


class CandidateRow(Base):
    """A proposed replacement of one problem's module."""

    __tablename__ = "candidates"

    problem_hash: Mapped[str] = mapped_column(ForeignKey("problems.hash"), primary_key=True)
    hash: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str]
    backend: Mapped[str]
    proposer: Mapped[str]
    directive: Mapped[str]
    template: Mapped[str]
    tunables: Mapped[dict[str, Any]]
    library_ops: Mapped[list[Any]]
    parents: Mapped[list[Any]]
    created_at: Mapped[datetime]

    __table_args__ = (Index("ix_candidates_hash", "hash"),)


class LineageRow(Base):
    """One edge from a candidate to a candidate that it was derived from. History is never deleted."""

    __tablename__ = "lineage"

    problem_hash: Mapped[str] = mapped_column(primary_key=True)
    child: Mapped[str] = mapped_column(primary_key=True)
    parent: Mapped[str] = mapped_column(primary_key=True)


class RunRow(Base):
    """One run: a problem, a device, its settings."""

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(primary_key=True)
    problem_hash: Mapped[str] = mapped_column(ForeignKey("problems.hash"))
    device: Mapped[str]
    settings: Mapped[dict[str, Any]]
    status: Mapped[str]
    """`running` (or killed while it ran) or `done`."""
    stop: Mapped[str]
    """Why the search ended."""
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]


class ProposalRow(Base):
    """Which candidate a run proposed where. The key makes proposing idempotent."""

    __tablename__ = "proposals"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    problem_hash: Mapped[str]
    candidate_hash: Mapped[str]

    __table_args__ = (
        ForeignKeyConstraint(["problem_hash", "candidate_hash"], ["candidates.problem_hash", "candidates.hash"]),
    )


class VerdictRow(Base):
    """What the referee found: once a run, candidate and stage."""

    __tablename__ = "verdicts"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    candidate_hash: Mapped[str] = mapped_column(primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    problem_hash: Mapped[str]
    status: Mapped[str] = mapped_column(index=True)
    message: Mapped[str]
    checks: Mapped[list[Any]]
    environment: Mapped[dict[str, Any]]
    compilation: Mapped[dict[str, Any] | None]
    seconds: Mapped[dict[str, Any]]
    key: Mapped[str]
    created_at: Mapped[datetime]

    __table_args__ = (
        ForeignKeyConstraint(["problem_hash", "candidate_hash"], ["candidates.problem_hash", "candidates.hash"]),
        Index("ix_verdicts_candidate_hash", "candidate_hash"),
    )


class MeasurementRow(Base):
    """Times that belong to a verdict: the figures that people sort by as columns, everything as JSON."""

    __tablename__ = "measurements"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    candidate_hash: Mapped[str] = mapped_column(primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    median_ms: Mapped[float]
    speedup_over_eager: Mapped[float | None]
    speedup_low: Mapped[float | None]
    speedup_high: Mapped[float | None]
    data: Mapped[dict[str, Any]]

    __table_args__ = (
        ForeignKeyConstraint(
            ["run_id", "candidate_hash", "stage"], ["verdicts.run_id", "verdicts.candidate_hash", "verdicts.stage"]
        ),
    )


class PrecheckRow(Base):
    """What was found out about a GPU candidate on a machine without a GPU: never a verdict, only a reason to go on."""

    __tablename__ = "prechecks"

    problem_hash: Mapped[str] = mapped_column(primary_key=True)
    candidate_hash: Mapped[str] = mapped_column(primary_key=True)
    passed: Mapped[bool]
    checks: Mapped[list[Any]]
    compilation: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]

    __table_args__ = (
        ForeignKeyConstraint(["problem_hash", "candidate_hash"], ["candidates.problem_hash", "candidates.hash"]),
    )


class BaselineRow(Base):
    """How fast the reference is by itself, once for each device, versions, precision and way to run it.

    No foreign key: a baseline may be timed of a problem that nobody has optimised.
    """

    __tablename__ = "baselines"

    problem_hash: Mapped[str] = mapped_column(primary_key=True)
    device_name: Mapped[str] = mapped_column(primary_key=True)
    driver: Mapped[str] = mapped_column(primary_key=True)
    torch: Mapped[str] = mapped_column(primary_key=True)
    triton: Mapped[str] = mapped_column(primary_key=True)
    precision: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    """`eager`, `compile` or `max-autotune`."""
    problem_name: Mapped[str]
    shape: Mapped[str | None]
    median_ms: Mapped[float]
    timing: Mapped[dict[str, Any]]
    over_eager: Mapped[dict[str, Any] | None]
    """Eager's time over this one's, with its interval; None for eager, and where eager was not timed beside it."""
    environment: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class CallRow(Base):
    """One call of a language model. It is there before the call is made, as `open` and at its worst cost: what a kill
    interrupted may have been billed, and counts as spent."""

    __tablename__ = "calls"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    generation: Mapped[int]
    slot: Mapped[int]
    attempt: Mapped[int]
    """As in `proposals`: 0 is the first try of a slot, what follows are repairs."""
    role: Mapped[str]
    """What the model was asked to be: `translate`, `propose` or `diagnose`."""
    model: Mapped[str]
    prompt: Mapped[str]
    """As it was sent, without what was dropped to fit the model's context."""
    reply: Mapped[str]
    outcome: Mapped[str]
    """`open`, `ok`, or why there is no reply."""
    message: Mapped[str]
    """The endpoint's own words where there is no reply."""
    tokens_in: Mapped[int]
    """Of the prompt; those that were read from the endpoint's cache are among them."""
    tokens_cached: Mapped[int]
    tokens_out: Mapped[int]
    estimated: Mapped[bool]
    """Whether the tokens are our estimate, since the endpoint did not count them."""
    cost_usd: Mapped[float | None]
    """None where the model has no known price."""
    seconds: Mapped[float]
    requests: Mapped[int]
    """HTTP requests that it took: more than one where the endpoint was busy or refused a parameter."""
    created_at: Mapped[datetime]
