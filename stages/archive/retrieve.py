"""Winners of other searches that may help with a problem, each with the reason why it was retrieved.

Problems are compared by structure: the operators, then dtype and shape class. Text adds what structure cannot see, by
SQLite's full-text index (other databases have none): a kernel for attention that speaks of softmax, or one written for
the technique that a planner asks for. What is retrieved was measured then and there; it is for the caller to have it
verified here and now before relying on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select, text
from sqlalchemy.orm import Session

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive.migrations import TEXT_INDEX
from kernelwright.stages.archive.models import CONFIRM, CandidateRow, MeasurementRow, ProblemRow, RunRow, VerdictRow
from kernelwright.stages.archive.reads import AnyRow, counts, measured_by
from kernelwright.stages.archive.store import Archive, Described, candidate_of
from kernelwright.stages.measure.stats import MEANINGFUL
from kernelwright.stages.translate.graph import OpInfo
from kernelwright.stages.translate.likeness import Traits, likeness
from kernelwright.stages.types import Backend, Candidate, Environment, Ratio, Status

EVERYWHERE = frozenset(
    {"abs", "add", "amax", "amin", "div", "exp", "log", "max", "mean", "min", "mul", "neg", "pow", "sigmoid", "sqrt"}
    | {"sub", "sum"}
)
"""Operators whose names nearly every kernel's text has: finding one of them says nothing."""
NAMED = 4
"""Operators that a reason names at most."""


@dataclass(frozen=True)
class Hit:
    """A winner, and why it is one for this problem."""

    candidate: Candidate
    problem_hash: str
    problem: str
    """Name of the problem that it won."""
    shape: str | None
    speedup: Ratio
    """Over eager, when it was measured."""
    device_name: str
    confirmed: bool
    """Whether it was measured again on fresh inputs."""
    reason: str
    """One sentence, for a prompt."""


def retrieve(
    archive: Archive,
    problem: Problem,
    info: OpInfo | Described,
    where: Environment,
    *,
    backend: Backend | None = None,
    words: str = "",
    limit: int = 3,
) -> list[Hit]:
    """The winners nearest to a problem, nearest first: at most one for each problem and back end.

    A winner was found correct and its gain over eager is real (the interval lies above 1.02), on a device of the kind
    of `where`. The order is: the problem's own, the same signature, the share of common operators, dtype, shape class,
    the same device, how well the text matches, the speedup; then the hash, so that it is the same every time. Winners
    that have no operator in common are retrieved only when their text has a telling operator's name or one of `words`.
    """
    wanted = Traits(info.signature, info.functional)
    terms = _terms(wanted, words)
    with Session(archive.engine) as session:
        traits = {hash: Traits(*rest) for hash, *rest in session.execute(_problems_with_winners(where, backend))}
        ranks = _text_ranks(session, terms)
        found = [
            _Found(row, _Likeness.of(wanted, traits[row.problem_hash], row.problem_hash == problem.hash), text_rank)
            for row in session.execute(_best_winners(where, backend))
            if (text_rank := ranks.get((row.problem_hash, row.hash), 0.0)) < 0
            or likeness(wanted, traits[row.problem_hash]) > 0
            or row.problem_hash == problem.hash
        ]
        found.sort(key=lambda f: f.key(where.device_name))
        return [_hit(session, f, terms) for f in found[:limit]]


@dataclass(frozen=True)
class _Likeness:
    """What a retrieved winner's problem has in common with the one at hand."""

    own: bool
    same_signature: bool
    share: float
    """Common operator calls over all of both."""
    same_dtype: bool
    same_shape: bool
    shared: tuple[str, ...]
    """Common operators, sorted."""

    @classmethod
    def of(cls, wanted: Traits, other: Traits, own: bool) -> _Likeness:
        return cls(
            own=own,
            same_signature=wanted.signature == other.signature,
            share=likeness(wanted, other),
            same_dtype=wanted.dtype == other.dtype,
            same_shape=wanted.shape == other.shape,
            shared=tuple(sorted(wanted.operators & other.operators)),
        )

    def reason(self, said: Sequence[str]) -> str:
        """The first clause of a sentence; `said` are the words looked for that the winner's text has."""
        if self.own:
            return "this problem's own winner"
        if self.same_signature:
            return "the same operators, dtypes and shape classes"
        if not self.shared:
            return f"no operator in common, but its text speaks of {', '.join(said) or 'what was looked for'}"
        differing = [name for name, same in (("dtype", self.same_dtype), ("shape", self.same_shape)) if not same]
        named = ", ".join(self.shared[:NAMED]) + (" and more" if len(self.shared) > NAMED else "")
        common = (
            f"the same operators ({named})" if self.share == 1.0 else f"{self.share:.0%} of the operators ({named})"
        )
        return f"{common} with another {' and '.join(differing)}" if differing else f"{common}, dtype and shape class"


@dataclass(frozen=True)
class _Found:
    row: AnyRow
    likeness: _Likeness
    text_rank: float
    """FTS5's bm25: the more negative, the better; 0 for no match."""

    def key(self, device_name: str) -> tuple[Any, ...]:
        """Sorts the nearest first."""
        return (
            not self.likeness.own,
            not self.likeness.same_signature,
            -self.likeness.share,
            not self.likeness.same_dtype,
            not self.likeness.same_shape,
            self.row.device_name != device_name,
            self.text_rank,
            -self.row.speedup_over_eager,
            self.row.hash,
            self.row.problem_hash,
        )


def _hit(session: Session, found: _Found, terms: Sequence[str]) -> Hit:
    row = found.row
    speedup = Ratio(row.speedup_over_eager, row.speedup_low, row.speedup_high)
    candidate = candidate_of(session.get_one(CandidateRow, (row.problem_hash, row.hash)))
    said = f"{candidate.directive} {candidate.source}".lower()
    confirmed = row.stage == CONFIRM
    measured = f"{speedup.median:.2f}x [{speedup.low:.2f}, {speedup.high:.2f}] over eager on {row.device_name}"
    again = "measured again on fresh inputs" if confirmed else "in a search, not measured again"
    return Hit(
        candidate=candidate,
        problem_hash=row.problem_hash,
        problem=row.name,
        shape=row.shape,
        speedup=speedup,
        device_name=row.device_name,
        confirmed=confirmed,
        reason=f"{row.name}: {found.likeness.reason([t for t in terms if t in said])}; {measured}, {again}.",
    )


def _problems_with_winners(where: Environment, backend: Backend | None) -> Select[str, str, str]:
    won = _winners(where, backend).with_only_columns(VerdictRow.problem_hash)
    return select(ProblemRow.hash, ProblemRow.signature, ProblemRow.functional).where(ProblemRow.hash.in_(won))


def _best_winners(where: Environment, backend: Backend | None) -> Select[*tuple[Any, ...]]:
    """One row for each problem and back end: measured here rather than elsewhere, confirmed, then the fastest."""
    winners = _winners(where, backend).subquery()
    return select(winners).where(winners.c.place == 1)


def _winners(where: Environment, backend: Backend | None) -> Select[*tuple[Any, ...]]:
    device_name = VerdictRow.environment["device_name"].as_string()
    place = func.row_number().over(
        partition_by=(VerdictRow.problem_hash, CandidateRow.backend),
        order_by=(
            case((device_name == where.device_name, 0), else_=1),
            case((VerdictRow.stage == CONFIRM, 0), else_=1),
            MeasurementRow.speedup_over_eager.desc(),
            CandidateRow.hash,
        ),
    )
    return (
        select(
            CandidateRow.hash,
            VerdictRow.problem_hash,
            ProblemRow.name,
            ProblemRow.shape,
            VerdictRow.stage,
            MeasurementRow.speedup_over_eager,
            MeasurementRow.speedup_low,
            MeasurementRow.speedup_high,
            device_name.label("device_name"),
            place.label("place"),
        )
        .select_from(VerdictRow)
        .join(
            CandidateRow,
            (CandidateRow.problem_hash == VerdictRow.problem_hash) & (CandidateRow.hash == VerdictRow.candidate_hash),
        )
        .join(ProblemRow, ProblemRow.hash == VerdictRow.problem_hash)
        .join(RunRow, RunRow.id == VerdictRow.run_id)
        .join(MeasurementRow, measured_by(VerdictRow))
        .where(*_wins(), RunRow.device == where.device)
        .where(*([CandidateRow.backend == backend.value] if backend else []))
    )


def _wins() -> tuple[ColumnElement[bool], ...]:
    return (
        counts(),
        VerdictRow.status == Status.CORRECT.value,
        MeasurementRow.speedup_low > MEANINGFUL,
        MeasurementRow.data["screened_out"].as_boolean().is_(False),
    )


def _terms(wanted: Traits, words: str) -> list[str]:
    """What to look for in texts: operators whose names mean something, and the caller's words; sorted."""
    return sorted({*(wanted.operators.keys() - EVERYWHERE), *re.findall(r"\w+", words.lower())})


def _text_ranks(session: Session, terms: Sequence[str]) -> Mapping[tuple[str, str], float]:
    """FTS5's bm25 by (problem, candidate); a word in the directive counts four times as much as one in the source."""
    if not terms or session.get_bind().dialect.name != "sqlite":
        return {}
    query = text(
        f"SELECT problem_hash, hash, bm25({TEXT_INDEX}, 0, 0, 4.0, 1.0) AS rank FROM {TEXT_INDEX} "
        f"WHERE {TEXT_INDEX} MATCH :match"
    )
    match = " OR ".join(f'"{term}"' for term in terms)
    found = session.execute(query, {"match": match})
    return {(problem_hash, hash): rank for problem_hash, hash, rank in found}
