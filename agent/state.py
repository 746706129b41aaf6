"""The graph's state, and what its nodes work with.

The state holds ids and counters only; candidates, verdicts and times are in the database, from which the state could be
rebuilt. It is a plain dict of strings and numbers, since that is what every checkpointer can store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from kernelwright.agent.ledger import Ledger
from kernelwright.agent.proposers.base import Proposer
from kernelwright.agent.settings import RunSettings
from kernelwright.agent.ui.events import Observer
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.job import Executor
from kernelwright.stages.translate.graph import OpInfo


class RunState(TypedDict):
    """One run between two steps."""

    run: str
    generation: int
    """The generation that is proposed next or now."""
    stale: int
    """Generations in a row that brought no faster candidate."""
    elapsed_s: float
    """Wall time of the finished steps, over all processes that worked on the run."""
    stop: str
    """Why the search ended, empty while it goes on."""


@dataclass(frozen=True)
class Services:
    """What the nodes use. Made anew in each process; nothing of it is checkpointed."""

    problem: Problem
    info: OpInfo
    settings: RunSettings
    ledger: Ledger
    executor: Executor
    proposer: Proposer
    observe: Observer
