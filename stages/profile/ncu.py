"""The tier of hardware counters: Nsight Compute's command line over a few kernels of one call.

Metrics: `ncu --query-metrics` and the profiling guide, https://docs.nvidia.com/nsight-compute/ProfilingGuide/. The
output's form: https://docs.nvidia.com/nsight-compute/NsightComputeCli/ (`--csv --page raw`).
"""

from __future__ import annotations

import csv
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright.stages.codec import to_json
from kernelwright.stages.profile.plain import number, words
from kernelwright.stages.profile.report import KernelCounters

TIME = "gpu__time_duration.sum"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_BYTES = "dram__bytes.sum"
L2_HIT = "lts__t_sector_hit_rate.pct"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
WAVES = "launch__waves_per_multiprocessor"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = {
    _STALL.format(name): words
    for name, words in {
        "long_scoreboard": "global memory",
        "short_scoreboard": "shared memory",
        "barrier": "barriers",
        "math_pipe_throttle": "busy arithmetic",
        "mio_throttle": "busy shared memory",
        "lg_throttle": "busy load units",
        "wait": "fixed latency",
    }.items()
}
METRICS = (TIME, SM, MEMORY, DRAM, DRAM_BYTES, L2_HIT, OCCUPANCY, THEORETICAL, WAVES, *STALLS)

PERMISSION = "ERR_NVGPUCTRPERM"
CLOSED = (
    "the host keeps the counters to administrators (ERR_NVGPUCTRPERM); the remedy is a setting of the driver: "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
ABSENT = "ncu (Nsight Compute) is not on PATH"
TOO_LONG = "ncu took longer than"
MOST_KERNELS = 20
MOST_LAUNCHES = 40
"""Launches of one call that are counted: ncu runs each several times over."""


def record(messages: Sequence[Mapping[str, Any]], slot: int, folder: Path, limit_s: float) -> dict[str, Any]:
    """Run ncu over one call of the candidate, in a process that is told what this one was told (`messages`).

    The answer holds `counters`, or `missing`: why there are none. `folder` is one that the process may write to.
    """
    tool = shutil.which("ncu")
    if tool is None:
        return {"missing": ABSENT}
    told, log = folder / "ncu-told.json", folder / "ncu-log.csv"
    told.write_text(json.dumps({"messages": list(messages), "slot": slot}))
    argv = [
        *(tool, "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
        # The device's clocks are nobody's to set.
        *("--clock-control", "none", "--profile-from-start", "off", "--target-processes", "all"),
        *("--launch-count", str(MOST_LAUNCHES), "--metrics", ",".join(METRICS)),
        *(sys.executable, "-m", "kernelwright.stages.profile.ncu_target", str(told)),
    ]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {"missing": f"{TOO_LONG} {limit_s:g} s"}
    said = log.read_text(errors="replace") if log.exists() else ""
    try:
        return {"counters": [to_json(one) for one in parse(said)]}
    except ValueError as error:
        return {"missing": f"{error} (status {done.returncode})"}


def parse(text: str) -> tuple[KernelCounters, ...]:
    """The kernels of a raw CSV page, each with the means over its launches; the one that took longest in all first.

    Raises ValueError when there is no table: it holds ncu's own reason (`refusal`).
    """
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise ValueError(refusal(text))
    rows = list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    by_kernel: dict[str, list[dict[str, float | None]]] = {}
    for row in rows:
        if row["ID"].strip().isdigit():
            values = {name: _figure(row.get(name)) for name in METRICS if name in row}
            by_kernel.setdefault(row["Kernel Name"], []).append(values)
    if not by_kernel:
        raise ValueError("ncu saw no kernel")
    found = [KernelCounters(words(name), len(every), _means(every)) for name, every in by_kernel.items()]
    found.sort(key=lambda one: -one.launches * (one.values.get(TIME) or 0.0))
    return tuple(found[:MOST_KERNELS])


def _figure(text: str | None) -> float | None:
    """A number of ncu's, with commas between thousands. `nan`, `n/a` and an empty cell are no figure."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _means(every: list[dict[str, float | None]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in every[0]:
        known = [value for values in every if (value := values.get(name)) is not None]
        found[name] = sum(known) / len(known) if known else None
    return found


def refusal(text: str) -> str:
    """Why ncu gave no table, in one line."""
    if PERMISSION in text:
        return CLOSED
    errors = [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
    return words(errors[0]) if errors else "ncu gave no table"


def lasting(reason: str) -> bool:
    """Whether the next candidate would find the same: the reason is the machine's, or trying again costs a minute."""
    return reason.startswith((CLOSED, ABSENT, TOO_LONG))


def stalls(values: Mapping[str, float | None]) -> list[tuple[str, float]]:
    """Why warps wait, in words, and how many wait for that at each instruction issued; the most first."""
    found = [(word, value) for name, word in STALLS.items() if (value := values.get(name)) is not None]
    return sorted(found, key=lambda one: -one[1])


def read(answer: Mapping[str, Any]) -> tuple[KernelCounters, ...]:
    """The kernels of an answer. Raises ValueError for one that is not of this form."""
    return tuple(_read_all(answer["counters"][:MOST_KERNELS]))


def _read_all(given: Iterable[Mapping[str, Any]]) -> Iterable[KernelCounters]:
    for one in given:
        figures = one["values"]
        values = {n: None if figures[n] is None else number(figures[n]) for n in METRICS if n in figures}
        yield KernelCounters(words(one["kernel"]), int(number(one["launches"])), values)
