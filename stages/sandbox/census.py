"""On the referee's side: what goes on working in a runner after its answer, read from /proc alone.

Idle threads are fine, and a pool that spins for a while in case of more work is too: GNU's OpenMP spins for a fixed
number of turns after each parallel region (8 ms of CPU time on one machine, some 15 ms where a pause takes longer),
LLVM's and Intel's for KMP_BLOCKTIME, which the zygote sets. So a thread is counted by the CPU time that it takes, not
by the clock: a busy machine stretches its spinning, and does not make it more.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from kernelwright.stages.sandbox.keep import descendants

BUDGET_S = 0.03
"""CPU time that a thread may take after the answer before it is said to work."""
STILL_S = 0.001
"""Of a look's length: a thread that takes less is idle."""
MAX_LOOKS = 25
KMP_BLOCKTIME_MS = 10
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Census:
    """The threads of a process and of its descendants, at one moment."""

    threads: dict[tuple[int, int], float]
    """CPU time in seconds by (process, thread)."""
    processes: tuple[int, ...]
    """The descendants, without the process itself."""


def take(pid: int) -> Census:
    """Look at a process and whatever descends from it."""
    children = descendants(pid)
    threads = {(p, thread): seconds for p in (pid, *children) for thread, seconds in _threads(p).items()}
    return Census(threads, tuple(child for child in children if _lives(child)))


def still_working(pid: int, wait_s: float = 0.02) -> list[str]:
    """Sentences about threads and children that go on working though the call has been answered.

    Ask it when the answer is there. It looks again every `wait_s` until nothing works any more, or something has taken
    more than BUDGET_S: one look on a quiet process, a few where a thread pool is spinning.
    """
    before = last = take(pid)
    for _ in range(MAX_LOOKS):
        time.sleep(wait_s)
        now = take(pid)
        spent = {who: seconds - before.threads.get(who, 0.0) for who, seconds in now.threads.items()}
        busy = {who: s for who, s in spent.items() if s > BUDGET_S}
        if busy:
            return _sentences(pid, busy)
        if all(seconds - last.threads.get(who, 0.0) <= STILL_S for who, seconds in now.threads.items()):
            return []
        last = now
    return []


def _sentences(pid: int, busy: dict[tuple[int, int], float]) -> list[str]:
    own = [seconds for (process, _), seconds in busy.items() if process == pid]
    others = {process for process, _ in busy if process != pid}
    found = []
    if own:
        who = f"{len(own)} thread{'s' * (len(own) > 1)}"
        found.append(f"{who} went on for {1000 * sum(own):.0f} ms of CPU time after the call returned")
    if others:
        who = f"{len(others)} child process{'es' * (len(others) > 1)}"
        found.append(f"{who} went on working after the call returned")
    return found


def _threads(pid: int) -> dict[int, float]:
    found = {}
    with contextlib.suppress(OSError):
        for folder in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                found[int(folder.name)] = _cpu_seconds(folder)
    return found


def _cpu_seconds(folder: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return int((folder / "schedstat").read_text().split()[0]) / 1e9
    # A kernel without scheduling statistics counts in ticks.
    fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except OSError:
        return False
