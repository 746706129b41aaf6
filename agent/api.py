"""The Python API: hand in a module and example inputs, get a faster module back."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.agent.finish import finish
from kernelwright.agent.run import open_new, walk
from kernelwright.agent.settings import settings_from
from kernelwright.agent.ui.events import Event
from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.translate.from_module import copy_state, problem_from_module
from kernelwright.stages.types import Ratio, Verdict


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


def _ignore(event: Event) -> None:
    """A program that calls us prints what it likes itself."""
