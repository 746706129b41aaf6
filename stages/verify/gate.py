"""The gate: a loaded candidate is called on every case, and its bytes are compared with the oracle's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.stages.sandbox import stream, tree
from kernelwright.stages.sandbox.arena import Arena
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed
from kernelwright.stages.types import Check, Status, Verdict
from kernelwright.stages.verify.cases import Case
from kernelwright.stages.verify.oracle import Expected
from kernelwright.stages.verify.tolerance import compare

STATUS_OF = {
    "compile_error": Status.COMPILE_ERROR,
    "incorrect": Status.INCORRECT,
    "oom": Status.OOM,
    "hang": Status.HANG,
}
"""What a runner's failure means; everything else that it may say is a crash."""
LEAST_CALLS = 16
"""Compared calls at least: what goes wrong at every seventh, or after the eleventh, must show."""
LATE_CYCLES = 20_000_000
"""Some ten milliseconds on a GPU: enough for any module to have put its work in order."""
SAME_SLOT = 0.5
"""How often a case is written over the one before it, in the same buffers; otherwise into others."""


def verdict_of(failure: RunnerFailed, checks: Sequence[Check] = ()) -> Verdict:
    """The verdict for a runner that refused, raised, died or hung."""
    return Verdict(STATUS_OF.get(failure.kind, Status.CRASH), failure.message, tuple(checks))


def verdict_from(checks: Sequence[Check]) -> Verdict:
    """`correct` when every check passed, else what the first failed one refutes."""
    failed = next((c for c in checks if not c.passed), None)
    if failed is None:
        return Verdict(Status.CORRECT, "", tuple(checks))
    return Verdict(failed.refutes, explain(failed), tuple(checks))


@dataclass
class Gate:
    """One candidate before the cases. `arenas` are by the cases' layout; the runner is connected to each."""

    runner: Runner
    arenas: Mapping[str, Arena]
    timeout_s: float
    random: random.Random
    checks: list[Check] = field(default_factory=list)
    """What was found so far; kept when the runner fails."""
    _held: dict[int, tuple[Case, Expected]] = field(default_factory=dict)
    """What each slot holds: only calls on the present state can be compared."""
    _last_slot: dict[str, int] = field(default_factory=dict)
    _state: Mapping[str, torch.Tensor] | None = None
    _paired: bool = False

    def try_all(self, cases: Sequence[tuple[Case, Expected]]) -> None:
        """Call the module on each case and judge every output. The first failed check ends it. Raises RunnerFailed."""
        for case, expected in itertools.islice(itertools.cycle(cases), max(len(cases), LEAST_CALLS)):
            found = self._try(case, expected) if not case.layout else self._try_variant(case, expected)
            self.checks += found
            if any(not c.passed for c in found):
                return
        self._try_a_pair(cases)
        broken = sum(
            block.guards_broken() for block in {a.block.number: a.block for a in self.arenas.values()}.values()
        )
        detail = f"{broken} bytes were written outside of every tensor" if broken else ""
        self.checks.append(Check("memory around the inputs untouched", broken == 0, broken, 0, detail))

    def _try_variant(self, case: Case, expected: Expected) -> list[Check]:
        """Arguments of another layout or shape than the task's own: right, or refused by an exception of its own."""
        try:
            return self._try(case, expected)
        except RunnerFailed as failure:
            if failure.kind != "crash" or not self.runner.alive:
                raise
            reason = failure.message.split("\n", 1)[0]
            return [Check(f"{case.label}: refused by the candidate", passed=True, detail=reason)]

    def _try_a_pair(self, cases: Sequence[tuple[Case, Expected]]) -> None:
        """Two cases under one state in one region, unless chance has brought that about."""
        pair = next((pair for pair in itertools.pairwise(cases) if _can_stand_together(*pair)), None)
        if self._paired or pair is None:
            return
        for case, expected in pair:
            self.checks += self._try(case, expected, elsewhere=True)

    def _try(self, case: Case, expected: Expected, *, elsewhere: bool = False) -> list[Check]:
        arena = self.arenas[case.layout]
        slot = self._choose_slot(case, arena, elsewhere)
        if not _same_state(case.state, self._state):
            self._state = case.state
            self._held.clear()
            arena.write_state(case)
            arena.load_state(self.runner, self.timeout_s)
        arena.write_slot(slot, case)
        self._held[slot] = case, expected
        companion = self._choose_companion(slot, arena, expected)
        slots = [slot] if companion is None else [companion, slot]
        stream.region(self.runner, slots, self.timeout_s, self.random, restore=True)
        found = judge(self.runner, arena, expected, self.timeout_s, case.label)
        if companion is not None:
            self._paired = True
            other_case, other = self._held[companion]
            # Still right although another call came after it: its buffer was not used again.
            label = f"{other_case.label}, held over the next call"
            found += judge(self.runner, arena, other, self.timeout_s, label, back=2)
        found.append(_inputs_kept(arena, slot, expected, case.label))
        found += state_checks(arena.fetch_state(self.runner, self.timeout_s), case, expected)
        if expected.in_place:
            del self._held[slot]
        return found

    def try_late(self, cases: Sequence[tuple[Case, Expected]], start: torch.cuda.Event) -> None:
        """On CUDA: call the module before its inputs are there, and copy its output on its own stream right away.

        A module whose every kernel is ordered by the stream that it was called on gives the right answer. One that
        works on another stream reads too early, or is copied too early. `start` is what the runner's stream waits for.
        """
        arena = self.arenas[""]
        for case, expected in cases:
            if not _same_state(case.state, self._state):
                self._state = case.state
                arena.write_state(case)
                arena.load_state(self.runner, self.timeout_s)
            slot = next(iter(arena.slots))
            stream.begin(self.runner, self.timeout_s, restore=True)
            arena.poison_outputs()
            arena.poison_slot(slot)
            torch.cuda._sleep(LATE_CYCLES)
            arena.begin_writing(slot, case)
            start.record()
            stream.call(self.runner, [[slot]], self.timeout_s)
            label = f"{case.label}, inputs late"
            form = _form(self.runner.ask("describe", self.timeout_s, back=1), expected, arena.device, label)
            self.checks.append(form)
            if not form.passed:
                return
            outputs = arena.collect(self.runner, self.timeout_s)
            self.checks += _values(label, outputs, expected)
        self._held.clear()

    def _choose_slot(self, case: Case, arena: Arena, elsewhere: bool) -> int:
        last = self._last_slot.get(case.layout)
        if last is None or elsewhere or (case.follows is None and self.random.random() >= SAME_SLOT):
            last = self.random.choice([s for s in arena.slots if s != last or len(arena.slots) == 1])
        self._last_slot[case.layout] = last
        return last

    def _choose_companion(self, slot: int, arena: Arena, expected: Expected) -> int | None:
        """Another slot whose answer is known under the present state, to be called in the same region."""
        if expected.in_place or expected.changes_state:
            return None
        known = [s for s in arena.slots if s != slot and s in self._held]
        return self.random.choice(known) if known else None


def _same_state(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor] | None) -> bool:
    return a is b or (b is not None and all(same_bits(a[name], b[name]) for name in a))


def _can_stand_together(first: tuple[Case, Expected], second: tuple[Case, Expected]) -> bool:
    """Whether both can be called in one region and compared afterwards."""
    return (
        first[0].layout == second[0].layout
        and not any(expected.in_place or expected.changes_state for _, expected in (first, second))
        and _same_state(first[0].state, second[0].state)
    )


def judge(
    runner: Runner, arena: Arena, expected: Expected, timeout_s: float, label: str, *, back: int = 1
) -> list[Check]:
    """Fetch one of the runner's kept outputs (1: the latest) and compare it with what was expected."""
    described = runner.ask("describe", timeout_s, back=back)
    form = _form(described, expected, arena.device, label)
    if not form.passed:
        return [form]
    return [form, *_values(label, arena.fetch(runner, timeout_s, back), expected)]


def _values(label: str, outputs: Sequence[torch.Tensor], expected: Expected) -> list[Check]:
    checks: list[Check] = []
    for i, output in enumerate(outputs):
        checks += compare(f"{label}, output {i}", output, expected.exact[i], expected.eager[i], expected.bounds[i])
    return checks


def _form(described: dict[str, Any], expected: Expected, device: str, label: str) -> Check:
    """Structure, shapes, dtypes and devices of the output, before any value is looked at."""
    wanted = [[list(t.shape), str(t.dtype).removeprefix("torch."), device] for t in expected.eager]
    detail = ""
    if not tree.same_structure(described["structure"], expected.structure):
        detail = "the output is nested otherwise than the reference's"
    elif described["tensors"] != wanted:
        got, want = next((g, w) for g, w in zip(described["tensors"], wanted, strict=True) if g != w)
        detail = f"the output is {_kind(got)}, the reference's is {_kind(want)}"
    elif expected.aliases and (lent := _lent(described["aliases"], expected.aliases)) is not None:
        detail = f"output {lent} shares the memory of an argument, the reference's does not"
    elif (crowded := _lent(described["shared"], tree.shared(expected.eager))) is not None:
        detail = f"output {crowded} has no memory of its own, as the reference's has: {described['shared'][crowded]}"
    return Check(f"{label}: shape and dtype", not detail, detail=detail)


def _lent(found: Sequence[Any], wanted: Sequence[object]) -> int | None:
    """The first output that shares memory where the reference makes a tensor of its own."""
    return next((i for i, (f, w) in enumerate(zip(found, wanted, strict=True)) if f is not None and w is None), None)


def _kind(described: list[Any]) -> str:
    shape, dtype, device = described
    return f"{dtype}{tuple(shape)} on {device}"


def _inputs_kept(arena: Arena, slot: int, expected: Expected, label: str) -> Check:
    now = arena.read_slot(slot)
    same = all(same_bits(a, b) for a, b in zip(now, expected.inputs_after, strict=True))
    return Check(f"{label}: inputs as the reference leaves them", same, detail="" if same else "an input was changed")


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype are equal, a nan equal to a nan."""
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())


def explain(check: Check) -> str:
    """A failed check as a sentence for a person or a model."""
    figures = ""
    if check.figure is not None:
        figures = f": {check.figure:.4g}" + ("" if check.bound is None else f", allowed {check.bound:.4g}")
    return f"{check.name}{figures}" + (f" ({check.detail})" if check.detail else "")


def state_checks(now: Mapping[str, torch.Tensor], case: Case, expected: Expected) -> list[Check]:
    """Parameters and buffers after a call: changed only where, and as, the reference changes them."""
    checks = []
    kept = [n for n in now if n not in expected.state_after]
    changed = [n for n in kept if not same_bits(now[n], case.state[n])]
    detail = f"{', '.join(changed)} changed" if changed else ""
    checks.append(Check(f"{case.label}: parameters and buffers kept", not changed, len(changed), 0, detail))
    for name, (exact, eager, bounds) in expected.state_after.items():
        checks += compare(f"{case.label}: buffer {name} after the call", now[name], exact, eager, bounds)
    return checks
