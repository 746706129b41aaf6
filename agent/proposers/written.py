"""Candidates that somebody writes who is asked by a prompt: a model, a person, a coding agent.

plan -> prompt -> reply -> file. A reply that is no file, or whose edits do not fit, is asked for again with what was
wrong with it; what was written before is not measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernelwright.agent.llm.edits import Applied, apply
from kernelwright.agent.llm.models import Role
from kernelwright.agent.llm.replies import Edits, Unreadable, WholeFile, read
from kernelwright.agent.prompts import render
from kernelwright.agent.proposers.assignment import Assignment, Kind, plan
from kernelwright.agent.proposers.base import Context
from kernelwright.agent.proposers.briefing import facts
from kernelwright.agent.proposers.source import Question, Source
from kernelwright.stages.archive.calls import Place
from kernelwright.stages.archive.retrieve import Hit
from kernelwright.stages.types import Candidate
from kernelwright.stages.verify.source_form import read_form

ATTEMPTS = 3
"""How often a slot is asked: the first time, and again where the reply cannot be used."""
DIAGNOSED_FROM = 1
"""Repairs in a row that have failed before somebody is asked for the cause alone."""

Retrieve = Callable[[Context], Sequence[Hit]]


@dataclass
class _Slot:
    """An assignment on its way to a candidate."""

    assignment: Assignment
    diagnosis: str = ""
    again: str = ""
    """What was wrong with the last reply."""
    source: str | None = None
    over: bool = False


@dataclass
class WrittenProposer:
    """Asks a source for what the plan says."""

    source: Source
    run: str
    retrieve: Retrieve
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.source.name

    def propose(self, context: Context) -> list[Candidate]:
        """As `Proposer.propose`. Raises what the source raises."""
        slots = [_Slot(assignment) for assignment in plan(context)]
        retrieved = self.retrieve(context)
        self._diagnose(context, slots, retrieved)
        for attempt in range(ATTEMPTS):
            asked = [slot for slot in slots if not slot.over]
            questions = [self._question(context, slot, attempt, retrieved) for slot in asked]
            for slot, reply in zip(asked, self.source.replies(questions) if questions else [], strict=True):
                _take(slot, reply)
        return _new(context, [self._candidate(slot) for slot in slots if slot.source is not None])

    def _diagnose(self, context: Context, slots: Sequence[_Slot], retrieved: Sequence[Hit]) -> None:
        stuck = [s for s in slots if s.assignment.kind is Kind.REPAIR and s.assignment.repairs >= DIAGNOSED_FROM]
        questions = [
            Question(
                Place(self.run, context.generation, slot.assignment.slot),
                Role.DIAGNOSE,
                render("diagnose", **facts(context, slot.assignment, retrieved)),
            )
            for slot in stuck
        ]
        for slot, reply in zip(stuck, self.source.replies(questions) if questions else [], strict=True):
            slot.diagnosis = reply or ""

    def _question(self, context: Context, slot: _Slot, attempt: int, retrieved: Sequence[Hit]) -> Question:
        given = facts(context, slot.assignment, retrieved, diagnosis=slot.diagnosis, again=slot.again)
        place = Place(self.run, context.generation, slot.assignment.slot, attempt)
        return Question(place, slot.assignment.role, render(slot.assignment.kind.value, **given))

    def _candidate(self, slot: _Slot) -> Candidate:
        assert slot.source is not None
        assignment = slot.assignment
        return Candidate(
            slot.source,
            read_form(slot.source).backend,
            proposer=self.name,
            directive=assignment.directive,
            parents=tuple(parent.candidate.hash for parent in assignment.parents),
        )


def _take(slot: _Slot, reply: str | None) -> None:
    """A reply's file; else what to say when the slot is asked again."""
    if reply is None:
        slot.over = True
        return
    found = read(reply)
    if isinstance(found, Unreadable):
        slot.again = found.reason
    elif isinstance(found, WholeFile):
        slot.source, slot.over = found.source, True
        if not found.closed:
            slot.source, slot.over = None, False
            slot.again = "the file was cut off before its end: answer with less text around it"
    elif isinstance(found, Edits):
        parent = slot.assignment.parents[0].candidate.source if slot.assignment.parents else ""
        applied = apply(parent, found.edits)
        if isinstance(applied, Applied):
            slot.source, slot.over = applied.source, True
        else:
            slot.again = applied.message


def _new(context: Context, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Without those that were tried, and each once."""
    seen = {trial.candidate.hash for trial in context.history}
    found = []
    for candidate in candidates:
        if candidate.hash not in seen:
            seen.add(candidate.hash)
            found.append(candidate)
    return found
