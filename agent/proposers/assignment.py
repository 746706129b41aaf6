"""What each slot of a generation is to do, when a writer (a model, a person) and no template fills it.

First several translations of the module, side by side. Whatever fails is repaired, with its error before anything
else, a few times at most. What is correct is improved: the planner names a direction, by what limits the parent and by
what has paid; and two winners of different kinds are crossed. All of it follows from the history, so that a run which
was killed asks for the same again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernelwright.agent.llm.models import Role
from kernelwright.agent.proposers.base import Context, Trial
from kernelwright.stages.evolve import directives
from kernelwright.stages.evolve.member import Member
from kernelwright.stages.evolve.population import choose_pair, choose_parent, populate
from kernelwright.stages.types import Backend, Status

MOST_REPAIRS = 3
"""How often in a row the descendants of a candidate that failed are repaired."""
CROSSED_EVERY = 2
"""Generations between two crossovers."""
NOT_ITS_FAULT = (Status.ENV_ERROR, Status.UNGRADABLE, Status.UNKNOWN)


class Kind(StrEnum):
    """The prompts, each with a template of that name."""

    TRANSLATE = "translate"
    REPAIR = "repair"
    IMPROVE = "improve"
    CROSSOVER = "crossover"


ROLES = {
    Kind.TRANSLATE: Role.TRANSLATE,
    Kind.REPAIR: Role.TRANSLATE,
    Kind.IMPROVE: Role.PROPOSE,
    Kind.CROSSOVER: Role.PROPOSE,
}


@dataclass(frozen=True)
class Assignment:
    """What one slot is to do."""

    slot: int
    kind: Kind
    backend: Backend
    directive: str
    """`name: sentence` of a direction, or of what else it sets out to do."""
    parents: tuple[Trial, ...] = ()
    """The first is the file that edits are made in."""
    repairs: int = 0
    """How many repairs in a row came before this one."""

    @property
    def role(self) -> Role:
        """Whom to ask."""
        return ROLES[self.kind]


def plan(context: Context) -> list[Assignment]:
    """One assignment for each slot."""
    members = [
        Member(trial.candidate, trial.result, trial.generation, trial.slot)
        for trial in context.history
        if trial.generation >= 0
    ]
    population = populate(members)
    failed = _to_repair(context.history)
    has_winner = bool(population.elites)
    # Where something works already, at least half of the slots go on from there.
    repaired = failed[: max(1, context.slots // 2) if has_winner else context.slots]
    found = [_repair(slot, trial, context.history) for slot, trial in enumerate(repaired)]
    for slot in range(len(found), context.slots):
        if not has_winner:
            found.append(_translate(slot, context))
            continue
        last = slot == context.slots - 1
        pair = choose_pair(population, context.generation, slot, context.seed)
        if last and pair is not None and context.generation % CROSSED_EVERY == 0:
            found.append(_cross(slot, pair))
        else:
            parent = choose_parent(population, context.generation, slot, context.seed)
            assert parent is not None
            found.append(_improve(slot, parent, members, context))
    return found


def _to_repair(history: Sequence[Trial]) -> list[Trial]:
    """Written candidates that failed and have no descendant yet, the latest first."""
    followed = {parent for trial in history for parent in trial.candidate.parents}
    failed = [
        trial
        for trial in history
        if trial.result.verdict.status not in (Status.CORRECT, *NOT_ITS_FAULT)
        and not trial.candidate.template
        and trial.candidate.hash not in followed
        and _repairs_before(trial, history) < MOST_REPAIRS
    ]
    return failed[::-1]


def _repairs_before(trial: Trial, history: Sequence[Trial]) -> int:
    """Length of the chain of repairs that a candidate ends."""
    by_hash = {t.candidate.hash: t for t in history}
    count = 0
    current: Trial | None = trial
    while current is not None and current.candidate.directive.startswith(f"{Kind.REPAIR}:"):
        count += 1
        current = by_hash.get(current.candidate.parents[0]) if current.candidate.parents else None
    return count


def _repair(slot: int, trial: Trial, history: Sequence[Trial]) -> Assignment:
    directive = f"{Kind.REPAIR}: {trial.result.verdict.status.value}"
    return Assignment(
        slot, Kind.REPAIR, trial.candidate.backend, directive, (trial,), repairs=_repairs_before(trial, history)
    )


def _translate(slot: int, context: Context) -> Assignment:
    backends = (Backend.TRITON, Backend.CUDA) if context.device == "cuda" else (Backend.CPP,)
    backend = backends[slot % len(backends)]
    return Assignment(slot, Kind.TRANSLATE, backend, f"{Kind.TRANSLATE}: the whole module, in {backend.value}")


def _improve(slot: int, parent: Member, members: Sequence[Member], context: Context) -> Assignment:
    backend = parent.candidate.backend
    operators = [node.op for node in context.info.graph.nodes]
    place = f"{context.seed}/{context.generation}/{slot}"
    chosen = directives.choose(parent.bottleneck, backend, context.device, operators, members, place)
    trial = Trial(parent.candidate, parent.result, parent.generation, parent.slot)
    return Assignment(slot, Kind.IMPROVE, backend, f"{chosen.name}: {chosen.sentence}", (trial,))


def _cross(slot: int, pair: tuple[Member, Member]) -> Assignment:
    trials = tuple(Trial(m.candidate, m.result, m.generation, m.slot) for m in pair)
    directive = f"{Kind.CROSSOVER}: take what makes each of the two fast"
    return Assignment(slot, Kind.CROSSOVER, pair[0].candidate.backend, directive, trials)
