"""Candidates that somebody hands in to a run, beside those that its search proposes."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.archive.database import writing
from kernelwright.stages.archive.models import ProposalRow, RunRow
from kernelwright.stages.archive.reads import Place
from kernelwright.stages.archive.store import Archive, add_candidates
from kernelwright.stages.types import Candidate

OUTSIDE = -1
"""The generation of what was handed in. A search numbers its own from 0, so that neither takes the other's place."""


def add_submission(archive: Archive, run: str, candidate: Candidate) -> Place:
    """Give a candidate the next free place among those handed in to a run; one that the run knows keeps its own.

    Raises UsageError when there is no such run.
    """
    with Session(writing(archive.engine)) as session, session.begin():
        # The lock on the run's row is for databases where another transaction may count the slots at the same time.
        row = session.get(RunRow, run, with_for_update=True)
        if row is None:
            raise UsageError(f"no run {run} in this archive")
        known = session.scalar(
            select(ProposalRow)
            .where(ProposalRow.run_id == run, ProposalRow.candidate_hash == candidate.hash)
            .order_by(ProposalRow.generation, ProposalRow.slot, ProposalRow.attempt)
        )
        if known is not None:
            return Place(run, known.generation, known.slot, known.attempt)
        outside = (ProposalRow.run_id == run) & (ProposalRow.generation == OUTSIDE)
        slot = session.scalars(select(func.coalesce(func.max(ProposalRow.slot) + 1, 0)).where(outside)).one()
        add_candidates(session.connection(), row.problem_hash, [candidate])
        session.add(
            ProposalRow(
                run_id=run,
                generation=OUTSIDE,
                slot=slot,
                attempt=0,
                problem_hash=row.problem_hash,
                candidate_hash=candidate.hash,
            )
        )
        return Place(run, OUTSIDE, slot, 0)
