"""Who may have children: islands, each a MAP-Elites grid, rebuilt from the whole history each time.

A cell keeps its fastest member (Mouret and Clune, Illuminating search spaces by mapping elites, arXiv:1504.04909), so
a slow way that limits itself elsewhere is not crowded out by the fastest one. Nothing is ever deleted: a member that
holds no cell is still in the history from which the next population is built.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from kernelwright.stages.evolve.member import Member
from kernelwright.stages.types import Backend

ISLANDS = 4
MIGRATE_EVERY = 4
"""Generations between two migrations."""
TEMPERATURE = 0.5
"""Of the softmax over log speedups: a parent's chance grows as speedup ** (1 / TEMPERATURE)."""
TUNING = "tuning"
"""The directive of a child that only has other parameters: it competes in its parent's cell, for it is no new way."""
FREE = "free"
"""The technique of what names none."""


@dataclass(frozen=True)
class Cell:
    """What sets two members apart so far that both are kept."""

    backend: Backend
    bottleneck: str
    technique: str

    def differs(self, other: Cell) -> int:
        """In how many of the three."""
        return (
            (self.backend is not other.backend)
            + (self.bottleneck != other.bottleneck)
            + (self.technique != other.technique)
        )


@dataclass(frozen=True)
class Population:
    """The elites of each island, by cell."""

    islands: tuple[Mapping[Cell, Member], ...]

    @property
    def elites(self) -> dict[Cell, Member]:
        """The fastest member of each cell over all islands."""
        found: dict[Cell, Member] = {}
        for island in self.islands:
            for cell, member in island.items():
                _settle(found, cell, member)
        return found


def populate(members: Sequence[Member], islands: int = ISLANDS, migrate_every: int = MIGRATE_EVERY) -> Population:
    """Replay the history: slot `s` of a generation belongs to island `s % islands`.

    After every `migrate_every` generations the fastest of each island settles on the next one as well.
    """
    found: list[dict[Cell, Member]] = [{} for _ in range(islands)]
    techniques: dict[str, str] = {}
    moved = 0
    in_order = sorted(members, key=lambda m: (m.generation, m.slot))
    for generation, born in groupby(in_order, key=lambda m: m.generation):
        for member in born:
            techniques[member.hash] = technique = _technique(member, techniques)
            if member.fitness is not None:
                cell = Cell(member.candidate.backend, member.bottleneck, technique)
                _settle(found[member.slot % islands], cell, member)
        due = (generation + 1) // migrate_every
        for _ in range(moved, due):
            _migrate(found)
        moved = due
    return Population(tuple(found))


def choose_parent(population: Population, generation: int, slot: int, seed: int) -> Member | None:
    """The parent for a slot: one of its island's elites, the faster the likelier.

    From all islands while its own has none; None where nobody has.
    """
    home = population.islands[slot % len(population.islands)]
    elites = list((home or population.elites).values())
    return _draw(elites, _weight, _random("parent", generation, slot, seed))


def choose_pair(population: Population, generation: int, slot: int, seed: int) -> tuple[Member, Member] | None:
    """Two winners that complement each other, for crossover: of different cells. None where all share one.

    The first is chosen as a parent is. The second comes from any island: of the same back end where there is one, for
    code of two back ends seldom joins; no parent or child of the first where there is another; and it is the likelier
    the faster it is and the more its cell differs.
    """
    first = choose_parent(population, generation, slot, seed)
    if first is None:
        return None
    cells = {m.hash: cell for island in population.islands for cell, m in island.items()}
    own = cells[first.hash]
    others = [member for cell, member in population.elites.items() if cell != own]
    others = _where_possible(others, lambda m: m.candidate.backend is first.candidate.backend)
    others = _where_possible(others, lambda m: not _related(m, first))
    draw = _random("pair", generation, slot, seed)
    second = _draw(others, lambda m: _weight(m) * own.differs(cells[m.hash]), draw)
    return None if second is None else (first, second)


def _technique(member: Member, known: Mapping[str, str]) -> str:
    if member.directive == TUNING:
        return next((known[h] for h in member.candidate.parents if h in known), FREE)
    return member.directive or member.candidate.template or FREE


def _settle(island: dict[Cell, Member], cell: Cell, member: Member) -> None:
    """Put a member into its cell if it is faster than who is there."""
    there = island.get(cell)
    if there is None or _weight(member) > _weight(there):
        island[cell] = member


def _migrate(islands: list[dict[Cell, Member]]) -> None:
    # All leaders are named before any settles: a newcomer may take the cell of the next island's own.
    leaders = [max(island.items(), key=lambda held: _weight(held[1]), default=None) for island in islands]
    for at, leader in enumerate(leaders):
        if leader is not None:
            _settle(islands[(at + 1) % len(islands)], *leader)


def _weight(member: Member) -> float:
    assert member.fitness is not None
    weight: float = member.fitness ** (1.0 / TEMPERATURE)
    return weight


def _draw(members: Sequence[Member], weight: Callable[[Member], float], draw: random.Random) -> Member | None:
    if not members:
        return None
    return draw.choices(members, [weight(m) for m in members])[0]


def _where_possible(members: list[Member], wanted: Callable[[Member], bool]) -> list[Member]:
    return [m for m in members if wanted(m)] or members


def _related(one: Member, other: Member) -> bool:
    return one.hash in other.candidate.parents or other.hash in one.candidate.parents


def _random(*parts: object) -> random.Random:
    return random.Random("/".join(str(p) for p in parts))
