"""Time several candidates of one problem, and say which are really faster.

Every candidate is verified, then timed with the baselines interleaved in each of its rounds. All candidates are gone
through twice, the second time in the opposite order, so that a slow drift of the machine meets them alike. What is
compared between candidates is the time beside eager's in the same round, not the bare time.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.evidence import exit_code
from kernelwright.agent.verification import Terms, Watch, check, job_of, judged, with_own_name, worker
from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.codec import to_json
from kernelwright.stages.execute.job import Effort, Executor, JobResult
from kernelwright.stages.measure import stats
from kernelwright.stages.types import Candidate, Measurement, Ratio, Status, Timing

SCHEMA = "kernelwright.bench/1"
PASSES = 2
"""Times that all candidates are gone through: once forward, once backward."""


@dataclass(frozen=True)
class Entry:
    """One candidate of a comparison."""

    name: str
    candidate: Candidate
    result: JobResult
    """Of all passes: the samples of each, and the worst verdict."""
    rank: int | None = None
    """1 for the fastest; candidates that cannot be told apart from the first of a rank share it. None: not timed."""

    @property
    def over_eager(self) -> Ratio | None:
        """Speedup over eager, where both were timed."""
        return self.result.measurement.speedups.get("eager") if self.result.measurement else None


@dataclass(frozen=True)
class Benched:
    """A comparison: the timed candidates, fastest first, then the refused ones."""

    problem: Problem
    terms: Terms
    entries: tuple[Entry, ...]
    indistinguishable: tuple[tuple[str, str], ...]
    """Pairs of names of which neither is faster than the other by our rule."""
    command: str

    @property
    def gains(self) -> list[Entry]:
        """Candidates whose whole interval over eager is a gain."""
        return [e for e in self.entries if e.over_eager is not None and stats.is_gain(e.over_eager)]

    def baselines(self) -> dict[str, float]:
        """Median milliseconds of each baseline beside all candidates."""
        pooled: dict[str, list[float]] = {}
        for entry in self.entries:
            for name, timing in _baselines(entry.result).items():
                pooled.setdefault(name, []).extend(timing.samples_ms)
        return {name: statistics.median(samples) for name, samples in pooled.items()}

    @property
    def exit_code(self) -> ExitCode:
        """0 when there is a gain, 6 when a candidate tampered, 3 when the machine failed, else 1."""
        found = exit_code(entry.result.verdict for entry in self.entries)
        if found in (ExitCode.TAMPERING, ExitCode.ENVIRONMENT):
            return found
        return ExitCode.GOAL_MET if self.gains else ExitCode.GOAL_NOT_MET


def compare(
    candidates: Sequence[tuple[str, Candidate]], problem: Problem, terms: Terms, watch: Watch, command: str = ""
) -> Benched:
    """Verify and time all candidates. Raises UsageError and EnvironmentFault as `verification.judge` does."""
    with worker() as executor:
        executor.start()
        check(problem, terms.device)
        return compared(executor, candidates, problem, terms, watch, command)


def compared(
    executor: Executor,
    candidates: Sequence[tuple[str, Candidate]],
    problem: Problem,
    terms: Terms,
    watch: Watch,
    command: str = "",
) -> Benched:
    """Verify and time all candidates. Their problem has passed `check`."""
    if not terms.timed:
        raise UsageError("a comparison without times compares nothing")
    named = dict(zip(_unique([name for name, _ in candidates]), (c for _, c in candidates), strict=True))
    rounds = -(-Effort.rounds // PASSES)
    results: dict[str, list[JobResult]] = {name: [] for name in named}
    for number in range(PASSES):
        order = list(named) if number % 2 == 0 else list(named)[::-1]
        for name in order:
            if any(r.verdict.status is not Status.CORRECT for r in results[name]):
                continue
            job = job_of(f"bench/{number}/{name}", named[name], problem, terms, rounds)
            results[name].append(with_own_name(judged(executor, job, watch), name))
    entries = [Entry(name, named[name], _together(found)) for name, found in results.items()]
    return _ranked(entries, problem, terms, command)


def _unique(names: Sequence[str]) -> list[str]:
    """The same file may be given twice, to see what no difference looks like."""
    return [f"{name} ({names[:i].count(name) + 1})" if name in names[:i] else name for i, name in enumerate(names)]


def _together(results: Sequence[JobResult]) -> JobResult:
    """One result of all passes."""
    refused = next((r for r in results if r.verdict.status is not Status.CORRECT), None)
    if refused is not None:
        return replace(refused, measurement=None)
    measured = [r.measurement for r in results if r.measurement]
    return replace(results[-1], measurement=_pooled(measured) if measured else None)


def _pooled(measured: Sequence[Measurement]) -> Measurement:
    def pool(timings: Sequence[Timing]) -> Timing:
        samples = tuple(s for timing in timings for s in timing.samples_ms)
        return Timing(samples, statistics.median(samples), timings[-1].calls_per_region)

    candidate = pool([m.candidate for m in measured])
    names = [name for name in measured[0].baselines if all(name in m.baselines for m in measured)]
    baselines = {name: pool([m.baselines[name] for m in measured]) for name in names}
    speedups = {name: stats.speedup(t.samples_ms, candidate.samples_ms) for name, t in baselines.items()}
    return replace(measured[-1], candidate=candidate, baselines=baselines, speedups=speedups)


def _ranked(entries: Sequence[Entry], problem: Problem, terms: Terms, command: str) -> Benched:
    timed = sorted((e for e in entries if e.result.measurement), key=lambda e: statistics.median(_relative(e)))
    refused = [e for e in entries if not e.result.measurement]
    ranked: list[Entry] = []
    leader: Entry | None = None
    for place, entry in enumerate(timed, 1):
        if leader is None or _faster(leader, entry):
            leader = replace(entry, rank=place)
        ranked.append(replace(entry, rank=leader.rank))
    ties = [(a.name, b.name) for a, b in combinations(timed, 2) if not (_faster(a, b) or _faster(b, a))]
    return Benched(problem, terms, (*ranked, *refused), tuple(ties), command)


def _relative(entry: Entry) -> list[float]:
    """The candidate's samples in units of eager's of the same round, or of the first baseline's that there is."""
    measurement = entry.result.measurement
    assert measurement is not None
    samples = measurement.candidate.samples_ms
    beside = measurement.baselines.get("eager") or next(iter(measurement.baselines.values()), None)
    return [c / b for c, b in zip(samples, beside.samples_ms, strict=True)] if beside else list(samples)


def _faster(first: Entry, second: Entry) -> bool:
    """Whether the first is faster than the second by our rule. Their rounds are not the same ones: the interval is as
    wide as that of independent samples."""
    mine, other = _relative(first), _relative(second)
    rounds = min(len(mine), len(other))
    return stats.is_gain(stats.speedup(other[:rounds], mine[:rounds]))


def _baselines(result: JobResult) -> dict[str, Timing]:
    return dict(result.measurement.baselines) if result.measurement else {}


def as_json(found: Benched) -> dict[str, Any]:
    """The object that `kernelwright bench --json` prints."""
    return {
        "schema": SCHEMA,
        "problem": found.problem.origin,
        "candidates": [_entry_json(entry) for entry in found.entries],
        "baselines": {name: {"median_ms": ms} for name, ms in found.baselines().items()},
        "indistinguishable": [list(pair) for pair in found.indistinguishable],
        "gains": [entry.name for entry in found.gains],
        "environment": to_json(found.entries[0].result.environment),
        "seed": found.terms.seed,
        "command": found.command,
        "exit_code": int(found.exit_code),
    }


def _entry_json(entry: Entry) -> dict[str, Any]:
    measurement = entry.result.measurement
    return {
        "name": entry.name,
        "hash": entry.candidate.hash,
        "backend": entry.candidate.backend.value,
        "verdict": entry.result.verdict.status.value,
        "message": entry.result.verdict.message,
        "rank": entry.rank,
        "median_ms": measurement.candidate.median_ms if measurement else None,
        "speedups": to_json(measurement.speedups) if measurement else {},
        "measurement": to_json(measurement),
    }
