"""The one view of a judged candidate that the terminal and JSON render: every check in its group, times, machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.verification import Verified
from kernelwright.stages.codec import to_json
from kernelwright.stages.measure.stats import MEANINGFUL, is_gain
from kernelwright.stages.static import Finding, read
from kernelwright.stages.types import Check, DeviceState, Environment, Measurement, OwnWork, Ratio, Status, Verdict

SCHEMA = "kernelwright.verdict/1"

TASK, FORM, RANDOM, STRUCTURED = "the task", "form", "random cases", "structured cases"
PROBES, TIMED, CONDUCT = "probes", "timed calls", "conduct"
WORK, LIGHT = "own work", "speed of light"
GROUPS = (TASK, FORM, RANDOM, STRUCTURED, PROBES, TIMED, CONDUCT, WORK, LIGHT)
"""In the order in which they are shown."""

_BY_REFUTED = {
    Status.UNGRADABLE: TASK,
    Status.TAMPERED: CONDUCT,
    Status.STATIC_REJECT: WORK,
    Status.IMPLAUSIBLE: LIGHT,
}
HELD = "held over the next call"
_BY_WORDS = (
    (CONDUCT, rf"inputs as the reference leaves|parameters and buffers kept|memory around|clocks agree|{HELD}"),
    (FORM, r"shape and dtype"),
    (TIMED, r"^timed"),
    (PROBES, r"exchanged|alone changed|one huge value"),
    (RANDOM, r"^(case|random)\b"),
)
"""By the name of a check, the first that is found; a name of the form `label: what` that is not here is structured."""

NEXT = {
    Status.CORRECT: "it is right, and may replace the reference wherever it is faster",
    Status.INCORRECT: "mend what failed, then run the command below again: the same seed draws the same inputs",
    Status.COMPILE_ERROR: "make the file import, and define ModelNew with the arguments of the reference's Model",
    Status.STATIC_REJECT: "let kernels of the claimed back end do the work, or judge it with --backend torch",
    Status.CRASH: "call it by hand on inputs of the reference: it raises or dies",
    Status.HANG: "give it more time with --timeout if it is only slow to build",
    Status.OOM: "choose a smaller shape with --shape, or a device with more memory",
    Status.TAMPERED: "do not use this file: read what it does to the process that judges it",
    Status.IMPLAUSIBLE: "do not use this file: it is faster than memory allows, so it skips work",
    Status.UNGRADABLE: "change the reference or its inputs, so that a wrong answer can be told from a right one",
    Status.ENV_ERROR: "run `kernelwright doctor`: this machine could not judge it",
    Status.UNKNOWN: "run the command below again: there is no verdict",
}
"""What a person does next, by verdict."""


@dataclass(frozen=True)
class Line:
    """Checks of one kind: how many there were, and the first that failed or the one that came closest to its bound."""

    group: str
    name: str
    times: int
    passed: bool
    figure: float | None
    bound: float | None
    detail: str


@dataclass(frozen=True)
class Evidence:
    """All that is known of one judged candidate."""

    name: str
    problem: str
    backend: str
    verdict: Verdict
    next_step: str
    lines: tuple[Line, ...]
    measurement: Measurement | None
    work: OwnWork | None
    notes: tuple[Finding, ...]
    """What reading the source found worth a second look; it decides nothing."""
    environment: Environment
    seed: int
    command: str
    seconds: float
    """Wall time of the stages in all."""

    @property
    def gain(self) -> Ratio | None:
        """The speedup over eager, when it is one by our rule."""
        ratio = self.measurement.speedups.get("eager") if self.measurement else None
        return ratio if ratio is not None and is_gain(ratio) else None


def evidence_of(verified: Verified) -> Evidence:
    """Build the view."""
    result = verified.result
    shape = f":{verified.problem.shape}" if verified.problem.shape else ""
    return Evidence(
        name=verified.name,
        problem=verified.problem.origin + shape,
        backend=verified.job.candidate.backend.value,
        verdict=result.verdict,
        next_step=_next_step(result.verdict.status, result.measurement),
        lines=tuple(lines(result.verdict.checks)),
        measurement=result.measurement,
        work=result.work,
        notes=read(verified.job.candidate.source).warnings,
        environment=result.environment,
        seed=verified.job.seed,
        command=verified.command,
        seconds=sum(result.seconds.values()),
    )


def _next_step(status: Status, measurement: Measurement | None) -> str:
    """What a person does next. Whoever has torch.compile wants to know when it is the faster one."""
    compiled = measurement.speedups.get("compile") if status is Status.CORRECT and measurement else None
    if compiled is not None and compiled.high * MEANINGFUL < 1.0:
        return f"it is right, but torch.compile of the reference takes {compiled.median:.2f} of its time: use that"
    return NEXT[status]


def group_of(check: Check) -> str:
    """The group that a check is shown in."""
    if check.refutes in _BY_REFUTED:
        return _BY_REFUTED[check.refutes]
    for group, words in _BY_WORDS:
        if re.search(words, check.name):
            return group
    return STRUCTURED if re.search(r"[:,]", check.name) else CONDUCT


def lines(checks: Iterable[Check]) -> list[Line]:
    """One line a kind of check, in the order of GROUPS; the first that failed stands for its kind."""
    kinds: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        group = group_of(check)
        kinds.setdefault((group, _kind(check.name, group)), []).append(check)
    found = [_line(group, kind, same) for (group, kind), same in kinds.items()]
    return sorted(found, key=lambda line: GROUPS.index(line.group))


def _kind(name: str, group: str) -> str:
    """What checks that differ in their number alone have in common."""
    if HELD in name:
        return "an output is still right after the next call"
    label, colon, what = name.partition(": ")
    if group in (FORM, RANDOM, TIMED, CONDUCT) and colon:
        return what
    return re.sub(r"^random \d+, |, output \d+$", "", label)


def _line(group: str, kind: str, checks: Sequence[Check]) -> Line:
    # The first that failed, for the verdict names the first of all.
    shown = next((c for c in checks if not c.passed), None) or max(checks, key=_share_of_bound)
    name = shown.name if not shown.passed else kind
    return Line(group, name, len(checks), shown.passed, shown.figure, shown.bound, shown.detail)


def _share_of_bound(check: Check) -> float:
    return check.figure / check.bound if check.figure is not None and check.bound else 0.0


def exit_code(verdicts: Iterable[Verdict]) -> ExitCode:
    """0 when all are correct, 6 when one tampered, 3 when the machine failed, else 1."""
    statuses = {verdict.status for verdict in verdicts}
    if Status.TAMPERED in statuses:
        return ExitCode.TAMPERING
    if Status.ENV_ERROR in statuses:
        return ExitCode.ENVIRONMENT
    return ExitCode.GOAL_MET if statuses <= {Status.CORRECT} else ExitCode.GOAL_NOT_MET


def as_json(found: Evidence) -> dict[str, Any]:
    """The object that `kernelwright verify --json` prints."""
    verdict = found.verdict
    return {
        "schema": SCHEMA,
        "verdict": verdict.status.value,
        "message": verdict.message,
        "next": found.next_step,
        "candidate": found.name,
        "problem": found.problem,
        "backend": found.backend,
        "checks": [to_json(check) | {"group": group_of(check)} for check in verdict.checks],
        "measurement": to_json(found.measurement),
        "work": to_json(found.work),
        "notes": to_json(found.notes),
        "environment": to_json(found.environment),
        "seed": found.seed,
        "command": found.command,
        "seconds": round(found.seconds, 3),
        "exit_code": int(exit_code([verdict])),
    }


def device_words(state: DeviceState | None) -> str:
    """Clocks, throttling and other processes, in a few words; empty where nothing was logged."""
    if state is None:
        return ""
    clocks = sorted(state.clocks_mhz)
    words = [f"{clocks[0]} to {clocks[-1]} MHz" if clocks[0] != clocks[-1] else f"{clocks[0]} MHz"] if clocks else []
    words.append(f"throttled: {', '.join(state.throttled)}" if state.throttled else "not throttled")
    if state.others:
        words.append(f"{state.others} other process{'es' if state.others > 1 else ''} on the device")
    return ", ".join(words)
