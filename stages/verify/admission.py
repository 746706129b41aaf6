"""Whether a task can tell right from wrong: asked of the task before any candidate is.

A task whose answer does not depend on its inputs, or whose check accepts a wrong answer, is ungradable: whatever a
candidate does on it proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from kernelwright.kernelbench.contract import Contract
from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.types import Check, Status
from kernelwright.stages.verify.faults import Fault, Pair, canaries, equivalent, mutants, refuses
from kernelwright.stages.verify.oracle import Oracle
from kernelwright.stages.verify.tolerance import compare

EVAL_MODE = (
    "the reference draws random numbers in forward: let its constructor end with self.eval() (dropout is then off), "
    "or draw the numbers in get_inputs and pass them in"
)


@dataclass(frozen=True)
class MutationScore:
    """How many planted faults the task's checks refuse."""

    caught: dict[str, str]
    """By fault: the label of the first case that refuses it."""
    missed: tuple[str, ...]

    @property
    def planted(self) -> int:
        """How many faults there were; those that change no answer of this task do not count."""
        return len(self.caught) + len(self.missed)


def admit(
    contract: Contract,
    model: torch.nn.Module,
    cases_with_expected: Sequence[Pair],
    precision: Precision,
    *,
    oracle: Oracle | None = None,
) -> tuple[Check, ...]:
    """The task's own checks. Each that fails refutes the task, not a candidate."""
    oracle = oracle or Oracle(model, contract.tolerance, precision)
    pairs = _random_first(cases_with_expected)
    repeatable = _repeatable(oracle, pairs[0])
    if not repeatable.passed:
        return (repeatable,)
    checks = [repeatable, *_dependence(oracle, pairs)]
    if not all(c.passed for c in checks):
        return tuple(checks)
    score = _score(canaries(precision, contract.tolerance), pairs)
    checks += [_canary(name, True, f"by {case}") for name, case in score.caught.items()]
    checks += [_canary(name, False, f"the task's check accepts it ({name})") for name in score.missed]
    return tuple(checks)


def mutation_score(
    contract: Contract,
    model: torch.nn.Module,
    cases_with_expected: Sequence[Pair],
    precision: Precision,
    *,
    oracle: Oracle | None = None,
) -> MutationScore:
    """Plant faults, in the answers and in the reference, and see which the task's checks refuse."""
    oracle = oracle or Oracle(model, contract.tolerance, precision)
    pairs = _random_first(cases_with_expected)
    return _score([*canaries(precision, contract.tolerance), *mutants(oracle, pairs)], pairs)


def _score(faults: Iterable[Fault], pairs: Sequence[Pair]) -> MutationScore:
    caught: dict[str, str] = {}
    missed = []
    for fault in faults:
        planted = False
        for number, pair in enumerate(pairs):
            outputs = fault.answer(pair, pairs[number - 1])
            if outputs is None or equivalent(pair, outputs):
                continue
            planted = True
            if refuses(pair, outputs):
                caught[fault.name] = pair[0].label
                break
        else:
            if planted:
                missed.append(fault.name)
    return MutationScore(caught, tuple(missed))


def _random_first(pairs: Sequence[Pair]) -> list[Pair]:
    """Ordinary cases before the structured ones: they are what most faults are found by."""
    return sorted(pairs, key=lambda pair: (pair[0].stressed or bool(pair[0].layout), pair[0].follows is not None))


def _repeatable(oracle: Oracle, pair: Pair) -> Check:
    """The reference twice, under other seeds of torch's generators."""
    case, expected = pair
    torch.manual_seed(1)
    first = oracle.eager(case)
    torch.manual_seed(2)
    again = oracle.eager(case)
    same = all(
        check.passed
        for i, output in enumerate(again)
        for check in compare("", output, expected.exact[i], first[i], expected.bounds[i])
    ) and not (expected.random and any(not torch.equal(a, b) for a, b in zip(first, again, strict=True)))
    return Check("the reference repeats itself", same, detail="" if same else EVAL_MODE, refutes=Status.UNGRADABLE)


def _dependence(oracle: Oracle, pairs: Sequence[Pair]) -> list[Check]:
    """Whether every output moves when the inputs (or, where there are none, the parameters) are other ones."""
    ordinary = [p for p in pairs if not p[0].stressed and not p[0].layout and p[0].follows is None]
    base, expected = ordinary[0]
    moved = [False] * len(expected.eager)
    spread = [t.numel() <= 1 or bool((t != t.reshape(-1)[0]).any()) for t in expected.eager]
    for other, found in ordinary[1:]:
        spread = [s or bool((t != t.reshape(-1)[0]).any()) for s, t in zip(spread, found.eager, strict=True)]
        for case in (replace(other, state=base.state), replace(base, state=other.state)):
            outputs = oracle.eager(case)
            for i, output in enumerate(outputs):
                right = expected.exact[i], expected.eager[i], expected.bounds[i]
                if output.shape != expected.eager[i].shape or not all(c.passed for c in compare("", output, *right)):
                    moved[i] = True
        if all(moved) and all(spread):
            break
    checks = []
    for i, (moves, varies) in enumerate(zip(moved, spread, strict=True)):
        detail = "" if moves else "it is the same for all inputs: there is nothing to compute"
        checks.append(Check(f"output {i} depends on the inputs", moves, detail=detail, refutes=Status.UNGRADABLE))
        detail = "" if varies else "all its elements are equal"
        checks.append(Check(f"output {i} has spread", varies, detail=detail, refutes=Status.UNGRADABLE))
    return checks


def _canary(name: str, refused: bool, detail: str) -> Check:
    return Check(f"refuses {name}", refused, detail=detail, refutes=Status.UNGRADABLE)
