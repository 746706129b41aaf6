"""Work for a machine that is elsewhere: candidates are proposed and checked here, measured there, and read back.

A GPU candidate is checked here as far as a machine without a GPU can: its numbers by Triton's interpreter on a small
shape, its kernels by compiling them for the GPU's architecture. What fails either is not sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kernelwright.agent.proposers.base import Context
from kernelwright.agent.proposers.builtin import BuiltinProposer
from kernelwright.agent.run import Opened
from kernelwright.agent.settings import RunSettings, settings_from
from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.sources import reshaped
from kernelwright.stages.archive import CONFIRM, SEARCH, Archive
from kernelwright.stages.compile import compile_candidate
from kernelwright.stages.execute import bundle
from kernelwright.stages.execute.job import Effort, Job, Purpose
from kernelwright.stages.generate import templates_for
from kernelwright.stages.translate import translate
from kernelwright.stages.translate.graph import OpInfo
from kernelwright.stages.types import Backend, Candidate, Check
from kernelwright.stages.verify.interpreter import NOT_RUN, interpret

CHECK_DEADLINE_S = 120.0
SMALL_SHAPE = "tiny"
"""The label in a problem's SHAPES that the interpreter runs: it takes milliseconds a program."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Exported:
    """What went into a bundle for one problem."""

    run: str
    problem: Problem
    sent: int
    held_back: int
    """Candidates that failed their check here."""


def export(
    problems: Sequence[Problem], settings: RunSettings, folder: Path, effort: Effort, cache: Path, say: Say
) -> list[Exported]:
    """Propose candidates for each problem, check them here, and write those that pass as one bundle."""
    if folder.exists():
        raise UsageError(f"{folder}: exists already; a bundle is never overwritten")
    jobs: list[Job] = []
    exported: list[Exported] = []
    with Archive.open(settings.archive) as archive:
        for problem in problems:
            info = translate(problem)
            run = _open_run(archive, problem, info, settings)
            proposed = _propose(problem, info, settings)
            passed = [c for c in proposed if _check(archive, problem, info, c, settings.device, cache, say)]
            archive.add_proposals(run, 0, passed)
            jobs += [Job(f"{run}/0/{c.hash[:12]}", problem, c, settings.device, settings.seed, effort) for c in passed]
            exported.append(Exported(run, problem, len(passed), len(proposed) - len(passed)))
    bundle.write(folder, jobs)
    return exported


def bring_back(folder: Path, archive_path: Path, runs: Path) -> list[Opened]:
    """Store a bundle's results; returns its runs. Storing the same results again changes nothing."""
    jobs = bundle.jobs(folder)
    results = bundle.results(folder)
    by_run: dict[str, list[Job]] = {}
    for job in (job for job in jobs if job.purpose is Purpose.JUDGE):
        by_run.setdefault(job.key.split("/")[0], []).append(job)
    opened: list[Opened] = []
    with Archive.open(archive_path) as archive:
        known = {info.id for info in archive.runs()}
        for run, group in by_run.items():
            first = group[0]
            settings = settings_from(
                {
                    "device": first.device,
                    "seed": first.seed,
                    "max_candidates": len(group),
                    "archive": archive_path,
                    "runs": runs,
                }
            )
            if run not in known:
                # The bundle was written by another archive: it carries all that a run needs.
                archive.add_problem(first.problem, translate(first.problem))
                archive.start_run(run, first.problem, first.device, settings.model_dump(mode="json"))
                archive.add_proposals(run, 0, [job.candidate for job in group])
            keys = {job.key for job in group}
            for result in results:
                if result.key.removesuffix(bundle.CONFIRM) in keys:
                    archive.add_result(run, result, CONFIRM if result.key.endswith(bundle.CONFIRM) else SEARCH)
            opened.append(Opened(run, first.problem, settings, runs / run))
            if len(archive.results_of(run, SEARCH)) == len(group):
                archive.finish_run(run, "the bundle was done")
    return opened


def _open_run(archive: Archive, problem: Problem, info: OpInfo, settings: RunSettings) -> str:
    run = f"{problem.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    archive.add_problem(problem, info)
    archive.start_run(run, problem, settings.device, settings.model_dump(mode="json"))
    return run


def _propose(problem: Problem, info: OpInfo, settings: RunSettings) -> list[Candidate]:
    context = Context(problem, info, settings.device, 0, settings.max_candidates, settings.seed, [])
    proposed = BuiltinProposer().propose(context)
    if not proposed:
        raise UsageError(f"{problem.origin}: the generator has no candidate for this module on {settings.device}")
    return proposed


def _check(
    archive: Archive, problem: Problem, info: OpInfo, candidate: Candidate, device: str, cache: Path, say: Say
) -> bool:
    """Compile for the device's architecture and run the interpreter; the findings are stored."""
    compilation = compile_candidate(candidate, problem, cache, device=device, deadline_s=CHECK_DEADLINE_S)
    checks: tuple[Check, ...] = ()
    if compilation.ok and candidate.backend is Backend.TRITON:
        small, twin = _small_twin(problem, candidate, device)
        checks = interpret(twin, small, deadline_s=CHECK_DEADLINE_S)
    archive.add_precheck(problem, candidate, compilation, checks)
    # A check that could not be made (a module too large for the interpreter) holds nothing back.
    failed = next((c for c in checks if not c.passed and not c.detail.startswith(NOT_RUN)), None)
    reason = compilation.log if not compilation.ok else failed.detail if failed else ""
    resources = ", ".join(f"{r.registers} registers, {r.spill_bytes} bytes spilled" for r in compilation.resources)
    word = "ok" if compilation.ok and failed is None else "held back"
    say(f"{word}  {problem.name}  {candidate.directive}  {reason.splitlines()[0] if reason else resources}")
    return compilation.ok and failed is None


def _small_twin(problem: Problem, candidate: Candidate, device: str) -> tuple[Problem, Candidate]:
    """The same template and choice for the problem's small shape, if it has one: kernels have sizes written in."""
    small = reshaped(problem, SMALL_SHAPE)
    if small is None:
        return problem, candidate
    for template in templates_for(small, translate(small), device):
        if template.name == candidate.template:
            fitting = {
                name: candidate.tunables[name] if candidate.tunables.get(name) in choices else template.default[name]
                for name, choices in template.space.items()
            }
            return small, replace(template.candidate(fitting), parents=(candidate.hash,))
    return problem, candidate
