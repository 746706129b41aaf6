"""What a profile says of one candidate on one device, and the few lines of it that a prompt gets.

Standard library only: it travels to bare GPU machines. All of it was seen in the candidate's own process, or in one
that held its files. It is advice for whoever writes the next candidate, and never makes a verdict or a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernelwright.stages.types import SpeedOfLight

SUMMARY_KERNELS = 3
"""Kernels that the summary names."""
SHOWN_NAME = 60
"""Characters of a kernel's name in the summary."""


class Tier(StrEnum):
    """Where figures come from, the most telling first."""

    NCU = "ncu"
    """Hardware counters, read by Nsight Compute."""
    TORCH = "torch.profiler"
    """Which kernels and operators ran, how often, how long."""
    STATIC = "static"
    """What the compiler made: registers, shared memory, spills, instructions."""


class Bottleneck(StrEnum):
    """What keeps a call from being faster."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LATENCY = "latency"
    """Neither memory nor arithmetic is busy: work waits for work."""
    LAUNCH = "launch"
    """The device, or the kernel, waits for Python and the launches."""
    OCCUPANCY = "occupancy"
    """Too few threads are resident to hide latency: registers or shared memory forbid more."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Metric:
    """One figure with its unit. None where the tool gave none, or something that is no number."""

    name: str
    value: float | None
    unit: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name} n/a"
        return f"{self.name} {self.value:.3g}{'' if self.unit in ('', '%') else ' '}{self.unit}"


@dataclass(frozen=True)
class KernelTime:
    """One kernel, or on the CPU one operator or native function, within one call of the candidate."""

    name: str
    launches: float
    """In one call."""
    microseconds: float
    """In one call, all launches together, without what it called."""
    own: bool = False
    """Whether the candidate defines it."""


@dataclass(frozen=True)
class KernelCounters:
    """Hardware counters of one kernel, by Nsight Compute's names, as means over its launches."""

    kernel: str
    launches: int
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class KernelCode:
    """What the compiler made of one kernel or function. None: not said, or no such thing on this target."""

    kernel: str
    target: str
    """`sm_90a`, `x86-64`."""
    registers: int | None = None
    """Per thread."""
    shared_bytes: int | None = None
    """Per block, static and dynamic where both are known."""
    local_bytes: int | None = None
    """Stack and spills, per thread."""
    threads: int | None = None
    """Per block, where it is fixed when compiled."""
    instructions: Mapping[str, int] = field(default_factory=dict)
    """Counted in the code as it stands, not as it runs: by class (`static.CLASSES`)."""
    vector_bits: int | None = None
    """The widest register that floating-point arithmetic, or on a GPU a load from memory, uses."""


@dataclass(frozen=True)
class Finding:
    """The interpretation: what limits the candidate, the three to six metrics behind that, and what may help."""

    bottleneck: Bottleneck
    metrics: tuple[Metric, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Profile:
    """Everything that the tiers at hand gave."""

    candidate_hash: str
    device: str
    """`cpu` or `cuda`."""
    device_name: str
    tier: Tier | None = None
    """The most telling one that answered; None when none did."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """By tier: why it gave nothing, in one line."""
    call_ms: float | None = None
    """Milliseconds of one call among many, by the referee's clock; None where it was not called."""
    watched_ms: float | None = None
    """The same under the profiler, by the clock of the candidate's process."""
    kernels: tuple[KernelTime, ...] = ()
    counters: tuple[KernelCounters, ...] = ()
    code: tuple[KernelCode, ...] = ()
    speed_of_light: SpeedOfLight | None = None
    finding: Finding = field(default_factory=lambda: Finding(Bottleneck.UNKNOWN))

    @property
    def busy_ms(self) -> float | None:
        """Milliseconds of one call that the profiler saw in kernels and operators; None without that tier."""
        return sum(k.microseconds for k in self.kernels) / 1e3 if self.kernels else None

    def summary(self) -> str:
        """At most 12 lines for a prompt: bottleneck, metrics, longest kernels, advice, what is missing."""
        lines = [f"bottleneck: {self.finding.bottleneck.value} (from {self.tier.value if self.tier else 'nothing'})"]
        lines += [f"  {metric}" for metric in self.finding.metrics]
        for kernel in self.kernels[:SUMMARY_KERNELS]:
            share = kernel.microseconds / 10 / (self.busy_ms or 1.0)
            whose = "own" if kernel.own else "library"
            lines.append(f"  {share:.0f}% {kernel.name[:SHOWN_NAME]} ({whose}, {kernel.launches:g} a call)")
        if self.finding.advice:
            lines.append(f"advice: {self.finding.advice}")
        if self.missing:
            lines.append("no figures from: " + "; ".join(f"{tier} ({why})" for tier, why in self.missing.items()))
        return "\n".join(lines)
