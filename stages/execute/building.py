"""The build phase: a candidate is imported, constructed and called once in a process that is thrown away.

Only here may it start compilers (Triton's assembler, ninja and g++ for torch extensions). What they leave in the
candidate's own cache folder is read-only in the process that is verified and timed. The same throwaway process is
where a candidate is looked into: which operators it runs, and whether its own kernels matter.
"""

from __future__ import annotations

import ast
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.stages.codec import from_json
from kernelwright.stages.compile import build_folder
from kernelwright.stages.compile.deferred import builds_itself, calls_extension_loader
from kernelwright.stages.execute.job import Job
from kernelwright.stages.sandbox import stream
from kernelwright.stages.sandbox.arena import Arena, connect
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Runner, RunnerFailed, Zygote
from kernelwright.stages.types import Backend, Candidate, Check, KernelResources
from kernelwright.stages.verify import conduct
from kernelwright.stages.verify.cases import Case
from kernelwright.stages.verify.source_form import read_form

EXTENSION_TIMEOUT_S = 300.0
"""A torch extension takes half a minute to compile on a fast machine, since it includes torch's headers."""

DRIVER_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Build:
    """What the throwaway process told. None of it counts in the candidate's favour."""

    seconds: float
    resources: tuple[KernelResources, ...]
    """Of the Triton kernels that it launched."""
    inspection: dict[str, Any]
    """Operators, kernels and ablations (`sandbox/inspect`)."""
    conduct: list[Check]
    """What it was seen doing that a kernel has no need of."""


def caches(candidate: Candidate, cache: Path) -> dict[str, str]:
    """Environment variables that keep every compiler's results in the candidate's own folder."""
    folder = build_folder(candidate, cache).absolute()
    return {
        "KERNELWRIGHT_BUILD": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def make_folders(candidate: Candidate, cache: Path, compiled: Path | None) -> None:
    """Make the candidate's own folders. `compiled`: a Triton cache that its own begins with."""
    folders = caches(candidate, cache)
    for folder in folders.values():
        Path(folder).mkdir(parents=True, exist_ok=True)
    if compiled is not None:
        shutil.copytree(compiled, folders["TRITON_CACHE_DIR"], dirs_exist_ok=True)


def needed(candidate: Candidate) -> bool:
    """Whether a candidate has something to build or to look into: kernels, or handlers that may compute the answer."""
    return (
        candidate.backend is not Backend.TORCH
        or builds_itself(candidate)
        or bool(read_form(candidate.source).backends)
        or has_handlers(candidate.source)
    )


def timeout_s(job: Job) -> float:
    """How long importing and first calling a candidate may take."""
    if calls_extension_loader(job.candidate.source):
        return max(job.effort.timeout_s, EXTENSION_TIMEOUT_S)
    return job.effort.timeout_s


def build(
    runner: Runner,
    job: Job,
    cache: Path,
    arena: Arena,
    cases: Sequence[Case],
    load: Callable[[Runner], None],
    compiled: Path | None = None,
) -> Build:
    """Run the phase on two cases, in `runner`, which ends here. Raises RunnerFailed for what the candidate does.

    `compiled`: a Triton cache that its own begins with.
    """
    start = time.monotonic()
    limit = timeout_s(job)
    make_folders(job.candidate, cache, compiled)
    arena.write_state(cases[0])
    slots = list(arena.slots)[: len(cases)]
    for slot, case in zip(slots, cases, strict=True):
        arena.write_slot(slot, case)
    profile = job.effort.detailed or job.no_library
    try:
        load(runner)
        connect(runner, [arena])
        arena.load_state(runner, limit)
        stream.begin(runner, limit, restore=True)
        stream.call(runner, [slots[:1]], limit)
        resources: list[Any] = []
        if job.candidate.backend is Backend.TRITON and job.device == "cuda":
            resources = runner.ask("resources", limit)["resources"]
        return Build(
            inspection=runner.ask("inspect", limit, slot=slots[0], other=slots[-1], profile=profile),
            conduct=[c for c in conduct.report(runner, limit) if not c.passed],
            resources=tuple(from_json(KernelResources, data) for data in resources),
            seconds=time.monotonic() - start,
        )
    except RunnerFailed:
        seen = [c for c in conduct.report(runner, limit) if not c.passed]
        if not seen:
            raise
        return Build(time.monotonic() - start, (), {}, seen)
    finally:
        runner.kill()


def triton_driver(zygote: Zygote, folder: Path) -> Path | None:
    """A Triton cache that holds what every Triton candidate would compile in the same way: 0.4 s of a core each.

    Made by a process that never sees a candidate. None where it cannot be had: candidates then compile their own.
    """
    if folder.exists():
        return folder
    runner = zygote.spawn(Phase.TRUSTED)
    try:
        runner.ask("triton_driver", DRIVER_TIMEOUT_S, folder=str(folder.absolute()))
    except RunnerFailed:
        return None
    finally:
        runner.kill()
    return folder


def has_handlers(source: str) -> bool:
    """Whether a function in the source handles exceptions."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(isinstance(node, ast.Try | ast.TryStar) for function in functions for node in ast.walk(function))
