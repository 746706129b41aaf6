"""Bundles: jobs in a folder, to be run on a machine that has the device but no network and nothing installed.

    jobs.jsonl      one job a line
    results.jsonl   one result a line, appended and synced as each is made

The worker skips what has a result, so that a bundle that ran into a time limit goes on where it stopped. The fastest
correct candidate of each problem is measured once more at the end, with fresh inputs (its key ends in `/confirm`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterable
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
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{folder}: exists already; a bundle is never overwritten") from None
    lines = [json.dumps(to_json(job)) for job in jobs]
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

    start = time.monotonic()
    everything = jobs(folder)
    done = results(folder)
    _drop_torn_line(folder)
    keys = {r.key for r in done}
    by_problem: dict[tuple[str, str], list[Job]] = {}
    for job in everything:
        by_problem.setdefault((job.problem.hash, job.device), []).append(job)
    worker = Worker(cache)
    try:
        with (folder / RESULTS).open("a") as out:
            for group in by_problem.values():
                for job in _waiting(group, done, keys):
                    if limit_s is not None and time.monotonic() - start > limit_s:
                        print(f"time limit: {len(keys)} results so far; run the same command to go on", file=sys.stderr)
                        return 4
                    for result in worker.run([job], lambda progress: None):
                        out.write(json.dumps(to_json(result)) + "\n")
                        out.flush()
                        os.fsync(out.fileno())
                        done.append(result)
                        keys.add(result.key)
                        print(_line(job, result), file=sys.stderr, flush=True)
    finally:
        worker.close()
    return 0


def _waiting(group: list[Job], done: list[JobResult], keys: set[str]) -> Iterable[Job]:
    """The jobs of one problem that have no result, then the confirmation of its best candidate."""
    for job in group:
        if job.key not in keys:
            yield job
    wanted = {job.key: job for job in group}
    best = fastest([r for r in done if r.key in wanted])
    if best is not None and best.key + CONFIRM not in keys:
        yield confirmation(wanted[best.key])


def fastest(found: Iterable[JobResult]) -> JobResult | None:
    """The correct result with the largest median speedup over eager, screened ones left out."""
    correct = [
        r for r in found if r.measurement and not r.measurement.screened_out and "eager" in r.measurement.speedups
    ]
    return max(correct, key=lambda r: r.measurement.speedups["eager"].median if r.measurement else 0.0, default=None)


def confirmation(job: Job) -> Job:
    """The same candidate once more: fresh inputs, twice the rounds, never screened out."""
    effort = dataclasses.replace(job.effort, rounds=2 * job.effort.rounds, screen_rounds=0)
    return dataclasses.replace(
        job, key=job.key + CONFIRM, seed=job.seed + SEED_STEP, effort=effort, incumbent_ms_over_eager=None
    )


def _drop_torn_line(folder: Path) -> None:
    path = folder / RESULTS
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            path.write_bytes(data[: data.rfind(b"\n") + 1])


def _line(job: Job, result: JobResult) -> str:
    speed = ""
    if result.measurement and "eager" in result.measurement.speedups:
        ratio = result.measurement.speedups["eager"]
        speed = f" {ratio.median:.2f}x over eager [{ratio.low:.2f}, {ratio.high:.2f}]"
    reason = result.verdict.message.splitlines()[0] if result.verdict.message else ""
    return f"{job.problem.name} {result.key} {result.verdict.status}{speed} {reason}".rstrip()
