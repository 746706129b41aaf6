"""The three examples: their confirmed speedups, from a run on this machine's CPU or from a bundle's results.

    python benchmarks/foundation.py cpu                        runs `optimize` on each example here
    python benchmarks/foundation.py archive archive.db h200    reads what `jobs import` has stored

Rows go to docs/results/foundation.json: `rmsnorm.cpu.speedup_over_eager`, `rmsnorm.h200.speedup_over_eager`, and so on.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from results import row, write

from kernelwright.agent.finish import finish
from kernelwright.agent.outcome import outcome
from kernelwright.agent.run import open_new, walk
from kernelwright.agent.settings import RunSettings
from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.archive import Archive, Record

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "results" / "foundation.json"
EXAMPLES = ("rmsnorm", "pointwise_chain", "softmax")


def rows_of(record: Record, problem: str, place: str, shape: str | None) -> list[dict[str, Any]]:
    """A confirmed measurement as rows, each with its interval."""
    measurement = record.result.measurement
    assert measurement is not None
    n, where = len(measurement.candidate.samples_ms), record.result.environment
    found = []
    for baseline, ratio in measurement.speedups.items():
        interval = {"low": round(ratio.low, 4), "high": round(ratio.high, 4), "shape": shape}
        found.append(row(f"{problem}.{place}.speedup_over_{baseline}", ratio.median, "x", n, where, **interval))
    times = {"candidate": measurement.candidate, **measurement.baselines}
    found += [
        row(f"{problem}.{place}.{name}_ms", t.median_ms, "ms", n, where, shape=shape) for name, t in times.items()
    ]
    return found


def measure_here() -> list[dict[str, Any]]:
    """Optimize each example on this CPU, with the default settings."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        settings = RunSettings(archive=Path(name) / "archive.db", runs=Path(name) / "runs")
        for example in EXAMPLES:
            start = time.monotonic()
            opened = open_new(from_spec(str(ROOT / "examples" / f"{example}.py")), settings)
            walk(opened, lambda event: None)
            _, result, _ = finish(opened)
            took_s = time.monotonic() - start
            best = result.best_seen
            assert best is not None
            found += rows_of(best, example, "cpu", None)
            found.append(row(f"{example}.cpu.run_seconds", took_s, "s", 1, best.result.environment))
            print(f"{example}: {best.result.measurement and best.result.measurement.speedups} in {took_s:.0f} s")
    return found


def read(archive_path: Path, place: str) -> list[dict[str, Any]]:
    """The latest confirmed measurement of each example in an archive."""
    found: list[dict[str, Any]] = []
    with Archive.open(archive_path) as archive:
        for run in reversed(archive.runs()):
            problem = archive.problem(run.problem_hash)
            best = outcome(archive, run.id).winner
            if best is not None and problem.name in EXAMPLES:
                fresh = rows_of(best, problem.name, place, problem.shape)
                found = [r for r in found if r["metric"] not in {f["metric"] for f in fresh}] + fresh
    return found


def main() -> None:
    """Measure or read, then write the rows."""
    parser = argparse.ArgumentParser(description="Figures of the three examples.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("cpu")
    stored = commands.add_parser("archive")
    stored.add_argument("path", type=Path)
    stored.add_argument("place", help="the metric's second part, for example h200")
    options = parser.parse_args()
    rows = measure_here() if options.command == "cpu" else read(options.path, options.place)
    write(TARGET, rows)
    print(f"{len(rows)} rows in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
