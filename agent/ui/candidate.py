"""One candidate of the archive, for a person: what it is, what was found out about it, and its relatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelwright.agent.ui import table
from kernelwright.agent.ui.table import Column
from kernelwright.agent.ui.view import ratio_text
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive.reads import Evaluation, Precheck, Relative, Shown
from kernelwright.stages.types import Check, Compilation

EVIDENCE = [
    Column("check"),
    Column("times", right=True),
    Column("passed"),
    Column("worst", right=True),
    Column("bound", right=True),
    Column("detail"),
]
RESOURCES = [
    Column("kernel"),
    Column("target"),
    Column("registers", right=True),
    Column("shared bytes", right=True),
    Column("spilled bytes", right=True),
]
RELATIVES = [
    Column(""),
    Column("candidate"),
    Column("over eager", right=True),
    Column("directive"),
]


def print_candidate(found: Shown) -> None:
    """Print everything but the source."""
    print("\n".join(summary(found)))
    for evaluation in found.evaluations:
        print()
        print("\n".join(verdict(evaluation, found)))
        _print_findings(evaluation.result.verdict.checks, evaluation.result.compilation)
    for precheck in found.prechecks:
        print(f"\nchecked without the device on {precheck.created_at:%Y-%m-%d %H:%M} UTC: {_outcome(precheck)}")
        _print_findings(precheck.checks, precheck.compilation)
    relatives = [*_relatives("from", found.parents), *_relatives("led to", found.children)]
    if relatives:
        print("\nlineage")
        table.show(RELATIVES, relatives, indent=2)


def summary(found: Shown) -> list[str]:
    """What the candidate is, and where it was proposed."""
    candidate = found.candidate
    origin = f"template {candidate.template}, " if candidate.template else ""
    lines = [
        f"candidate  {candidate.hash}",
        *(f"problem    {_problem(problem)}" for problem in found.problems.values()),
        f"back end   {candidate.backend.value}, {origin}by {candidate.proposer}",
    ]
    if candidate.directive:
        lines.append(f"directive  {candidate.directive}")
    if candidate.library_ops:
        lines.append(f"library    {', '.join(candidate.library_ops)} stay library calls")
    lines += [f"proposed   run {p.run}, generation {p.generation}, slot {p.slot}" for p in found.proposals]
    return lines


def verdict(evaluation: Evaluation, found: Shown) -> list[str]:
    """The verdict with its message, the times, and where they were taken."""
    result, machine = evaluation.result, evaluation.result.environment
    judged = f"{evaluation.created_at:%Y-%m-%d %H:%M} UTC"
    which = f" on {_problem(found.problems[evaluation.problem_hash])}" if len(found.problems) > 1 else ""
    lines = [
        f"{evaluation.stage} of run {evaluation.run}{which}: {result.verdict.status.value}",
        f"  {judged} on {machine.device_name} ({machine.device}), torch {machine.torch}",
    ]
    lines += [f"  {line}" for line in result.verdict.message.splitlines()]
    if measurement := result.measurement:
        lines += [f"  {ratio_text(ratio)} over {name}" for name, ratio in measurement.speedups.items()]
        times = {"candidate": measurement.candidate, **measurement.baselines}
        lines.append("  " + ", ".join(f"{name} {timing.median_ms:.4g} ms" for name, timing in times.items()))
        if measurement.screened_out:
            lines.append("  dropped after a few rounds: clearly slower than the incumbent")
        lines.append(f"  {measurement.method}")
    return lines


def evidence(checks: Sequence[Check]) -> Iterator[list[str]]:
    """One row a name: how often the check was made, and the failure, or else the figure closest to its bound."""
    by_name: dict[str, list[Check]] = {}
    for check in checks:
        by_name.setdefault(check.name, []).append(check)
    for name, group in by_name.items():
        worst = max(group, key=_badness)
        passed = "yes" if worst.passed else "no"
        yield [name, str(len(group)), passed, _figure(worst.figure), _figure(worst.bound), worst.detail]


def _badness(check: Check) -> tuple[bool, float]:
    share = check.figure / check.bound if check.figure is not None and check.bound else 0.0
    return not check.passed, share


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _print_findings(checks: Sequence[Check], compilation: Compilation | None) -> None:
    if checks:
        table.show(EVIDENCE, list(evidence(checks)), indent=2)
    if compilation and compilation.resources:
        rows = [
            [r.kernel, r.target, *("" if n is None else str(n) for n in (r.registers, r.shared_bytes, r.spill_bytes))]
            for r in compilation.resources
        ]
        table.show(RESOURCES, rows, indent=2)


def _outcome(precheck: Precheck) -> str:
    if precheck.passed:
        return "passed"
    return "failed a check" if precheck.compilation.ok else f"does not compile\n{precheck.compilation.log}"


def _relatives(word: str, relatives: Sequence[Relative]) -> list[list[str]]:
    return [[word, r.hash[:12], ratio_text(r.speedup) if r.speedup else "", r.directive] for r in relatives]


def _problem(problem: Problem) -> str:
    shape = f", shape {problem.shape}" if problem.shape else ""
    return f"{problem.name} ({problem.origin}{shape})"
