"""A run's proposals and results: read from the archive once, written through to it, and asked again and again.

Every step of the loop needs the run's history. Reading all of it from the database each time would cost more than all
the rest of the loop; this copy lives as long as the process, and a resumed run reads it anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agent.proposers.base import Trial
from kernelwright.stages.archive import CONFIRM, SEARCH, Archive
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.types import Candidate


class Ledger:
    """The archive's rows of one run, in the order of proposal."""

    def __init__(self, archive: Archive, run: str) -> None:
        self.archive = archive
        self.run = run
        self.generations: dict[int, list[Candidate]] = {}
        for generation, candidate in archive.proposals(run):
            self.generations.setdefault(generation, []).append(candidate)
        self.results = {r.candidate.hash: r.result for r in archive.results_of(run, SEARCH)}
        self.confirmations = {r.candidate.hash: r.result for r in archive.results_of(run, CONFIRM)}

    def propose(self, generation: int, candidates: Sequence[Candidate]) -> None:
        """Commit a generation."""
        self.archive.add_proposals(self.run, generation, candidates)
        self.generations[generation] = list(candidates)

    def record(self, result: JobResult) -> None:
        """Commit a result of the search."""
        self.archive.add_result(self.run, result)
        self.results[result.candidate_hash] = result

    def confirm(self, result: JobResult) -> None:
        """Commit a second measurement."""
        self.archive.add_result(self.run, result, CONFIRM)
        self.confirmations[result.candidate_hash] = result

    def pending(self, generation: int) -> list[Candidate]:
        """Those of a generation that have no verdict yet."""
        return [c for c in self.generations.get(generation, []) if c.hash not in self.results]

    def trials(self, until: int | None = None) -> list[Trial]:
        """Every judged candidate, of the generations before `until` where that is given."""
        return [
            Trial(candidate, self.results[candidate.hash], generation, slot)
            for generation, candidates in sorted(self.generations.items())
            for slot, candidate in enumerate(candidates)
            if candidate.hash in self.results and (until is None or generation < until)
        ]
