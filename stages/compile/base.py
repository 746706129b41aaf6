"""Compile a candidate: one function over a table of back ends, with a private folder and a cache for each candidate.

To add a back end, write one file beside `cpp.py` whose function carries `@builds(Backend.X)`, and import it in
`stages/compile/__init__.py`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.compile import cache
from kernelwright.stages.compile.process import Finished, trimmed
from kernelwright.stages.types import Backend, Candidate, Compilation, KernelResources


@dataclass(frozen=True)
class Task:
    """What a back end is asked to build."""

    candidate: Candidate
    problem: Problem
    scratch: Path
    """Empty folder of this build alone; it is removed afterwards."""
    home: Path
    """The candidate's own folder, which stays: what the build gives as artefacts ends up here."""
    device: str
    """`cpu` or `cuda`: where the candidate is to run."""
    deadline_s: float


@dataclass(frozen=True)
class Built:
    """What a back end gave."""

    ok: bool
    log: str = ""
    resources: tuple[KernelResources, ...] = ()
    artefacts: tuple[Path, ...] = ()
    """Files in the scratch folder that the candidate loads when it runs."""
    final: bool = True
    """False when another try may end differently (the deadline passed): such a result is not cached."""


Builder = Callable[[Task], Built]

BUILDERS: dict[Backend, Builder] = {}
"""Filled by `@builds`."""


def builds(backend: Backend) -> Callable[[Builder], Builder]:
    """Register the decorated function as the builder of `backend`."""

    def register(builder: Builder) -> Builder:
        BUILDERS[backend] = builder
        return builder

    return register


def build_folder(candidate: Candidate, folder: Path) -> Path:
    """The candidate's own folder under `folder`: what KERNELWRIGHT_BUILD must name when the candidate runs."""
    return folder / candidate.hash[:32]


def triton_cache(candidate: Candidate, folder: Path) -> Path:
    """Where the candidate's Triton kernels are cached: what TRITON_CACHE_DIR must name when the candidate runs."""
    return build_folder(candidate, folder) / "triton"


def compile_candidate(
    candidate: Candidate, problem: Problem, folder: Path, *, device: str, deadline_s: float
) -> Compilation:
    """Compile `candidate` for `problem` and `device`, in `build_folder(candidate, folder)`.

    What the candidate does wrong is a Compilation that is not ok, with the compiler's own words. A finished result is
    cached by the candidate's hash, and given again with `cached=True`. Builders of the same candidate may run at once:
    each works in a folder of its own, and puts its files in place whole. Raises EnvironmentFault when the compiler is
    missing.
    """
    started = time.perf_counter()
    home = build_folder(candidate, folder).absolute()
    stamp = {"problem": problem.hash, "backend": candidate.backend.value, "device": device}
    if stored := cache.lookup(home, stamp):
        return replace(stored, cached=True)
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=home) as scratch_name:
        scratch = Path(scratch_name)
        built = _build(Task(candidate, problem, scratch, home, device, deadline_s))
        result = Compilation(
            ok=built.ok,
            backend=candidate.backend,
            seconds=time.perf_counter() - started,
            log=trimmed(built.log),
            resources=built.resources,
        )
        if built.final:
            digests = {path.name: cache.file_digest(path) for path in built.artefacts}
            for path in built.artefacts:
                path.replace(home / path.name)
            cache.store(home, stamp, result, digests, scratch)
    return result


def _build(task: Task) -> Built:
    try:
        compile(task.candidate.source, "candidate.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"candidate.py:{line}: " if line else "candidate.py: "
        return Built(ok=False, log=f"{where}{type(error).__name__}: {getattr(error, 'msg', error)}")
    return BUILDERS[task.candidate.backend](task)


def unfinished(finished: Finished, deadline_s: float) -> Built | None:
    """The result for a compiler that outlived its deadline or was killed by a signal; None when it ended by itself."""
    if finished.returncode is None:
        return Built(ok=False, log=f"compiler exceeded {deadline_s:g} s\n{finished.output}", final=False)
    if name := finished.signal_name:
        return Built(ok=False, log=f"compiler was ended by {name}\n{finished.output}", final=name != "SIGKILL")
    return None
