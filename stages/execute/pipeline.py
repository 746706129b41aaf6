"""Jobs of several problems on one GPU: while candidates of one are verified and timed, the next is made ready.

The device's lock orders it all: making ready and verifying share the device, timing has it alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from kernelwright.kernelbench import contract
from kernelwright.stages.execute.bench import Bench, bench_key
from kernelwright.stages.execute.job import Job, JobResult, Progress
from kernelwright.stages.execute.lanes import MOST_LANES
from kernelwright.stages.types import Compilation
from kernelwright.stages.verify import memory_needs

ROOM = 2
"""A problem is made ready beside another when the device has this many times the memory that it needs."""


@dataclass
class Group:
    """Jobs that share a bench and its inputs, each with its compilation under way."""

    jobs: Sequence[tuple[Job, Future[Compilation]]]
    bench: Bench | None = None
    over: threading.Event = field(default_factory=threading.Event)
    """None of its jobs is on its way any more."""
    _ended: int = 0
    _counting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def first(self) -> Job:
        """The job that its bench is made for."""
        return self.jobs[0][0]

    def count(self) -> None:
        """One more of its jobs has ended."""
        with self._counting:
            self._ended += 1
            if self._ended == len(self.jobs):
                self.over.set()

    def end(self) -> None:
        """Wait until it is over, and close its bench."""
        self.over.wait()
        assert self.bench is not None
        try:
            self.bench.settle()
        finally:
            self.bench.close()


class Pipeline:
    """One batch. `open_bench(job, held)` makes a bench, or uses the one that is held; `abort()` ends all processes."""

    def __init__(
        self,
        groups: Sequence[Group],
        open_bench: Callable[[Job, Bench | None], Bench],
        abort: Callable[[], None],
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.groups = groups
        self.open_bench = open_bench
        self.abort = abort
        self.on_progress = on_progress
        self.bench: Bench | None = None
        """The one that was opened last."""
        self._opening = threading.Lock()
        self._closer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="closer")
        self._closing: list[Future[None]] = []

    def run(self, held: Bench | None) -> Iterator[JobResult]:
        """Yield each result as soon as it is made. `held` is the bench of an earlier batch.

        The last group's bench stays open, as `bench`. After an exception none does.
        """
        try:
            yield from self._evaluate_all(held)
            assert self.bench is not None
            self.bench.settle()
            for closed in self._closing:
                closed.result()
        except BaseException:
            if self.bench is not None:
                self.bench.close()
                self.bench = None
            raise
        finally:
            self._closer.shutdown()

    def _evaluate_all(self, held: Bench | None) -> Iterator[JobResult]:
        with ThreadPoolExecutor(max_workers=MOST_LANES, thread_name_prefix="lane") as lanes:
            evaluating: list[Future[JobResult]] = []
            # Lanes take them in this order: a bench is opened when every job before it is on its way.
            for number, group in enumerate(self.groups):
                opened = lanes.submit(self._open, number, held if number == 0 else None)
                evaluating += [lanes.submit(self._evaluate, group, opened, *each) for each in group.jobs]
            try:
                for done in as_completed(evaluating):
                    yield done.result()
            except BaseException as error:
                if not isinstance(error, Exception):
                    # An interrupt does not wait for what candidates are about.
                    self.abort()
                for waiting in evaluating:
                    waiting.cancel()
                for group in self.groups:
                    group.over.set()
                raise

    def _open(self, number: int, held: Bench | None) -> None:
        group, before = self.groups[number], self.groups[number - 1] if number else None
        # Drawing seeds torch's global generators: two at once would not be repeatable.
        with self._opening:
            if before is not None and bench_key(before.first) == bench_key(group.first):
                before.over.wait()
                held = before.bench
            elif before is not None and self.bench is not None:
                self.bench = None
                self._closing.append(self._closer.submit(before.end))
                if not _has_room_beside(group.first):
                    for closed in self._closing:
                        closed.result()
            self.on_progress(Progress(group.first.key, "prepare"))
            group.bench = self.bench = self.open_bench(group.first, held)

    def _evaluate(self, group: Group, opened: Future[None], job: Job, compiling: Future[Compilation]) -> JobResult:
        try:
            opened.result()
            assert group.bench is not None
            assert group.bench.lanes is not None
            with group.bench.lanes.room:
                return group.bench.evaluate(
                    job, compiling.result(), lambda stage: self.on_progress(Progress(job.key, stage))
                )
        finally:
            group.count()


def _has_room_beside(job: Job) -> bool:
    """Whether the device has memory for a problem while another one is still there."""
    needs = memory_needs.predict(contract.load(job.problem), job.device)
    return needs is not None and ROOM * needs.bytes <= memory_needs.memory(job.device)[1]
