"""From figures to a bottleneck, the few metrics behind it, and one sentence on what may help.

Rules in the order in which they are asked; the first that holds decides. With counters: Nsight Compute's own reading of
its Speed Of Light section, in which a unit that is 60 % busy limits the kernel, and a kernel that keeps neither memory
nor arithmetic that busy waits for latency (https://docs.nvidia.com/nsight-compute/ProfilingGuide/). Without: the
roofline (Williams, Waterman and Patterson, CACM 52, 2009), with the same 60 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.stages.profile import occupancy
from kernelwright.stages.profile.ncu import DRAM, L2_HIT, MEMORY, OCCUPANCY, SM, THEORETICAL, WAVES, stalls
from kernelwright.stages.profile.report import Bottleneck, Finding, KernelCode, Metric, Profile

BUSY = 60.0
"""Percent of its peak from which on a unit limits the kernel."""
IDLE = 50.0
"""Percent of a call in which nothing of it runs on the device (on a CPU: outside of every kernel and operator) from
which on launching limits it."""
FEW_WARPS = 35.0
"""Percent of the warps that a multiprocessor can hold: fewer, forced by registers or shared memory, hide little."""
VECTORISED = 0.5
"""Share of a function's floating-point instructions that work on several elements; a remainder loop is scalar."""
SMALL = 0.1
"""Share of the time below which a kernel is not counted: allocations, copies of a few numbers."""
MOST_METRICS = 6


@dataclass(frozen=True)
class Figures:
    """What the rules ask for. Percent where no unit is named; None: unknown."""

    on_gpu: bool
    idle: float | None
    """Of a call, outside of kernels."""
    kernels: int
    """Different kernels or operators that take a tenth of the time or more each."""
    byte_light: float | None
    """The time that least traffic takes, over the call's."""
    flop_light: float | None
    dram: float | None
    memory: float | None
    sm: float | None
    occupancy: float | None
    theoretical: float | None
    """Warps that fit beside each other, by the counters' or the compiler's word."""
    spilled: int
    """Bytes a thread."""
    packed: float | None
    """Share of floating-point instructions that are vectorised, 0 to 1; None without any, and on a GPU."""


def interpret(profile: Profile) -> Finding:
    """The finding of a profile, whose own `finding` is not looked at."""
    figures = figures_of(profile)
    for bottleneck, holds, advice in RULES:
        if holds(figures):
            return Finding(bottleneck, metrics(profile, figures)[:MOST_METRICS], advice)
    return Finding(Bottleneck.UNKNOWN, metrics(profile, figures)[:MOST_METRICS], "")


def figures_of(profile: Profile) -> Figures:
    """Work out what the rules ask for."""
    busy_us = sum(k.microseconds for k in profile.kernels)
    light, call_ms = profile.speed_of_light, profile.call_ms
    counted = profile.counters[0].values if profile.counters else {}
    own = [code for code in profile.code if code.instructions]
    return Figures(
        on_gpu=profile.device == "cuda",
        idle=_idle(profile, busy_us / 1e3),
        kernels=sum(1 for k in profile.kernels if k.microseconds >= SMALL * busy_us),
        byte_light=100.0 * light.byte_ms / call_ms if light and call_ms else None,
        flop_light=100.0 * light.flop_ms / call_ms if light and call_ms and light.flop_ms is not None else None,
        dram=counted.get(DRAM),
        memory=counted.get(MEMORY),
        sm=counted.get(SM),
        occupancy=counted.get(OCCUPANCY),
        theoretical=counted.get(THEORETICAL) or _least_resident(own),
        spilled=max((code.local_bytes or 0 for code in own), default=0),
        packed=None if profile.device == "cuda" else _packed_share(own),
    )


def _idle(profile: Profile, busy_ms: float) -> float | None:
    """On a GPU against the plain call, for the profiler slows the host and not the kernels; on a CPU it slows both."""
    whole_ms = profile.call_ms if profile.device == "cuda" else profile.watched_ms
    return 100.0 * max(0.0, 1.0 - busy_ms / whole_ms) if profile.kernels and whole_ms else None


def _least_resident(code: list[KernelCode]) -> float | None:
    return min((p for one in code if (p := occupancy.percent(one)) is not None), default=None)


def _packed_share(code: list[KernelCode]) -> float | None:
    """Calls of a math library count as arithmetic of its kind."""
    packed = sum(c.instructions.get(k, 0) for c in code for k in ("packed", "vector math call"))
    scalar = sum(c.instructions.get(k, 0) for c in code for k in ("scalar", "scalar math call"))
    return packed / (packed + scalar) if packed + scalar else None


def _counted(f: Figures) -> bool:
    return f.sm is not None and f.memory is not None


def _at_least(value: float | None, bound: float) -> bool:
    return value is not None and value >= bound


def _below(value: float | None, bound: float) -> bool:
    return value is not None and value < bound


def _memory_side(f: Figures) -> bool:
    """Whether the least traffic takes longer than the arithmetic."""
    return f.byte_light is not None and f.byte_light >= (f.flop_light or 0.0)


Rule = tuple[Bottleneck, Callable[[Figures], bool], str]

RULES: tuple[Rule, ...] = (
    (
        Bottleneck.LAUNCH,
        lambda f: _at_least(f.idle, IDLE) and f.on_gpu,
        "the device waits for the host: launch fewer kernels (fuse), do less in Python a call, allocate once",
    ),
    (
        Bottleneck.MEMORY,
        lambda f: _counted(f) and _at_least(f.memory, BUSY) and (f.memory or 0.0) >= (f.sm or 0.0),
        "memory is busy: move fewer bytes (fuse passes, keep the tile on chip, narrower intermediates)",
    ),
    (
        Bottleneck.COMPUTE,
        lambda f: _counted(f) and _at_least(f.sm, BUSY),
        "the multiprocessors are busy: fewer or cheaper instructions (tensor cores, cheaper special functions)",
    ),
    (
        Bottleneck.OCCUPANCY,
        lambda f: _counted(f) and _below(f.theoretical, FEW_WARPS),
        "registers or shared memory let few warps be resident: a smaller tile, fewer stages, fewer live values",
    ),
    (
        Bottleneck.LATENCY,
        _counted,
        "neither memory nor arithmetic is busy: keep more independent loads in flight (pipelining, wide loads)",
    ),
    (
        Bottleneck.MEMORY,
        lambda f: _at_least(f.byte_light, BUSY) and _memory_side(f),
        "close to what memory allows: only fewer bytes help (narrower types, fusion with what comes before or after)",
    ),
    (
        Bottleneck.COMPUTE,
        lambda f: _at_least(f.flop_light, BUSY),
        "close to what the arithmetic units allow: a cheaper algorithm, or faster units that the precision permits",
    ),
    (
        Bottleneck.LAUNCH,
        lambda f: _at_least(f.idle, IDLE),
        "most of the call is Python and dispatch: call fewer operators, prepare pointers and sizes once",
    ),
    (
        Bottleneck.COMPUTE,
        lambda f: _below(f.packed, VECTORISED),
        "the compiled loops are mostly scalar: let the compiler vectorise (omp simd, no calls or branches inside, -O3)",
    ),
    (
        Bottleneck.OCCUPANCY,
        lambda f: f.on_gpu and (f.spilled > 0 or _below(f.theoretical, FEW_WARPS)),
        "registers spill or let few warps be resident: a smaller tile, fewer stages, fewer live values",
    ),
    (
        Bottleneck.MEMORY,
        lambda f: f.kernels > 1 and _memory_side(f),
        "several kernels each read and write whole tensors: fuse them, so that intermediates stay on chip",
    ),
    (
        Bottleneck.LATENCY,
        lambda f: _memory_side(f) and f.idle is not None,
        "one kernel far from the memory's speed: wider loads, more of them in flight, more threads or blocks",
    ),
    (
        Bottleneck.COMPUTE,
        lambda f: f.flop_light is not None and f.idle is not None,
        "far from the arithmetic peak of a compute-heavy task: larger tiles, reuse of registers, tensor cores or SIMD",
    ),
)


def metrics(profile: Profile, figures: Figures) -> tuple[Metric, ...]:
    """What there is, the most telling first."""
    counted = profile.counters[0].values if profile.counters else {}
    longest_stall = stalls(counted)[:1]
    launches = sum(k.launches for k in profile.kernels) if profile.kernels else None
    own = next((code for code in profile.code if code.registers is not None), None)
    packed = None if figures.packed is None else 100.0 * figures.packed
    offered: tuple[Metric | None, ...] = (
        _metric("call", profile.call_ms, "ms"),
        _metric("outside of kernels", figures.idle, "% of the call"),
        _metric("least traffic", figures.byte_light, "% of the call's time"),
        _metric("DRAM", figures.dram, "% of peak"),
        _metric("multiprocessors", figures.sm, "% of peak"),
        *(_metric(f"stalled on {name}", value, "warps an issue") for name, value in longest_stall),
        _metric("occupancy", figures.occupancy, "% of warps"),
        _metric("vectorised", packed, "% of floating-point instructions"),
        _metric("launches", launches, "a call"),
        _metric("arithmetic", figures.flop_light or None, "% of the call's time at the best rate"),
        _metric("resident at most", figures.theoretical, "% of warps"),
        _metric("registers", own.registers if own else None, "a thread"),
        _metric("spills", figures.spilled or None, "bytes a thread"),
        _metric("L2 hits", counted.get(L2_HIT), "%"),
        _metric("waves", counted.get(WAVES), "of blocks"),
        _metric("shared memory", own.shared_bytes if own else None, "bytes a block"),
        _metric("widest load", own.vector_bits if own else None, "bits"),
    )
    return tuple(metric for metric in offered if metric is not None)


def _metric(name: str, value: float | None, unit: str) -> Metric | None:
    return None if value is None else Metric(name, float(value), unit)
