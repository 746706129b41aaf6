"""Bundles: jobs in a folder, to be run on a machine that has the device but no network and nothing installed.

    jobs.jsonl      one job a line
    results.jsonl   one result a line, appended and synced as each is made

The worker skips what has a result, so that a bundle that ran into a time limit goes on where it stopped. The fastest
correct candidate of each problem is measured once more at the end, with fresh inputs (its key ends in `/confirm`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernelwright.kernelbench.errors import UsageError
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.execute.job import Job, JobResult

JOBS, RESULTS = "jobs.jsonl", "results.jsonl"
CONFIRM = "/confirm"
SEED_STEP = 1_000_003
"""Added to the seed for the confirming measurement: its inputs are not those of the search."""


def write(folder: Path, jobs: Iterable[Job]) -> int:
    """Make a bundle; returns the number of jobs. Raises UsageError when the folder exists already."""
    lines = [json.dumps(to_json(job)) for job in jobs]
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{folder}: exists already; a bundle is never overwritten") from None
    (folder / JOBS).write_text("".join(line + "\n" for line in lines))
    return len(lines)


def jobs(folder: Path) -> list[Job]:
    """The jobs of a bundle. Raises UsageError naming the line that cannot be read."""
    path = folder / JOBS
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; is {folder} a bundle made by `kernelwright jobs export`?"
        ) from None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(from_json(Job, json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path}:{number}: no job: {error}") from None
    return found


def results(folder: Path) -> list[JobResult]:
    """The results so far. A last line that was cut off by a kill is left out: its job runs again."""
    path = folder / RESULTS
    if not path.exists():
        return []
    found = []
    lines = path.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line.endswith("\n"):
            break
        try:
            found.append(from_json(JobResult, json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path}:{number}: no result: {error}") from None
    return found


def run_bundle(folder: Path, cache: Path, limit_s: float | None) -> int:
    """Run what has no result yet. Returns 0 when every job has one, 4 when the time limit came first."""
    from kernelwright.stages.execute.worker import Worker

    ends = math.inf if limit_s is None else time.monotonic() + limit_s
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs(folder):
        groups.setdefault((job.problem.hash, job.device), []).append(job)
    done = {r.key: r for r in results(folder)}
    _drop_torn_line(folder)
    if not any(waiting(group, done) for group in groups.values()):
        return 0
    worker = Worker(cache)
    try:
        with (folder / RESULTS).open("a") as out:
            for group in groups.values():
                while batch := waiting(group, done):
                    # The whole batch is handed over at once: compiling runs ahead of the device.
                    for result in worker.run(batch, lambda progress: None):
                        out.write(json.dumps(to_json(result)) + "\n")
                        out.flush()
                        os.fsync(out.fileno())
                        done[result.key] = result
                        print(_line(group[0].problem.name, result), file=sys.stderr, flush=True)
                        if time.monotonic() > ends and any(waiting(g, done) for g in groups.values()):
                            print("the time is over; run the same command again to go on", file=sys.stderr)
                            return 4
    finally:
        worker.close()
    return 0


def waiting(group: list[Job], done: Mapping[str, JobResult]) -> list[Job]:
    """The jobs of one problem that have no result; once all have one, the confirmation of the fastest candidate."""
    left = [job for job in group if job.key not in done]
    if left:
        return left
    best = fastest([done[job.key] for job in group])
    if best is None or best.key + CONFIRM in done:
        return []
    return [confirmation(next(job for job in group if job.key == best.key))]


def fastest(found: Iterable[JobResult]) -> JobResult | None:
    """The correct result with the largest median speedup over eager, screened ones left out."""
    correct = [
        r for r in found if r.measurement and not r.measurement.screened_out and "eager" in r.measurement.speedups
    ]
    return max(correct, key=lambda r: r.measurement.speedups["eager"].median if r.measurement else 0.0, default=None)


def confirmation(job: Job) -> Job:
    """The same candidate once more: fresh inputs, twice the rounds, never screened out, a gain seen in two pairs."""
    effort = dataclasses.replace(job.effort, rounds=2 * job.effort.rounds, screen_rounds=0, pairs=2)
    return dataclasses.replace(
        job, key=job.key + CONFIRM, seed=job.seed + SEED_STEP, effort=effort, incumbent_ms_over_eager=None
    )


def _drop_torn_line(folder: Path) -> None:
    path = folder / RESULTS
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            path.write_bytes(data[: data.rfind(b"\n") + 1])


def _line(problem: str, result: JobResult) -> str:
    speed = ""
    if result.measurement and "eager" in result.measurement.speedups:
        ratio = result.measurement.speedups["eager"]
        speed = f" {ratio.median:.2f}x over eager [{ratio.low:.2f}, {ratio.high:.2f}]"
    reason = result.verdict.message.splitlines()[0] if result.verdict.message else ""
    return f"{problem} {result.key} {result.verdict.status}{speed} {reason}".rstrip()
