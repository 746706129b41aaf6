"""A/A: the reference beside itself, hundreds of times. How often does the referee see a gain where there is none?

    python benchmarks/aa.py run cpu --count 500 --log aa-cpu.jsonl --time 3600     goes on where the log ends
    python benchmarks/aa.py run cuda --count 200 --log aa-cuda.jsonl
    python benchmarks/aa.py report aa-cpu.jsonl aa-cuda.jsonl                      writes docs/results/referee.json

The candidate is the problem's own source with `Model` renamed, evaluated as `verify` does and as a search confirms its
winner: built, verified, timed beside eager in processes of their own, and what looks like a gain timed once more in
fresh ones. A false win is an interval whose lower end is above 1.02. `run` needs what a worker needs: torch, triton and
numpy.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import row, write

from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.sources import from_spec, reshaped
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.execute import reference
from kernelwright.stages.execute.job import Effort, Job, JobResult
from kernelwright.stages.execute.worker import Worker
from kernelwright.stages.measure.stats import MEANINGFUL, is_gain, upper_bound
from kernelwright.stages.types import Environment, Ratio, Status

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "results" / "referee.json"
PROBLEMS = ("softmax", "layernorm", "gelu_chain", "rmsnorm", "sum_reduction", "matmul", "conv_bias_relu", "token_mean")
BATCH = 10
"""Comparisons of one problem in a row: they share its inputs and its baseline."""


@dataclass(frozen=True)
class Comparison:
    """One line of the log."""

    problem: str
    seed: int
    mark: str
    status: Status
    message: str
    ratio: Ratio | None
    """Eager's time over the candidate's. None when the referee refused the candidate: an honest one."""
    environment: Environment

    @property
    def false_win(self) -> bool:
        """Whether our rule calls this a gain."""
        return self.ratio is not None and is_gain(self.ratio)


def read(log: Path) -> list[Comparison]:
    """What is logged. A line that a kill cut off is left out."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            found.append(from_json(Comparison, json.loads(line)))
        except json.JSONDecodeError:
            continue
    return found


def batches(done: Sequence[Comparison], count: int, problems: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """(problem, marks of its next comparisons), until there are `count` in all: the problem with the fewest first."""
    made = Counter(c.problem for c in done)
    number, missing = len(done), count - len(done)
    while missing > 0:
        problem = min(problems, key=lambda name: (made[name], problems.index(name)))
        marks = [f"copy {number + i}" for i in range(min(BATCH, missing))]
        yield problem, marks
        made[problem] += len(marks)
        number += len(marks)
        missing -= len(marks)


def jobs(problem: Problem, device: str, seed: int, marks: Sequence[str], effort: Effort) -> list[Job]:
    """One batch: a candidate a mark, all on the same inputs."""
    return [reference.job(problem, device, seed, effort=effort, mark=mark) for mark in marks]


def run(device: str, log: Path, count: int, limit_s: float, problems: Sequence[str], effort: Effort) -> None:
    """Compare until there are `count` lines, or the time is up."""
    began = time.monotonic()
    done = read(log)
    with tempfile.TemporaryDirectory(prefix="kernelwright-aa-") as cache:
        worker = Worker(Path(cache))
        try:
            for name, marks in batches(done, count, problems):
                if time.monotonic() - began > limit_s:
                    print(f"time is up; {len(done)} of {count}: run the same command to go on")
                    break
                seed = 1000 + len(done)
                batch = jobs(_problem(name, device), device, seed, marks, effort)
                for result in worker.run(batch, lambda progress: None):
                    done.append(comparison(name, seed, result))
                    with log.open("a") as lines:
                        lines.write(json.dumps(to_json(done[-1])) + "\n")
                print(f"{len(done)}/{count} {name}: {summary(done)}", flush=True)
        finally:
            worker.close()


def comparison(problem: str, seed: int, result: JobResult) -> Comparison:
    """What one evaluation says."""
    measurement = result.measurement
    return Comparison(
        problem=problem,
        seed=seed,
        mark=result.key.rsplit("/", 1)[-1],
        status=result.verdict.status,
        message=result.verdict.message.split("\n")[0],
        ratio=None if measurement is None else measurement.speedups.get("eager"),
        environment=result.environment,
    )


def summary(done: Sequence[Comparison]) -> str:
    """Counts, and the bound that they allow."""
    timed = [c for c in done if c.ratio is not None]
    if not timed:
        return f"none of {len(done)} was timed"
    wins = sum(c.false_win for c in timed)
    return (
        f"{wins} false wins above {MEANINGFUL} in {len(timed)} (rate at most {upper_bound(wins, len(timed)):.4f} "
        f"at 95 %), {len(done) - len(timed)} honest candidates refused"
    )


def rows(done: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Rows by device, and the worst device's rate as the one figure."""
    found = []
    for device in sorted({c.environment.device for c in done}):
        found += _rows_of(device, [c for c in done if c.environment.device == device])
    rates = [r for r in found if r["metric"].endswith("false_win_rate")]
    worst = max(rates, key=lambda r: r["high"], default=None)
    return [*found, worst | {"metric": "aa.false_win_rate"}] if worst is not None else found


def _rows_of(device: str, done: Sequence[Comparison]) -> list[dict[str, Any]]:
    timed = [c for c in done if c.ratio is not None]
    where, n = done[-1].environment, len(timed)
    refused = row(f"aa.{device}.refused", len(done) - n, "honest candidates", len(done), where)
    if not timed:
        return [refused]
    wins = sum(c.false_win for c in timed)
    # A one-sided bound: the low end is no statement.
    bound = {"low": 0.0, "high": round(upper_bound(wins, n), 5)}
    return [
        row(f"aa.{device}.false_win_rate", wins / n, "of comparisons", n, where, **bound),
        row(f"aa.{device}.false_wins", wins, "comparisons", n, where),
        refused,
    ]


def _problem(name: str, device: str) -> Problem:
    """The core problem, at its GPU shape where it has one and the device is one."""
    problem = from_spec(f"core/{name}")
    return (reshaped(problem, "gpu") if device == "cuda" else None) or problem


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="The reference beside itself.")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="compare, and append to the log")
    running.add_argument("device", choices=["cpu", "cuda"])
    running.add_argument("--count", type=int, default=None, help="comparisons in all (cpu 500, cuda 200)")
    running.add_argument("--log", type=Path, default=None)
    running.add_argument("--time", type=float, default=float("inf"), help="seconds after which no batch is begun")
    running.add_argument("--rounds", type=int, default=Effort.rounds)
    running.add_argument("--problems", default=",".join(PROBLEMS), help="names of the core suite")
    reporting = commands.add_parser("report", help="write the rows")
    reporting.add_argument("logs", nargs="+", type=Path)
    reporting.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()
    if options.command == "run":
        count = options.count or (500 if options.device == "cpu" else 200)
        log = options.log or Path(f"aa-{options.device}.jsonl")
        effort = Effort(thorough=False, screen_rounds=0, rounds=options.rounds, pairs=2)
        run(options.device, log, count, options.time, options.problems.split(","), effort)
        return
    done = [c for log in options.logs for c in read(log)]
    print(summary(done))
    write(options.out, rows(done))
    print(f"rows in {options.out.name}")


if __name__ == "__main__":
    main()
