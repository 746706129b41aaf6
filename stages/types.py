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
    refutes: Status = Status.INCORRECT
    """The verdict that follows when the check fails."""


@dataclass(frozen=True)
class KernelShare:
    """One kernel that a candidate's call launched, and its share of the call's device time."""

    name: str
    share: float
    own: bool
    """Whether the candidate's source defines it."""


@dataclass(frozen=True)
class OwnWork:
    """What a candidate really ran, as seen from outside: evidence, and what `--no-library` is decided by."""

    operators: Mapping[str, int] = field(default_factory=dict)
    """Dispatched operators that compute (aten names) and how often one call ran each."""
    kernels: tuple[KernelShare, ...] = ()
    """Empty where the device has no profiler."""
    ablated: Mapping[str, bool | None] = field(default_factory=dict)
    """By own kernel: whether the output breaks when the kernel does nothing. None: it could not be ablated."""


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
    """A speedup (baseline time over candidate time) with an interval that holds the true one in at least 95 %."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class SpeedOfLight:
    """The least time that the device could take for a call, beside what the candidate took."""

    bytes_least: int
    """Outputs written once, and once each input that the answer depends on."""
    flops: int
    byte_ms: float
    flop_ms: float | None
    """At the best honest rate of the precision contract; None where the rate is unknown."""
    fraction: float
    """The larger bound over the candidate's median: 1.0 is the speed of light."""
    quarantines: bool
    """Whether the byte bound may refuse here: traffic far larger than the cache, and cold inputs."""
    label: str = ""
    """`algebraic?` where the FLOP bound is beaten: another algorithm, or less work than it should be."""


@dataclass(frozen=True)
class DeviceState:
    """What the device was doing while it was timed: logged, never set."""

    clocks_mhz: tuple[int, ...] = ()
    """One sample a round."""
    throttled: tuple[str, ...] = ()
    """Reasons that were seen, in words."""
    others: int = 0
    """Processes of other owners that were on the device."""


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
    warm: Timing | None = None
    """The candidate on one set of inputs, which then lie in the cache; None where that was not measured."""
    graph_replay_ms: float | None = None
    """Milliseconds a call when replayed as a CUDA graph. Shown beside the rest; it never decides."""
    speed_of_light: SpeedOfLight | None = None
    device_state: DeviceState | None = None


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
