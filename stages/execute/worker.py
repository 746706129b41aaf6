"""The worker: evaluates jobs on this machine's device. It imports torch, triton, numpy and the standard library only.

Two ways in, one way through:
    python -m kernelwright.stages.execute.worker --serve            batches on stdin, results on stdout (JSON lines)
    python -m kernelwright.stages.execute.worker BUNDLE --time 500  a bundle's jobs, results appended to the bundle
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.compile import compile_candidate, deferred
from kernelwright.stages.execute import profiling
from kernelwright.stages.execute.bench import Bench, bench_key
from kernelwright.stages.execute.job import Job, JobResult, Progress, Purpose
from kernelwright.stages.execute.pipeline import Group, Pipeline
from kernelwright.stages.measure import devices
from kernelwright.stages.profile.ladder import needs_device
from kernelwright.stages.sandbox.pool import Zygote
from kernelwright.stages.types import Backend, Compilation

PR_SET_PDEATHSIG = 1


class Worker:
    """Evaluates jobs on this machine's device, several at once where that cannot disturb the timing."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.zygote = Zygote()
        self.bench: Bench | None = None
        self.compilers = ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="compile")

    def run(self, jobs: Sequence[Job], on_progress: Callable[[Progress], None]) -> Iterator[JobResult]:
        """Evaluate a batch. Yields each result as soon as it is made, in any order."""
        alone = [job for job in jobs if job.purpose is Purpose.PROFILE and not needs_device(job)]
        for job in alone:
            yield profiling.without_device(job, self._ahead(job), self.zygote, self.cache)
        sets = _by_bench([job for job in jobs if job not in alone])
        for same in (s for s in sets if s[0].device == "cpu"):
            yield from self._one_by_one(self._group(same, on_progress), on_progress)
        on_gpu = [self._group(same, on_progress) for same in sets if same[0].device != "cpu"]
        if on_gpu:
            pipeline = Pipeline(on_gpu, self._bench_for, self.zygote.close, on_progress)
            held, self.bench = self.bench, None
            yield from pipeline.run(held)
            self.bench = pipeline.bench

    def _group(self, same: Sequence[Job], on_progress: Callable[[Progress], None]) -> Group:
        return Group([(job, self.compilers.submit(self._compile, job, on_progress)) for job in same])

    def _one_by_one(self, group: Group, on_progress: Callable[[Progress], None]) -> Iterator[JobResult]:
        """On the CPU a compiler, or another candidate, would run on the very cores that are being timed."""
        for _, compiling in group.jobs:
            compiling.result()
        on_progress(Progress(group.first.key, "prepare"))
        held, self.bench = self.bench, None
        bench = self.bench = self._bench_for(group.first, held)
        for job, compiling in group.jobs:
            yield bench.evaluate(job, compiling.result(), _stages(job, on_progress))
        bench.settle()

    def _compile(self, job: Job, on_progress: Callable[[Progress], None]) -> Compilation:
        on_progress(Progress(job.key, "compile"))
        if job.candidate.backend is Backend.TRITON and job.device == "cuda":
            return Compilation(ok=True, backend=Backend.TRITON, seconds=0.0, log=deferred.NOTE)
        return self._ahead(job)

    def _ahead(self, job: Job) -> Compilation:
        """Compile before the candidate has a process."""
        return compile_candidate(
            job.candidate, job.problem, self.cache, device=job.device, deadline_s=job.effort.timeout_s
        )

    def _bench_for(self, job: Job, held: Bench | None) -> Bench:
        """The bench that is held, if it is for such jobs; else a new one in its place."""
        if held is not None and bench_key(held.job) == bench_key(job):
            if held.seed != job.seed:
                held.draw(job.seed)
            return held
        if held is not None:
            held.close()
        devices.require(job.device)
        return Bench(job, self.zygote, self.cache)

    def close(self) -> None:
        """End every process that the worker started."""
        self.compilers.shutdown(cancel_futures=True)
        try:
            if self.bench:
                self.bench.close()
        finally:
            # Even where the bench was left in the middle of a message: every runner ends with the zygote.
            self.zygote.close()


def _stages(job: Job, on_progress: Callable[[Progress], None]) -> Callable[[str], None]:
    return lambda stage: on_progress(Progress(job.key, stage))


def _by_bench(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs in runs of those that share a bench and a seed, in the order of their first."""
    groups: dict[tuple[Any, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault((*bench_key(job), job.seed), []).append(job)
    return list(groups.values())


def serve(cache: Path) -> None:
    """Read batches (`{"jobs": [...]}`) from stdin until it ends; write progress and results to stdout.

    A batch ends with `done`, once its candidates' processes are gone, or with `fault`.
    """
    lines = _only_writer_of_stdout()
    worker = Worker(cache)
    try:
        for line in sys.stdin:
            jobs = [from_json(Job, data) for data in json.loads(line)["jobs"]]
            try:
                for result in worker.run(jobs, lambda progress: lines({"progress": to_json(progress)})):
                    lines({"result": to_json(result)})
                lines({"done": len(jobs)})
            except (EnvironmentFault, UsageError) as error:
                lines({"fault": str(error), "kind": type(error).__name__})
    finally:
        worker.close()


def _only_writer_of_stdout() -> Callable[[dict[str, Any]], None]:
    """A function that writes one JSON line. Whatever else prints in this process goes to stderr."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    one_at_a_time = threading.Lock()

    def write(message: dict[str, Any]) -> None:
        # Compilers report from threads of their own.
        with one_at_a_time:
            out.write(json.dumps(message) + "\n")
            out.flush()

    return write


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `python -m`."""
    parser = argparse.ArgumentParser(prog="worker", description="Evaluate jobs on this machine's device.")
    parser.add_argument("bundle", nargs="?", type=Path, help="a bundle made by `kernelwright jobs export`")
    parser.add_argument("--serve", action="store_true", help="read batches of jobs from stdin")
    parser.add_argument("--time", type=float, default=None, help="seconds after which no further job is begun")
    parser.add_argument("--cache", type=Path, default=None, help="folder for compiled kernels")
    options = parser.parse_args(arguments)
    _use_default_flags()
    # A polite signal unwinds the stack: processes end and temporary folders go.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="kernelwright-cache-") as temporary:
        cache = options.cache or Path(temporary)
        try:
            if options.serve:
                # The owner may be killed without notice; nothing of ours goes on working for nobody.
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                serve(cache)
                return 0
            if options.bundle is None:
                parser.error("name a bundle, or give --serve")
            from kernelwright.stages.execute.bundle import run_bundle

            return run_bundle(options.bundle, cache, options.time)
        except (EnvironmentFault, UsageError) as error:
            print(f"kernelwright worker: {error}", file=sys.stderr)
            return 3 if isinstance(error, EnvironmentFault) else 2


def _use_default_flags() -> None:
    """The precision contract's flags, set as in the runners: torch's defaults."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True


if __name__ == "__main__":
    sys.exit(main())
