"""Jobs of several problems in one pipeline: the next problem is made ready while candidates of the last are judged.

What a GPU's worker does is tried here with benches on the CPU, each of which takes one candidate at a time.
"""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute import pipeline
from kernelwright.stages.execute.bench import Bench
from kernelwright.stages.execute.job import Job, Progress
from kernelwright.stages.execute.pipeline import Group, Pipeline
from kernelwright.stages.execute.worker import Worker
from kernelwright.stages.types import Backend, Compilation, Status
from tests.stages.execute.softmax_jobs import PROBLEM, job

OTHER = Problem("other", PROBLEM.source + "\n# another problem\n", "other.py")
PROMPTLY_S = 30.0
"""A guard: an endless candidate's own limit is a minute."""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path / "cache")
    yield made
    made.close()


class Watched:
    """A pipeline on real benches, and what was seen of it."""

    def __init__(self, worker: Worker, *groups: Sequence[Job]) -> None:
        self.benches: list[Bench] = []
        self.seen: list[Progress] = []
        self.worker = worker
        self.groups = [Group([(each, _compiled(each)) for each in jobs]) for jobs in groups]
        self.pipeline = Pipeline(self.groups, self._open, worker.zygote.close, self.seen.append)

    def _open(self, first: Job, held: Bench | None) -> Bench:
        bench = self.worker._bench_for(first, held)
        self.benches.append(bench)
        return bench

    def at(self, key: str, stage: str) -> int:
        """When a job entered a stage, counted in messages."""
        return self.seen.index(Progress(key, stage))


def _compiled(each: Job) -> Future[Compilation]:
    future: Future[Compilation] = Future()
    future.set_result(Compilation(True, Backend.TORCH, 0.0))
    return future


def of_other(name: str) -> Job:
    return dataclasses.replace(job(name, "other"), problem=OTHER)


def is_open(bench: Bench) -> bool:
    return Path(bench.files.name).exists()


def test_every_job_gets_its_result_and_only_the_last_bench_stays_open(worker: Worker) -> None:
    again = dataclasses.replace(job("other", "again"), seed=8)
    watched = Watched(worker, [job("right"), job("wrong")], [again], [of_other("right"), of_other("wrong")])
    results = {result.key: result for result in watched.pipeline.run(None)}
    assert {key: result.verdict.status for key, result in results.items()} == {
        "run/0/right": Status.CORRECT,
        "run/0/wrong": Status.INCORRECT,
        "again/0/other": Status.CORRECT,
        "other/0/right": Status.CORRECT,
        "other/0/wrong": Status.INCORRECT,
    }
    first, redrawn, last = watched.benches
    assert redrawn is first, "another seed of the same problem"
    assert not is_open(first)
    assert is_open(last)
    assert watched.pipeline.bench is last

    once_more = Watched(worker, [of_other("other")])
    (result,) = once_more.pipeline.run(last)
    assert result.verdict.status is Status.CORRECT
    assert once_more.benches == [last], "held from the batch before"
    last.close()


@pytest.mark.parametrize("room", [True, False])
def test_the_next_problem_is_made_ready_early_where_memory_allows(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, *, room: bool
) -> None:
    monkeypatch.setattr(pipeline, "_has_room_beside", lambda job: room)
    watched = Watched(worker, [job("right"), job("other")], [of_other("right")])
    assert len(list(watched.pipeline.run(None))) == 3
    # The two of the first group take turns, so one of them is measured last of all.
    last_measured = max(watched.at(key, "measure") for key in ("run/0/right", "run/0/other"))
    assert (watched.at("other/0/right", "prepare") < last_measured) is room
    watched.benches[-1].close()


def test_a_problem_too_large_for_the_device_waits_until_it_is_alone(worker: Worker) -> None:
    assert pipeline._has_room_beside(job("right"))
    huge = PROBLEM.source.replace("def get_inputs():", "def get_inputs():\n    return [torch.empty(2**20, 2**22)]\n")
    assert not pipeline._has_room_beside(dataclasses.replace(job("right"), problem=Problem("huge", huge, "huge.py")))


def test_a_fault_in_opening_ends_the_batch_and_leaves_no_bench(worker: Worker) -> None:
    broken = dataclasses.replace(of_other("right"), problem=Problem("broken", "import torch\n", "broken.py"))
    watched = Watched(worker, [job("right")], [broken], [of_other("right")])
    with pytest.raises((UsageError, EnvironmentFault), match="Model"):
        list(watched.pipeline.run(None))
    assert watched.pipeline.bench is None
    assert not any(is_open(bench) for bench in watched.benches)


def test_an_interrupt_does_not_wait_for_endless_candidates(worker: Worker) -> None:
    # Timing would wait until nobody shares the device.
    untimed = dataclasses.replace(job("right"), timed=False)
    watched = Watched(worker, [untimed], [of_other("endless")])
    results = watched.pipeline.run(None)
    assert next(results).key == "run/0/right"
    while Progress("other/0/endless", "verify") not in watched.seen:
        time.sleep(0.01)
    began = time.monotonic()
    results.close()
    assert time.monotonic() - began < PROMPTLY_S
    assert not any(is_open(bench) for bench in watched.benches)
