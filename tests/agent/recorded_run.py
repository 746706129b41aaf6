"""A run over recorded times, in a process of its own that a test may kill: `python recorded_run.py FOLDER [RUN]`."""

import dataclasses
import hashlib
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kernelwright.agent.run import open_again, open_new, walk
from kernelwright.agent.settings import RunSettings
from kernelwright.agent.ui.events import Evaluated, Event
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.execute.recorded import RecordedExecutor
from kernelwright.stages.generate import templates_for
from kernelwright.stages.translate import translate
from kernelwright.stages.types import Candidate, Check, Environment, Measurement, Ratio, Status, Timing, Verdict

SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2.0, dim=-1)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
"""
PROBLEM = Problem("recorded", SOURCE, "recorded.py")
SEED = 20261201


def settings(folder: Path) -> RunSettings:
    return RunSettings(
        archive=folder / "archive.db",
        runs=folder / "runs",
        seed=SEED,
        max_candidates=10,
        generation_size=3,
        patience=9,
        time_s=3600.0,
    )


def recorded() -> list[JobResult]:
    """A result for every point of the generator's space, from the candidate's hash: every fifth one is wrong."""
    (template,) = templates_for(PROBLEM, translate(PROBLEM), "cpu")
    points = itertools.product(*template.space.values())
    made = [template.candidate(dict(zip(template.space, values, strict=True))) for values in points]
    return [_result(c, key) for c in made for key in ("search", "search/confirm")]


def _result(candidate: Candidate, key: str) -> JobResult:
    number = int(hashlib.sha256(candidate.hash.encode()).hexdigest()[:6], 16)
    speedup = 1.0 + number % 1000 / 500
    environment = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)
    if number % 5 == 0:
        return JobResult(key, candidate.hash, Verdict(Status.INCORRECT, "off by one"), environment)
    timing = Timing((1.0 / speedup,) * 5, 1.0 / speedup, 7)
    measurement = Measurement(
        timing,
        {"eager": Timing((1.0,) * 5, 1.0, 7)},
        {"eager": Ratio(speedup, speedup * 0.99, speedup * 1.01)},
        "record",
    )
    checks = (Check("case 0", True, 1e-7, 1e-6),)
    return JobResult(key, candidate.hash, Verdict(Status.CORRECT, "", checks), environment, None, measurement)


class SlowRecords(RecordedExecutor):
    """Takes a moment for each result, so that a kill can fall between two."""

    def run(self, jobs: object, on_progress: object) -> Iterator[JobResult]:  # type: ignore[override]
        for result in super().run(jobs, on_progress):  # type: ignore[arg-type]
            time.sleep(0.03)
            yield dataclasses.replace(result)


def main(folder: Path, run: str | None) -> None:
    opened = open_again(run, folder / "archive.db") if run else open_new(PROBLEM, settings(folder))
    (folder / "run").write_text(opened.run)
    with (folder / "acknowledged").open("a", buffering=1) as acknowledged:

        def observe(event: Event) -> None:
            if isinstance(event, Evaluated):
                acknowledged.write(f"{event.candidate.hash} {event.confirmed}\n")

        print("begun", flush=True)
        walk(opened, observe, SlowRecords(recorded()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
