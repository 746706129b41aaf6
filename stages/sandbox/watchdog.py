"""Memory and processes of runners, looked at from outside every few milliseconds; what takes too much is ended.

No cgroup is needed for it, no address-space limit (which CUDA cannot live with), and it says what it saw.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

INTERVAL_S = 0.02
SHARE = 0.5
"""Of the machine's memory: what one runner may hold, shared memory that the referee gave it included."""
RESERVE_SHARE = 0.02
LARGE_SHARE = 0.1
"""Of the machine's memory: when less than the first is free, the runner that holds most is ended, whatever its limit,
if it holds more than the second."""
MAX_PROCESSES = 256
"""Threads do not count; a parallel build has some dozens."""
_MB = 1e6
_PAGE = os.sysconf("SC_PAGE_SIZE")


def machine_memory() -> int:
    """Bytes of memory that this machine has, or that the cgroup which we are in allows."""
    total = _PAGE * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int((Path("/sys/fs/cgroup") / name).read_text()))
    return total


def memory_limit(needed: int = 0) -> int:
    """Bytes that a runner may hold: SHARE of the machine, or `needed` and a quarter more where that is larger."""
    return max(int(SHARE * machine_memory()), int(1.25 * needed))


class Watched:
    """A runner's processes under the watchdog's eyes."""

    def __init__(self, pid: int, limit: int, family: Callable[[], list[int]]) -> None:
        """`family` gives the processes that count: the runner and what it has started."""
        self.pid = pid
        self.limit = limit
        self.family = family
        self.reason = ""
        """Why it was ended; empty when it was not."""

    def look(self) -> int:
        """Bytes held now; ends the runner when they, or its processes, are too many."""
        family = self.family()
        held = sum(_resident(pid) for pid in family)
        if held > self.limit:
            self.end(f"used {held / _MB:.0f} MB, allowed {self.limit / _MB:.0f} MB")
        elif len(family) > MAX_PROCESSES:
            self.end(f"ran {len(family)} processes, allowed {MAX_PROCESSES}")
        return held

    def end(self, reason: str) -> None:
        """Kill it, for this reason. Its keeper sees to the rest."""
        self.reason = reason
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Watchdog:
    """A thread that looks at every runner that has joined, as long as there is one."""

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def join(self, watched: Watched) -> None:
        """Look after a runner from now on."""
        with self._changed:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def leave(self, watched: Watched) -> None:
        """Look no longer: its number may soon be another process's."""
        with self._changed:
            self._watched.discard(watched)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        machine = machine_memory()
        reserve = RESERVE_SHARE * machine
        while not self._closed:
            with self._changed:
                # Under the lock, so that nobody who has left is looked at, or killed.
                held = {watched: watched.look() for watched in self._watched if not watched.reason}
                largest = max(held, key=lambda w: held[w], default=None)
                if largest is not None and held[largest] > LARGE_SHARE * machine and _available() < reserve:
                    largest.end(f"used {held[largest] / _MB:.0f} MB when the machine's memory was nearly full")
                self._changed.wait(INTERVAL_S if self._watched else None)


def _resident(pid: int) -> int:
    try:
        return _PAGE * int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return 0
