"""The reference as its own candidate: what times it by itself, and what shows how often equal looks faster."""

from __future__ import annotations

from kernelwright.kernelbench.problem import Precision, Problem
from kernelwright.stages.execute.job import Effort, Job
from kernelwright.stages.types import Backend, Candidate


def as_candidate(problem: Problem, mark: str = "") -> Candidate:
    """The problem's own source, its `Model` under the candidate's name. Another `mark` gives another hash."""
    note = f"# {mark}\n" if mark else ""
    return Candidate(f"{problem.source.rstrip()}\n\n\n{note}ModelNew = Model\n", Backend.TORCH, "reference")


def job(
    problem: Problem,
    device: str,
    seed: int,
    *,
    baselines: tuple[str, ...] = ("eager",),
    precision: Precision | None = None,
    effort: Effort | None = None,
    mark: str = "",
) -> Job:
    """Evaluate the reference as if somebody had proposed it."""
    return Job(
        key=f"reference/{problem.name}/{mark or seed}",
        problem=problem,
        candidate=as_candidate(problem, mark),
        device=device,
        seed=seed,
        effort=effort or Effort(screen_rounds=0),
        baselines=baselines,
        precision=precision,
    )
