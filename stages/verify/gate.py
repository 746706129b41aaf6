"""The gate: a loaded candidate is called on every case, and its bytes are compared with the oracle's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.stages.sandbox import tree
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


def verdict_of(failure: RunnerFailed, checks: Sequence[Check] = ()) -> Verdict:
    """The verdict for a runner that refused, raised, died or hung."""
    return Verdict(STATUS_OF.get(failure.kind, Status.CRASH), failure.message, tuple(checks))


def verify(
    runner: Runner,
    arena: Arena,
    cases: Sequence[tuple[Case, Expected]],
    timeout_s: float,
) -> Verdict:
    """Call the module on each case and judge every output. The first failure ends it.

    Cases come two by two in the same slot: an answer that was kept by the input's address is wrong the second time.
    The checks of all cases are kept as evidence; `correct` needs every one of them.
    """
    checks: list[Check] = []
    try:
        for number, (case, expected) in enumerate(cases):
            slot = number // 2 % arena.slots
            arena.write_state(case, runner, timeout_s)
            arena.write_slot(slot, case)
            runner.ask("run", timeout_s, slots=[slot])
            found = judge(runner, arena, expected, timeout_s, f"case {number}")
            found.append(_inputs_kept(arena, slot, expected, f"case {number}"))
            checks += found
            failed = next((c for c in found if not c.passed), None)
            if failed:
                return Verdict(Status.INCORRECT, _explain(failed), tuple(checks))
    except RunnerFailed as failure:
        return verdict_of(failure, checks)
    return Verdict(Status.CORRECT, "", tuple(checks))


def judge(runner: Runner, arena: Arena, expected: Expected, timeout_s: float, label: str) -> list[Check]:
    """Fetch the runner's last output and compare it with what was expected."""
    described = runner.ask("describe", timeout_s)
    form = _form(described, expected, arena.device, label)
    if not form.passed:
        return [form]
    outputs = arena.fetch(runner, timeout_s)
    checks = [form]
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
    return Check(f"{label}: shape and dtype", not detail, detail=detail)


def _kind(described: list[Any]) -> str:
    shape, dtype, device = described
    return f"{dtype}{tuple(shape)} on {device}"


def _inputs_kept(arena: Arena, slot: int, expected: Expected, label: str) -> Check:
    now = arena.read_slot(slot)
    same = all(_same_bits(a, b) for a, b in zip(now, expected.inputs_after, strict=True))
    return Check(f"{label}: inputs as the reference leaves them", same, detail="" if same else "an input was changed")


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())


def _explain(check: Check) -> str:
    figures = "" if check.figure is None else f": {check.figure:.4g}, allowed {check.bound:.4g}"
    return f"{check.name}{figures}" + (f" ({check.detail})" if check.detail else "")
