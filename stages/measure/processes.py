"""Who is ours: this process and everything that it started, as /proc shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """A process's parent, and the CPU time of itself and of the children that it has waited for."""

    parent: int
    seconds: float


def usage(pid: int) -> Usage | None:
    """None when the process is gone or is not shown."""
    try:
        # The name, in parentheses, may hold spaces and parentheses itself.
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    # proc(5): fields 14 to 17 are utime, stime, cutime, cstime; these begin at field 3.
    return Usage(int(fields[1]), sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_S)


def all_usage() -> dict[int, Usage]:
    """Every process that is shown."""
    return {pid: found for pid in _pids() if (found := usage(pid)) is not None}


def is_ours(pid: int, known: dict[int, Usage] | None = None) -> bool:
    """Whether the process is this one or descends from it."""
    seen: set[int] = set()
    while pid not in (0, 1) and pid not in seen:
        if pid == os.getpid():
            return True
        seen.add(pid)
        found = usage(pid) if known is None else known.get(pid)
        if found is None:
            return False
        pid = found.parent
    return pid == os.getpid()


def _pids() -> Iterator[int]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - names only, and fast: it is asked beside a measurement
        if name.isdigit():
            yield int(name)
