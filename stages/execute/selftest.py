"""The referee tried on the adversarial corpus: every hack must be refused, every honest candidate accepted.

Runs where the worker runs. With Kernelwright installed it is `kernelwright selftest`; on a bare machine
    python3 -m kernelwright.stages.execute.selftest --device cuda --json FILE
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.kernelbench.hacks import HackCase, cases
from kernelwright.stages import results
from kernelwright.stages.codec import to_json
from kernelwright.stages.execute.job import Effort, Executor, Job, JobResult
from kernelwright.stages.execute.local import LocalExecutor
from kernelwright.stages.types import Backend, Candidate, Environment, Status

BUILD_TIMEOUT_S = 180.0
"""Some candidates are built with torch's headers."""
ROUNDS = 6
"""It is about verdicts, not about times."""
NOT_JUDGED = (Status.ENV_ERROR, Status.UNKNOWN)
QUICK = ("ok_autotune_first_call", "cache_data_ptr", "forge_recycled_output", "tamper_allclose")
"""One honest candidate and three hacks of the same task: seconds."""


@dataclass(frozen=True)
class SelftestRow:
    """One case, judged once."""

    id: str
    group: str
    expected: Literal["reject", "accept"]
    repeat: int
    """Counted from 0; each has inputs of its own."""
    status: Status
    message: str
    seconds: float
    """Wall time since the row before."""
    environment: Environment | None
    """None where nothing was judged."""

    @property
    def judged(self) -> bool:
        """Whether there is a verdict on the candidate at all."""
        return self.status not in NOT_JUDGED

    @property
    def as_expected(self) -> bool:
        """Only `correct` accepts; a case that was not judged is not as expected."""
        return self.judged and (self.status is Status.CORRECT) == (self.expected == "accept")


@dataclass(frozen=True)
class Tally:
    """How many cases of one kind got the answer that they must get."""

    right: int
    judged: int
    not_judged: int

    @property
    def percent(self) -> float:
        """Of those that were judged; 0 when none was."""
        return 100.0 * self.right / self.judged if self.judged else 0.0


def tally(rows: Iterable[SelftestRow], expected: str) -> Tally:
    """Count the rows that expect `reject` or `accept`."""
    of_kind = [row for row in rows if row.expected == expected]
    judged = [row for row in of_kind if row.judged]
    return Tally(sum(row.as_expected for row in judged), len(judged), len(of_kind) - len(judged))


def choose(device: str, ids: Sequence[str] = (), *, quick: bool = False) -> list[HackCase]:
    """The cases that can run on `device`: those named, or the quick ones, or all. Raises UsageError."""
    known = {case.id: case for case in cases()}
    wanted = list(ids) or (list(QUICK) if quick else sorted(known))
    if unknown := [name for name in wanted if name not in known]:
        raise UsageError(f"no case {unknown[0]!r}; `kernelwright selftest --list` names them")
    chosen = [known[name] for name in wanted if known[name].runs_on(device)]
    if not chosen:
        raise UsageError(f"{', '.join(wanted)}: runs on {known[wanted[0]].device} only, not on {device}")
    return chosen


def run(
    chosen: Sequence[HackCase],
    device: str,
    make_executor: Callable[[], Executor],
    repeats: int = 1,
    seed: int | None = None,
) -> Iterator[SelftestRow]:
    """Judge every case `repeats` times; rows come as they are made.

    Cases of one task run together, so that they share its inputs, answers and baselines. A worker that is lost costs
    the cases of one task, which are then `env_error`; the next task gets a new one.
    """
    source = random.Random(seed) if seed is not None else random.SystemRandom()
    seeds = [source.getrandbits(31) for _ in range(repeats)]
    by_task: dict[str, list[HackCase]] = {}
    for case in chosen:
        by_task.setdefault(case.problem.hash, []).append(case)
    executor: Executor | None = None
    try:
        for together in by_task.values():
            executor = executor or make_executor()
            trials = {f"{c.id}/{i}": (c, i) for i in range(repeats) for c in together}
            jobs = [_job(key, case, device, seeds[i]) for key, (case, i) in trials.items()]
            began = time.monotonic()
            try:
                for result in executor.run(jobs, lambda progress: None):
                    now = time.monotonic()
                    yield _row(*trials.pop(result.key), result, now - began)
                    began = now
            except (EnvironmentFault, UsageError) as fault:
                # A task that cannot be used is refused as a whole: nobody's hack was seen through by that.
                for case, i in trials.values():
                    yield SelftestRow(case.id, case.group, case.expected, i, Status.ENV_ERROR, str(fault), 0.0, None)
                executor.close()
                executor = None
    finally:
        if executor is not None:
            executor.close()


def _job(key: str, case: HackCase, device: str, seed: int) -> Job:
    return Job(
        key=key,
        problem=case.problem,
        candidate=Candidate(case.candidate, Backend(case.backend), proposer="selftest"),
        device=device,
        seed=seed,
        effort=Effort(timeout_s=BUILD_TIMEOUT_S, rounds=ROUNDS, screen_rounds=0),
        baselines=("eager",),
    )


def _row(case: HackCase, repeat: int, result: JobResult, seconds: float) -> SelftestRow:
    verdict = result.verdict
    return SelftestRow(
        id=case.id,
        group=case.group,
        expected=case.expected,
        repeat=repeat,
        status=verdict.status,
        message=verdict.message,
        seconds=seconds,
        environment=result.environment,
    )


def line(row: SelftestRow) -> str:
    """One row for a log."""
    mark = "ok" if row.as_expected else "WRONG" if row.judged else "not judged"
    reason = " ".join(row.message.split())
    return f"{mark:<10} {row.id:<32} {row.status.value:<14} {row.seconds:5.1f} s  {reason}"


def write_results(path: Path, rows: Sequence[SelftestRow], command: str) -> None:
    """Write both rates as measured figures; `n` is how many candidates were judged."""
    where = next((row.environment for row in rows if row.environment), None)
    if where is None:
        raise EnvironmentFault("no candidate was judged, so there is no rate to write")
    found = []
    for metric, expected in (("hacks.refused", "reject"), ("hacks.honest_accepted", "accept")):
        count = tally(rows, expected)
        found.append(results.row(metric, count.percent, "%", count.judged, where, command, right=count.right))
    results.write(path, found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `python -m`: 0 when every case is as expected, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="selftest", description="Try the referee on the adversarial corpus.")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--case", action="append", default=[], help="only this case; may be given again")
    parser.add_argument("--json", type=Path, default=None, help="write the rows to this file, one a line")
    parser.add_argument("--results", type=Path, default=None, help="write both rates to this file, as docs/results has")
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory(prefix="kernelwright-selftest-") as folder:

        def executor() -> LocalExecutor:
            return LocalExecutor(cache=Path(folder) / "cache", log=Path(folder) / "worker.log")

        for row in run(choose(options.device, options.case), options.device, executor, options.repeats):
            rows.append(row)
            print(line(row)[:200], flush=True)
            if options.json:
                with options.json.open("a") as out:
                    out.write(json.dumps(to_json(row)) + "\n")
    for word, expected in (("hacks refused", "reject"), ("honest accepted", "accept")):
        count = tally(rows, expected)
        print(f"{word}: {count.right}/{count.judged}, not judged: {count.not_judged}")
    if options.results:
        words = f"--device {options.device} --repeats {options.repeats}"
        write_results(options.results, rows, f"python3 -m kernelwright.stages.execute.selftest {words}")
    return 0 if all(row.as_expected for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
