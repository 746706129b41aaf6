"""Calls of language models: what was asked, what came back, what it cost.

A call is stored twice: by `begin` before it is made, at its worst cost, and by `finish` when its outcome is known. So a
kill in between leaves a row that counts as spent, and no reply is read before it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from kernelwright.stages.archive.database import writing
from kernelwright.stages.archive.models import CallRow
from kernelwright.stages.archive.store import Archive

OPEN, OK = "open", "ok"
"""Outcomes of a call that is under way or was killed, and of one that has its reply. All others say what failed."""


@dataclass(frozen=True)
class Place:
    """What a call was for: a slot of a generation, and which try of it. Tries after the first are repairs."""

    run: str
    generation: int
    slot: int
    attempt: int = 0


@dataclass(frozen=True)
class Usage:
    """Tokens of a call. `tokens_cached` of `tokens_in` came from the endpoint's cache."""

    tokens_in: int
    tokens_cached: int
    tokens_out: int
    estimated: bool = False
    """Whether we estimated them, since the endpoint did not count."""


@dataclass(frozen=True)
class Call:
    """A stored call."""

    id: int
    place: Place
    role: str
    model: str
    prompt: str
    reply: str
    outcome: str
    message: str
    usage: Usage
    cost_usd: float | None
    """None where the model has no known price."""
    seconds: float
    requests: int
    """HTTP requests that it took."""
    created_at: datetime


@dataclass(frozen=True)
class Spending:
    """What a run's calls have used, those under way or killed at their worst."""

    calls: int
    tokens: int
    """In and out."""
    cost_usd: float
    """Of those calls whose price is known."""


def begin(
    archive: Archive, place: Place, role: str, model: str, prompt: str, worst: Usage, cost_usd: float | None
) -> int:
    """Store a call that is about to be made, with the most that it may use. Returns its id for `finish`."""
    with Session(writing(archive.engine)) as session, session.begin():
        row = CallRow(
            run_id=place.run,
            generation=place.generation,
            slot=place.slot,
            attempt=place.attempt,
            role=role,
            model=model,
            prompt=prompt,
            reply="",
            outcome=OPEN,
            message="",
            tokens_in=worst.tokens_in,
            tokens_cached=worst.tokens_cached,
            tokens_out=worst.tokens_out,
            estimated=worst.estimated,
            cost_usd=cost_usd,
            seconds=0.0,
            requests=0,
            created_at=datetime.now(UTC),
        )
        session.add(row)
        session.flush()
        return row.id


def finish(
    archive: Archive,
    call: int,
    *,
    prompt: str,
    reply: str,
    outcome: str,
    message: str,
    usage: Usage,
    cost_usd: float | None,
    seconds: float,
    requests: int,
) -> None:
    """Store what came of a call: `prompt` as it was sent in the end, `outcome` OK or what failed."""
    values = {
        "prompt": prompt,
        "reply": reply,
        "outcome": outcome,
        "message": message,
        "tokens_in": usage.tokens_in,
        "tokens_cached": usage.tokens_cached,
        "tokens_out": usage.tokens_out,
        "estimated": usage.estimated,
        "cost_usd": cost_usd,
        "seconds": seconds,
        "requests": requests,
    }
    with writing(archive.engine).begin() as connection:
        connection.execute(update(CallRow).where(CallRow.id == call).values(values))


def calls_of_run(archive: Archive, run: str) -> list[Call]:
    """Every call of a run, in the order in which they were begun."""
    with Session(archive.engine) as session:
        return [
            _call(row) for row in session.scalars(select(CallRow).where(CallRow.run_id == run).order_by(CallRow.id))
        ]


def answered(archive: Archive, place: Place, role: str) -> Call | None:
    """The call that got its reply for this place, if a process that is gone has made it already."""
    query = (
        select(CallRow)
        .where(
            CallRow.run_id == place.run,
            CallRow.generation == place.generation,
            CallRow.slot == place.slot,
            CallRow.attempt == place.attempt,
            CallRow.role == role,
            CallRow.outcome == OK,
        )
        .order_by(CallRow.id)
        .limit(1)
    )
    with Session(archive.engine) as session:
        row = session.scalars(query).first()
        return None if row is None else _call(row)


def spending_of(archive: Archive, run: str) -> Spending:
    """What the calls of a run have used so far: where a resumed run goes on counting."""
    tokens = func.coalesce(func.sum(CallRow.tokens_in + CallRow.tokens_out), 0)
    cost = func.sum(CallRow.cost_usd)
    with archive.engine.connect() as connection:
        row = connection.execute(select(func.count(), tokens, cost).where(CallRow.run_id == run)).one()
    return Spending(int(row[0]), int(row[1]), float(row[2] or 0.0))


def _call(row: CallRow) -> Call:
    return Call(
        row.id,
        Place(row.run_id, row.generation, row.slot, row.attempt),
        row.role,
        row.model,
        row.prompt,
        row.reply,
        row.outcome,
        row.message,
        Usage(row.tokens_in, row.tokens_cached, row.tokens_out, row.estimated),
        row.cost_usd,
        row.seconds,
        row.requests,
        row.created_at.replace(tzinfo=UTC) if row.created_at.tzinfo is None else row.created_at.astimezone(UTC),
    )
