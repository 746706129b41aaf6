"""The keeper: a process between the zygote and a runner, which sees to it that nothing of the runner's outlives it.

In a PID namespace the kernel does that, once the namespace's first process ends. Where there is none, the keeper adopts
whatever the runner leaves behind, however it has detached itself, and kills it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelwright.stages.sandbox import linux

_PR_SET_CHILD_SUBREAPER = 36


class _Told(BaseException):
    """The referee wants the runner ended."""


@dataclass(frozen=True)
class Kept:
    """A child and its keeper."""

    pid: int
    """The keeper's: a child of the caller that ends as the runner ends, by the same signal or with the same status."""
    runner: int
    """The runner's, as seen from the caller."""
    first: int | None
    """The PID namespace's first process, which becomes the parent of orphans; None where there is no namespace."""


def fork_apart(child: Callable[[], object], *, apart: bool) -> Kept:
    """Fork a keeper that forks `child`; with `apart`, into a new PID namespace. The caller must be single-threaded.

    SIGTERM to the keeper ends the child and all that it has started. Raises OSError when no namespace is to be had.
    """
    reading, writing = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        os.close(reading)
        try:
            _keep(child, writing, apart=apart)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as answers:  # noqa: PTH123 - a descriptor
        told = answers.read().decode()
    runner, _, first = told.partition(" ")
    if not runner.isdecimal():
        os.waitpid(keeper, 0)
        raise OSError(told or "the keeper died")
    return Kept(keeper, int(runner), int(first) if first else None)


def _keep(child: Callable[[], object], telling: int, *, apart: bool) -> None:
    linux.end_with_parent()
    signal.signal(signal.SIGTERM, _tell)
    first = None
    try:
        if apart:
            linux.unshare(linux.CLONE_NEWPID)
            first = _first_of_namespace(telling)
        else:
            linux.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        runner = _fork(child, telling)
    except OSError as error:
        os.write(telling, str(error).encode())
        os._exit(1)
    os.write(telling, f"{runner} {first or ''}".encode())
    # Above all the runner's socket: its end must be the end of the stream.
    os.closerange(3, 1024)
    status = None
    with contextlib.suppress(_Told):
        _, status = os.waitpid(runner, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in (first, runner if status is None else None):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    _bury(runner)
    _end_as(status)


def _first_of_namespace(telling: int) -> int:
    """Fork the namespace's first process, and wait until it has chosen where the numbers of the others begin."""
    own = os.getpid()
    reading, writing = os.pipe()

    def bury_orphans() -> None:
        # CUDA names shared files by user and process number: runners that all had number 2 would open each other's.
        with contextlib.suppress(OSError):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(own))
        os.write(writing, b".")
        _bury_orphans()

    first = _fork(bury_orphans, telling)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    return first


def _fork(child: Callable[[], object], telling: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(telling)
            child()
        finally:
            os._exit(1)
    return pid


def _tell(number: int, frame: object) -> None:
    raise _Told


def _bury_orphans() -> None:
    """The first process of a PID namespace: whatever loses its parent in there becomes its child."""
    linux.end_with_parent()
    # More privileged than what it watches over, and closed to it: it cannot be traced, nor its memory be read.
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.closerange(0, 1024)
    while True:
        signal.pause()


def _bury(runner: int) -> None:
    """Kill and reap whatever is left below this process."""
    while True:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _end_as(status: int | None) -> None:
    """End as the runner has ended, for whoever waits for us; None: it was killed."""
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def descendants(pid: int) -> list[int]:
    """The processes that descend from one, nearest first, in the numbers of this process's own namespace."""
    found, level = [], [pid]
    while level:
        level = [child for parent in level for child in _children(parent)]
        found += level
    return found


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(number) for text in lists for number in text.split()]
    return []
