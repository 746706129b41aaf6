"""The build phase: a candidate is imported, constructed and called once in a process that is thrown away.

Only here may it start compilers (Triton's assembler, ninja and g++ for torch extensions). What they leave in the
candidate's own cache folder is read-only in the process that is verified and timed. The same throwaway process is
where a candidate is looked into: which operators it runs, and whether its own kernels matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.stages.compile import build_folder
from kernelwright.stages.compile.deferred import builds_itself, calls_extension_loader
from kernelwright.stages.execute.job import Job
from kernelwright.stages.sandbox import stream
from kernelwright.stages.sandbox.arena import Arena
from kernelwright.stages.sandbox.confine import Phase
from kernelwright.stages.sandbox.pool import Runner, Zygote
from kernelwright.stages.types import Backend, Candidate

EXTENSION_TIMEOUT_S = 300.0
"""A torch extension takes half a minute to compile on a fast machine, since it includes torch's headers."""


@dataclass(frozen=True)
class Build:
    """What the throwaway process told. None of it counts in the candidate's favour."""

    seconds: float
    inspection: Mapping[str, Any] | None
    """Operators, kernels and ablations (`sandbox/inspect.py`); None for a candidate without kernels of its own."""


def caches(candidate: Candidate, cache: Path) -> dict[str, str]:
    """Environment variables that keep every compiler's results in the candidate's own folder."""
    folder = build_folder(candidate, cache).absolute()
    return {
        "KERNELWRIGHT_BUILD": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def needed(candidate: Candidate) -> bool:
    """Whether a candidate has something to build or to look into."""
    return candidate.backend is not Backend.TORCH or builds_itself(candidate)


def timeout_s(job: Job) -> float:
    """How long importing and first calling a candidate may take."""
    if calls_extension_loader(job.candidate.source):
        return max(job.effort.timeout_s, EXTENSION_TIMEOUT_S)
    return job.effort.timeout_s


def build(zygote: Zygote, job: Job, cache: Path, arena: Arena, load: Callable[[Runner], None]) -> Build:
    """Run the phase on what the arena's first slot holds. Raises RunnerFailed for what the candidate does wrong."""
    start = time.monotonic()
    limit = timeout_s(job)
    for folder in caches(job.candidate, cache).values():
        Path(folder).mkdir(parents=True, exist_ok=True)
    runner = zygote.spawn(Phase.BUILD, [build_folder(job.candidate, cache).absolute()])
    try:
        load(runner)
        arena.connect(runner)
        arena.load_state(runner, limit)
        slot = next(iter(arena.slots))
        stream.begin(runner, limit, restore=True)
        stream.call(runner, [[slot]], limit)
        inspection = None
        if job.candidate.backend is not Backend.TORCH:
            inspection = runner.ask("inspect", limit, slot=slot)
        return Build(time.monotonic() - start, inspection)
    finally:
        runner.kill()
