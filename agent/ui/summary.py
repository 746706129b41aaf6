"""The end of a run: a few lines for a person, one object for a program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.outcome import Outcome
from kernelwright.agent.ui.view import RunView, ratio_text
from kernelwright.stages.archive import Record
from kernelwright.stages.codec import to_json

SCHEMA = "kernelwright.run/1"


@dataclass(frozen=True)
class Paths:
    """Where a run left what."""

    archive: Path
    report: Path
    winner: Path
    """Exists only when there is a winner."""


BUDGET_STOP = "the budget: "
"""How the reason begins when a model's budget ended the search."""


def exit_code(outcome: Outcome, stop: str) -> ExitCode:
    """0 when a gain was confirmed; else 4 when the models' budget ended the search, and 1 when it found none."""
    if outcome.winner:
        return ExitCode.GOAL_MET
    return ExitCode.BUDGET_SPENT if stop.startswith(BUDGET_STOP) else ExitCode.GOAL_NOT_MET


def lines(view: RunView, outcome: Outcome, paths: Paths) -> list[str]:
    """What the terminal shows last."""
    found = outcome.winner
    if found is None:
        return [*_no_gain(view, outcome), f"report   {paths.report}"]
    measurement = found.result.measurement
    assert measurement is not None
    out = [f"{view.problem.name} on {view.device}: faster, verified, and measured again on fresh inputs"]
    for name, ratio in measurement.speedups.items():
        out.append(f"  {ratio_text(ratio)} over {name}   (95 % interval)")
    times = {"winner": measurement.candidate, **measurement.baselines}
    out.append("  " + ", ".join(f"{name} {t.median_ms:.4g} ms" for name, t in times.items()))
    if view.library_ops:
        out.append(f"  stay library calls: {', '.join(view.library_ops)}")
    out.append(f"winner   {paths.winner}  (class ModelNew)")
    out.append(f"archive  {paths.archive}: kernelwright archive show {found.candidate.hash[:12]}")
    out.append(f"report   {paths.report}")
    return out


def _no_gain(view: RunView, outcome: Outcome) -> list[str]:
    best = outcome.best_seen
    if not outcome.searched:
        return [f"{view.problem.name} on {view.device}: nobody had a candidate for this module ({view.stop})"]
    head = f"{view.problem.name} on {view.device}: no candidate is faster than eager beyond doubt"
    if best is None or best.result.measurement is None:
        return [head, f"  none of {len(outcome.searched)} candidates was correct and measured"]
    ratio = best.result.measurement.speedups.get("eager")
    shown = f"  the best seen: {ratio_text(ratio)} over eager (95 % interval)" if ratio else ""
    return [head, f"{shown}, {best.candidate.hash[:12]}"]


def as_json(view: RunView, outcome: Outcome, paths: Paths) -> dict[str, Any]:
    """The object that `--json` prints and `report.json` holds."""
    found = outcome.winner
    shown = outcome.best_seen
    measurement = shown.result.measurement if shown else None
    speedup = measurement.speedups.get("eager") if measurement else None
    return {
        "schema": SCHEMA,
        "run": view.run,
        "problem": {"name": view.problem.name, "hash": view.problem.hash, "origin": view.problem.origin},
        "verdict": shown.result.verdict.status.value if shown else "unknown",
        "best": _best(found, paths),
        "speedup": {"over": "eager", **to_json(speedup)} if speedup else None,
        "speedups": to_json(measurement.speedups) if measurement else {},
        "baselines": {n: {"median_ms": t.median_ms} for n, t in measurement.baselines.items()} if measurement else {},
        "candidate_ms": measurement.candidate.median_ms if measurement else None,
        "funnel": to_json(view.funnel),
        "library_ops": list(view.library_ops),
        "environment": to_json(view.environment),
        "stop": view.stop,
        "report": str(paths.report),
        "archive": str(paths.archive),
        "exit_code": int(exit_code(outcome, view.stop)),
    }


def _best(found: Record | None, paths: Paths) -> dict[str, str] | None:
    if found is None:
        return None
    return {"hash": found.candidate.hash, "path": str(paths.winner), "backend": found.candidate.backend.value}
