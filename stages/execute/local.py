"""The executor for this machine: one worker process, spoken to in JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.execute import scratch
from kernelwright.stages.execute.job import Job, JobResult, Progress

GRACE_S = 5.0
"""How long the worker may take to end once its input is closed, and again once it is asked by a signal."""
BUSY_GRACE_S = 0.5
"""A worker in the middle of something leaves nothing behind that matters: its temporary folder goes with it."""


class LocalExecutor:
    """Starts its worker with the first batch, and keeps it: the problem's baselines stay warm between batches."""

    def __init__(self, cache: Path, log: Path) -> None:
        """`cache` holds compiled kernels by content hash; the worker's own messages go to `log`."""
        self.cache = cache
        self.log = log
        self._process: subprocess.Popen[str] | None = None
        self._scratch = contextlib.ExitStack()
        self._busy = False

    def start(self) -> None:
        """Start the worker now, so that its imports overlap with other work."""
        if self._process is None:
            temporary = self._scratch.enter_context(scratch.folder("worker"))
            with self.log.open("a") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "kernelwright.stages.execute.worker", "--serve", "--cache", str(self.cache)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=os.environ
                    | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TMPDIR": str(temporary)},
                )

    def run(self, jobs: Iterable[Job], on_progress: Callable[[Progress], None]) -> Iterator[JobResult]:
        """Yield one result a job, as they are made; ends when the candidates' processes have."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        batch = list(jobs)
        if not batch:
            return
        try:
            self._process.stdin.write(json.dumps({"jobs": to_json(batch)}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        self._busy = True
        yield from self._results(on_progress)
        self._busy = False

    def _results(self, on_progress: Callable[[Progress], None]) -> Iterator[JobResult]:
        while "done" not in (message := self._read()):
            if "result" in message:
                yield from_json(JobResult, message["result"])
            elif "fault" in message:
                raise {"UsageError": UsageError}.get(message["kind"], EnvironmentFault)(message["fault"])
            else:
                on_progress(from_json(Progress, message["progress"]))

    def _read(self) -> dict[str, Any]:
        process = self._process
        if process is None:
            raise self._ended()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise self._ended()
        message: dict[str, Any] = json.loads(line)
        return message

    def _ended(self) -> EnvironmentFault:
        process = self._process
        if process is None:
            return EnvironmentFault("the worker was ended while it worked")
        return EnvironmentFault(f"the worker ended unexpectedly (status {process.wait()}): see {self.log}")

    def close(self) -> None:
        """End the worker, in the middle of a job too. Its sandbox ends with it."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        if self._busy:
            process.terminate()
        for end in (process.terminate, process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=BUSY_GRACE_S if self._busy else GRACE_S)
                break
            end()
        process.wait()
        process.stdout.close()
        self._scratch.close()
        self._busy = False
