"""What `ptxas -v` reports about each kernel: registers, static shared memory, spills."""

from __future__ import annotations

import re

from kernelwright.stages.types import KernelResources

_ENTRY = re.compile(r"Compiling entry function '(?P<kernel>[^']+)' for '(?P<target>[^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse(log: str) -> tuple[KernelResources, ...]:
    """The kernels of a log, in its order. Functions that are not kernels (`.func`) are counted in their callers."""
    entries = list(_ENTRY.finditer(log))
    ends = [entry.start() for entry in entries[1:]] + [len(log)]
    return tuple(
        _resources(entry["kernel"], entry["target"], log[entry.end() : end])
        for entry, end in zip(entries, ends, strict=True)
    )


def _resources(kernel: str, target: str, report: str) -> KernelResources:
    return KernelResources(
        kernel=kernel,
        target=target,
        registers=_number(_REGISTERS, report),
        shared_bytes=_number(_SHARED, report) or 0,
        spill_bytes=_number(_SPILLS, report),
    )


def _number(pattern: re.Pattern[str], report: str) -> int | None:
    found = pattern.search(report)
    return int(found[1]) if found else None
