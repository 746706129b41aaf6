"""Whether a candidate left the process that it runs in as it found it, and stopped working when its calls were over.

What the process itself reports can only count against the candidate. What goes on working is seen from outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.stages.sandbox import census, witness
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed
from kernelwright.stages.types import Check, Status

SHOWN = 5
"""Sentences of a kind that a verdict repeats."""


def report(runner: Runner, timeout_s: float) -> list[Check]:
    """What the runner saw of its candidate; empty when it cannot be asked any more."""
    if not runner.alive:
        return []
    try:
        said = runner.ask("witness", timeout_s)
    except RunnerFailed:
        return []
    return [
        _nothing("nothing replaced in torch, Python or the sandbox", said.get("changes")),
        _nothing("nothing tried that a kernel has no need of", said.get("seen")),
    ]


def flags(runner: Runner, timeout_s: float) -> dict[str, Any]:
    """The process's global switches as they are now."""
    found: dict[str, Any] = runner.ask("witness", timeout_s)["flags"]
    return found


def same_flags(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> Check:
    """Whether global switches stand as the reference leaves them."""
    return _nothing("global switches as the reference leaves them", witness.differences(reference, candidate))


def rest(runner: Runner) -> Check:
    """Whether threads or processes of the candidate go on working although its last call was answered."""
    return _nothing("nothing goes on working after the call", census.still_working(runner.pid))


def _nothing(name: str, found: Any) -> Check:
    sentences: Sequence[Any] = found if isinstance(found, list) else []
    shown = "; ".join(str(sentence)[:300] for sentence in sentences[:SHOWN])
    return Check(name, not sentences, len(sentences), 0, shown, Status.TAMPERED)
