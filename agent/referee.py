"""One worker that many callers share: calls wait for their turn, and say where they stand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from kernelwright.agent.cli.judging import STAGES
from kernelwright.agent.verification import Watch, with_last_words
from kernelwright.kernelbench.errors import EnvironmentFault, UsageError
from kernelwright.stages.execute.job import Executor, Progress
from kernelwright.stages.execute.local import LocalExecutor

T = TypeVar("T")
Work = Callable[[Executor, Watch], T]

IDLE_S = 600.0
"""A worker that nobody has called for so long ends: it holds memory of the device."""


class Call(Generic[T]):
    """Work that waits for the worker, or has it."""

    def __init__(self) -> None:
        self.stage = "waiting for its turn"
        """What is going on, in words."""
        self.wanted = True
        self.future: Future[T]

    def watch(self, progress: Progress) -> None:
        """Told by the worker. Raises CancelledError when nobody waits for the call any more."""
        if not self.wanted:
            raise CancelledError
        self.stage = STAGES.get(progress.stage, progress.stage)


class Referee:
    """Runs calls one after another, in the order in which they came, with a worker that stays warm between them."""

    def __init__(self, folder: Path, idle_s: float = IDLE_S) -> None:
        """The worker's caches and its log lie in `folder`."""
        self._executor = LocalExecutor(folder / "cache", folder / "worker.log")
        # One thread that stays: the system kills a worker whose starter, a thread, has ended.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="referee")
        self._turn = threading.Lock()
        """Held to begin or end a call, and to end the worker of one."""
        self._current: Call[Any] | None = None
        self._idle_s = idle_s
        self._idle: threading.Timer | None = None

    def call(self, work: Work[T]) -> Call[T]:
        """Queue work. Its future raises what the work raises: UsageError and EnvironmentFault."""
        call: Call[T] = Call()
        call.future = self._thread.submit(self._run, work, call)
        return call

    def withdraw(self, call: Call[Any]) -> None:
        """Nobody waits for the call any more: it is not begun, or its worker ends; that takes some seconds."""
        call.wanted = False
        call.future.cancel()
        with self._turn:
            if self._current is call:
                self._executor.close()

    def close(self) -> None:
        """End the worker, in the middle of a call too, and drop the calls that wait."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self._turn:
            self._stop_waiting()
            self._executor.close()

    def _run(self, work: Work[T], call: Call[T]) -> T:
        with self._turn:
            self._stop_waiting()
            self._current = call
            self._executor.start()
        in_step = False
        try:
            result = work(self._executor, call.watch)
            in_step = True
            return result
        except UsageError:
            in_step = True
            raise
        except EnvironmentFault as fault:
            raise with_last_words(fault, self._executor.log) from None
        finally:
            with self._turn:
                self._current = None
                if not in_step:
                    # What the worker says next would be of the call that failed.
                    self._executor.close()
                self._idle = threading.Timer(self._idle_s, self._rest)
                self._idle.daemon = True
                self._idle.start()

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _rest(self) -> None:
        """Nobody called for a while."""
        with self._turn:
            if self._current is None:
                self._executor.close()
