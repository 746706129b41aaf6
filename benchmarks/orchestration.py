"""What the loop itself costs a candidate: all but compiling, verifying and timing, which are answered at once.

    python benchmarks/orchestration.py [--json FILE]

Proposing (planning, rendering, Optuna), the archive's commits, the graph's checkpoints and the events all count.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from results import row, write

from kernelwright.agent.proposers.base import Context
from kernelwright.agent.proposers.builtin import BuiltinProposer
from kernelwright.agent.run import open_new, walk
from kernelwright.agent.settings import RunSettings
from kernelwright.kernelbench.sources import from_spec
from kernelwright.stages.execute.job import Job, JobResult, Progress
from kernelwright.stages.measure.devices import environment
from kernelwright.stages.types import Candidate, Check, Measurement, Ratio, Status, Timing, Verdict


class InstantExecutor:
    """Answers at once, with as much evidence as a real evaluation has."""

    def __init__(self) -> None:
        self.here = environment("cpu")

    def run(self, jobs: Iterable[Job], on_progress: Callable[[Progress], None]) -> Iterator[JobResult]:
        """One result a job."""
        here = self.here
        checks = tuple(Check(f"case {i}: largest error", True, 1e-7, 1e-6, "eager's own 1e-7") for i in range(25))
        for job in jobs:
            speedup = 1.0 + int(hashlib.sha256(job.candidate.hash.encode()).hexdigest()[:4], 16) / 65536
            samples = (1.0 / speedup,) * job.effort.rounds
            eager = Timing((1.0,) * job.effort.rounds, 1.0, 7)
            measurement = Measurement(
                Timing(samples, samples[0], 7),
                {"eager": eager, "compile": eager},
                {"eager": Ratio(speedup, speedup, speedup)},
                "",
            )
            yield JobResult(job.key, job.candidate.hash, Verdict(Status.CORRECT, "", checks), here, None, measurement)

    def close(self) -> None:
        """Nothing was started."""


class GpuProposer(BuiltinProposer):
    """Proposes for a GPU, where a template has hundreds of choices: a search long enough to measure."""

    def propose(self, context: Context) -> list[Candidate]:
        """As the built-in proposer on a machine with a GPU."""
        return super().propose(replace(context, device="cuda"))


def walk_seconds(folder: Path, candidates: int, seed: int) -> float:
    """Wall time of one whole walk with its start, but without checking the problem."""
    settings = RunSettings(
        archive=folder / "archive.db",
        runs=folder / "runs",
        max_candidates=candidates,
        patience=candidates,
        time_s=3600.0,
        seed=seed,
    )
    opened = open_new(from_spec("core/matmul_bias_gelu"), settings)
    start = time.perf_counter()
    walk(opened, lambda event: None, InstantExecutor(), GpuProposer())
    return time.perf_counter() - start


def main() -> None:
    """Time walks of two lengths: the difference is what a candidate costs."""
    parser = argparse.ArgumentParser(description="What the loop itself costs a candidate.")
    parser.add_argument("--json", type=Path, help="file for the rows, for example docs/results/orchestration.json")
    options = parser.parse_args()
    short, long, repeats = 16, 80, 15
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        walk_seconds(folder, short, seed=0)  # imports and caches
        found = []
        for seed in range(1, repeats + 1):
            brief, full = walk_seconds(folder, short, seed), walk_seconds(folder, long, seed)
            found.append((full - brief) * 1e3 / (long - short))
    each_ms = statistics.median(found)
    print(f"orchestration: {each_ms:.2f} ms a candidate (median of {repeats}; {min(found):.2f} to {max(found):.2f})")
    if options.json:
        write(options.json, [row("orchestration.ms_per_candidate", each_ms, "ms", repeats, environment("cpu"))])


if __name__ == "__main__":
    main()
