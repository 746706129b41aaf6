"""Several proposers that share the slots of a generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelwright.agent.proposers.base import Context, Proposer
from kernelwright.stages.types import Candidate


class MixedProposer:
    """Each gets its share of the slots, and what the ones before it did not fill; each sees all that was tried."""

    def __init__(self, proposers: Sequence[Proposer]) -> None:
        self.proposers = proposers
        self.name = ",".join(p.name for p in proposers)

    def propose(self, context: Context) -> list[Candidate]:
        """As `Proposer.propose`."""
        found: dict[str, Candidate] = {}
        for number, proposer in enumerate(self.proposers):
            left = len(self.proposers) - number
            slots = -(-(context.slots - len(found)) // left)
            if slots > 0:
                for candidate in proposer.propose(replace(context, slots=slots)):
                    found.setdefault(candidate.hash, candidate)
        return list(found.values())
