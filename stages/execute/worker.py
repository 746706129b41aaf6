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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.compile import compile_candidate
from kernelwright.stages.execute.bench import Bench
from kernelwright.stages.execute.job import Job, JobResult, Progress
from kernelwright.stages.measure import devices
from kernelwright.stages.sandbox.pool import Zygote
from kernelwright.stages.types import Compilation

PR_SET_PDEATHSIG = 1


class Worker:
    """Evaluates jobs one after the other; compiles ahead where that cannot disturb the timing."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.zygote = Zygote()
        self.bench: Bench | None = None
        self.compilers = ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="compile")

    def run(self, jobs: Sequence[Job], on_progress: Callable[[Progress], None]) -> Iterator[JobResult]:
        """Evaluate a batch. Yields a result as soon as it is made."""
        compiling = [(job, self.compilers.submit(self._compile, job, on_progress)) for job in jobs]
        if any(job.device == "cpu" for job in jobs):
            # On the CPU a compiler would run on the very cores that are being timed.
            for _, future in compiling:
                future.result()
        for job, future in compiling:
            yield self._evaluate(job, future, on_progress)

    def _compile(self, job: Job, on_progress: Callable[[Progress], None]) -> Compilation:
        on_progress(Progress(job.key, "compile"))
        return compile_candidate(
            job.candidate, job.problem, self.cache, device=job.device, deadline_s=job.effort.timeout_s
        )

    def _evaluate(self, job: Job, compiling: Future[Compilation], on_progress: Callable[[Progress], None]) -> JobResult:
        compilation = compiling.result()
        on_progress(Progress(job.key, "prepare"))
        bench = self._bench_for(job)
        return bench.evaluate(job, compilation, lambda stage: on_progress(Progress(job.key, stage)))

    def _bench_for(self, job: Job) -> Bench:
        if self.bench and (self.bench.problem.hash, self.bench.device) == (job.problem.hash, job.device):
            if self.bench.seed != job.seed:
                self.bench.draw(job.seed)
            return self.bench
        if self.bench:
            self.bench.close()
            self.bench = None
        devices.require(job.device)
        self.bench = Bench(job.problem, job.device, job.seed, job.effort, self.zygote, self.cache, job.baselines)
        return self.bench

    def close(self) -> None:
        """End every process that the worker started."""
        self.compilers.shutdown(cancel_futures=True)
        try:
            if self.bench:
                self.bench.close()
        finally:
            # Even where the bench was left in the middle of a message: every runner ends with the zygote.
            self.zygote.close()


def serve(cache: Path) -> None:
    """Read batches (`{"jobs": [...]}`) from stdin until it ends; write progress, results and faults to stdout."""
    lines = _only_writer_of_stdout()
    worker = Worker(cache)
    try:
        for line in sys.stdin:
            jobs = [from_json(Job, data) for data in json.loads(line)["jobs"]]
            try:
                for result in worker.run(jobs, lambda progress: lines({"progress": to_json(progress)})):
                    lines({"result": to_json(result)})
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
