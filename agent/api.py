"""The Python API: get a faster module for one of yours, or have candidates judged that you wrote yourself."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.agent.comparison import Benched, compare
from kernelwright.agent.finish import finish
from kernelwright.agent.run import open_new, walk
from kernelwright.agent.settings import settings_from
from kernelwright.agent.ui.events import Event
from kernelwright.agent.verification import (
    DEFAULT_BASELINES,
    Terms,
    Verified,
    candidate_of,
    judge,
    read_candidate,
)
from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Precision, Problem
from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.execute.job import Effort
from kernelwright.stages.translate.from_module import copy_state, problem_from_module
from kernelwright.stages.types import Backend, Candidate, Ratio, Verdict

Reference = str | Path | Problem | tuple[torch.nn.Module, Sequence[Any]]
"""A file, a suite's problem such as `core/softmax`, or a module with example inputs for it."""


@dataclass(frozen=True)
class Result:
    """How an optimisation ended."""

    run: str
    original: torch.nn.Module
    verdict: Verdict | None
    """Of the winner, or of the best that was seen; None when there was no candidate."""
    speedup: Ratio | None
    """Over eager, of the same candidate, from its second measurement."""
    path: Path | None
    """The winner's file, which defines `ModelNew`; None when nothing was faster beyond doubt."""
    report: Path

    def module(self) -> torch.nn.Module:
        """The winner with the original's parameters, or the original itself when there is no winner."""
        if self.path is None:
            return self.original
        spec = importlib.util.spec_from_file_location(f"kernelwright_{self.run.replace('-', '_')}", self.path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
        faster: torch.nn.Module = loaded.ModelNew()
        copy_state(self.original, faster)
        return faster.train(self.original.training)


@dataclass(frozen=True)
class Budget:
    """When the search stops: whichever comes first."""

    candidates: int | None = None
    seconds: float | None = None


def optimize(
    module: torch.nn.Module,
    example_inputs: Sequence[Any],
    *,
    budget: Budget | None = None,
    name: str | None = None,
    archive: str | Path = "archive.db",
    runs: str | Path = "runs",
    seed: int | None = None,
) -> Result:
    """Look for a faster replacement of `module` for inputs like `example_inputs`, on the inputs' device.

    The module is traced once; candidates are compared with it in float64 on fresh random inputs of the same shapes and
    dtypes, and timed beside it and beside torch.compile. Raises UsageError when the module cannot be traced.
    """
    tensors = [x for x in example_inputs if isinstance(x, torch.Tensor)]
    if not tensors:
        raise UsageError("example_inputs hold no tensor")
    budget = budget or Budget()
    settings = settings_from(
        {
            "device": tensors[0].device.type,
            "max_candidates": budget.candidates,
            "time_s": budget.seconds,
            "seed": seed,
            "archive": Path(archive),
            "runs": Path(runs),
        }
    )
    problem = problem_from_module(module, example_inputs, name or type(module).__name__.lower())
    opened = open_new(problem, settings)
    walk(opened, _ignore)
    _, found, paths = finish(opened)
    shown = found.best_seen
    measurement = shown.result.measurement if shown else None
    return Result(
        run=opened.run,
        original=module,
        verdict=shown.result.verdict if shown else None,
        speedup=measurement.speedups.get("eager") if measurement else None,
        path=paths.winner if found.winner else None,
        report=paths.report,
    )


def verify(
    candidate: str | Path,
    reference: Reference,
    *,
    device: str | None = None,
    backend: str | None = None,
    precision: str | None = None,
    no_library: bool = False,
    timed: bool = True,
    baselines: Sequence[str] = DEFAULT_BASELINES,
    seed: int | None = None,
    timeout_s: float = Effort.timeout_s,
) -> Verified:
    """Judge one candidate, a file that defines `ModelNew` or its source text, against a reference.

    What is wrong with the candidate is the verdict. Raises UsageError for what cannot be read or used, and
    EnvironmentFault for what this machine lacks. `device` is that of the example inputs, else the CPU; `backend` is
    what the source defines; the seed is drawn anew unless given.
    """
    terms = _terms(reference, device, precision, no_library, timed, baselines, seed, timeout_s)
    (verified,) = judge([_named(candidate, backend)], _problem(reference), terms, _ignore)
    return verified


def bench(
    candidates: Sequence[str | Path],
    reference: Reference,
    *,
    device: str | None = None,
    backend: str | None = None,
    precision: str | None = None,
    no_library: bool = False,
    baselines: Sequence[str] = DEFAULT_BASELINES,
    seed: int | None = None,
    timeout_s: float = Effort.timeout_s,
) -> Benched:
    """Verify candidates and time them side by side. Arguments and errors are those of `verify`."""
    if not candidates:
        raise UsageError("there is no candidate to time")
    terms = _terms(reference, device, precision, no_library, True, baselines, seed, timeout_s)
    return compare([_named(c, backend) for c in candidates], _problem(reference), terms, _ignore)


def _terms(
    reference: Reference,
    device: str | None,
    precision: str | None,
    no_library: bool,
    timed: bool,
    baselines: Sequence[str],
    seed: int | None,
    timeout_s: float,
) -> Terms:
    if precision is not None and precision not in set(Precision):
        raise UsageError(f"precision is {precision!r}; use {', '.join(Precision)}")
    if device is None and isinstance(reference, tuple):
        device = next((x.device.type for x in reference[1] if isinstance(x, torch.Tensor)), None)
    return Terms(
        device=device or "cpu",
        precision=Precision(precision) if precision else None,
        no_library=no_library,
        timed=timed,
        baselines=tuple(baselines),
        timeout_s=timeout_s,
        **({} if seed is None else {"seed": seed}),
    )


def _problem(reference: Reference) -> Problem:
    if isinstance(reference, Problem):
        return reference
    if isinstance(reference, tuple):
        module, example_inputs = reference
        return problem_from_module(module, example_inputs, type(module).__name__.lower())
    return from_spec(str(reference))


def _named(candidate: str | Path, backend: str | None) -> tuple[str, Candidate]:
    if backend is not None and backend not in set(Backend):
        raise UsageError(f"backend is {backend!r}; use {', '.join(Backend)}")
    claimed = Backend(backend) if backend else None
    if isinstance(candidate, str) and "\n" in candidate:
        return "source", candidate_of(candidate, claimed)
    return str(candidate), read_candidate(Path(candidate), claimed)


def _ignore(event: Event) -> None:
    """A program that calls us prints what it likes itself."""
