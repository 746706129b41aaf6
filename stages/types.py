"""The few types that the stages exchange: frozen, typed, and serialisable to JSON by `stages.codec`.

Standard library only: a worker on a bare GPU machine imports this file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

Scalar = int | float | str | bool


class Status(StrEnum):
    """What the referee found. Only CORRECT may be used; UNKNOWN is never a pass."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    COMPILE_ERROR = "compile_error"
    STATIC_REJECT = "static_reject"
    CRASH = "crash"
    HANG = "hang"
    OOM = "oom"
    TAMPERED = "tampered"
    IMPLAUSIBLE = "implausible"
    UNGRADABLE = "ungradable"
    """The task cannot tell right from wrong: its fault, not the candidate's."""
    ENV_ERROR = "env_error"
    """The machine failed, not the candidate: never shown to a model as "your kernel failed"."""
    UNKNOWN = "unknown"


class Backend(StrEnum):
    """What a candidate's kernels are written in. TORCH: no kernel of its own, library calls only."""

    CPP = "cpp"
    TRITON = "triton"
    CUDA = "cuda"
    TORCH = "torch"


@dataclass(frozen=True)
class Candidate:
    """One proposed replacement: a Python file that defines `ModelNew`, with its origin."""

    source: str
    backend: Backend
    proposer: str
    directive: str = ""
    """What the proposer set out to do, in a few words ("fuse the whole row, two passes")."""
    parents: tuple[str, ...] = ()
    """Hashes of the candidates that it was derived from."""
    template: str = ""
    """The generator's template that wrote it; empty when a person or a model did."""
    tunables: Mapping[str, Scalar] = field(default_factory=dict)
    """The template's parameters, as chosen."""
    library_ops: tuple[str, ...] = ()
    """Operators of the reference that stay library calls inside the candidate (aten names)."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the source, 64 hexadecimal digits: the candidate's address everywhere."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclass(frozen=True)
class Check:
    """One check of a verdict: its figure beside its bound, both None where the check has no number."""

    name: str
    passed: bool
    figure: float | None = None
    bound: float | None = None
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the referee found out about a candidate, with the evidence."""

    status: Status
    message: str = ""
    """For a person or a model: what is wrong and where. Empty for CORRECT."""
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class KernelResources:
    """What the compiler says that one kernel needs on its target."""

    kernel: str
    target: str
    """For example `sm_90` or `x86-64`."""
    registers: int | None = None
    """Per thread."""
    shared_bytes: int | None = None
    """Per block, static and dynamic."""
    spill_bytes: int | None = None
    """Local-memory spill stores per thread."""


@dataclass(frozen=True)
class Compilation:
    """What compiling a candidate gave: `ok`, the compiler's own words, and the resources of each kernel."""

    ok: bool
    backend: Backend
    seconds: float
    cached: bool = False
    log: str = ""
    resources: tuple[KernelResources, ...] = ()


@dataclass(frozen=True)
class Timing:
    """Milliseconds a call. Each sample is the mean over one timed region of several calls."""

    samples_ms: tuple[float, ...]
    median_ms: float
    calls_per_region: int


@dataclass(frozen=True)
class Ratio:
    """A speedup (baseline time over candidate time) with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Measurement:
    """Times of a candidate and of the baselines that were interleaved with it in the same run."""

    candidate: Timing
    baselines: Mapping[str, Timing]
    """By name: `eager`, `compile`."""
    speedups: Mapping[str, Ratio]
    """By baseline's name."""
    method: str
    """How it was timed, in words: the clock, the order, cold or warm cache."""
    screened_out: bool = False
    """True when timing ended early since the candidate was clearly slower than the incumbent."""


@dataclass(frozen=True)
class Environment:
    """Where a verdict or a time was obtained."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str
    driver: str
    torch: str
    triton: str
    python: str
    threads: int
    """CPU threads that torch uses."""
